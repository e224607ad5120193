"""Scores: a judge that must see, and distances that tell records from prototypes."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.attacks.candidates import Candidates, Overlap
from sfumato.attacks.inversion.likeness import cosine, structural_similarity
from sfumato.attacks.inversion.scoring import class_means, closeness, recognition
from sfumato.core.rates import rate_interval


def answering(*rows):
    return lambda images: np.array(rows)


def people(count, classes=4, pixels=30, seed=1):
    """Members and others of one population; its classes' centres."""
    random = np.random.default_rng(seed)
    centres = random.random((classes, pixels))

    def drawn():
        labels = np.repeat(np.arange(classes), count)
        return centres[labels] + 0.3 * random.standard_normal((len(labels), pixels)), labels

    return drawn(), drawn(), centres


def test_right_answers_are_counted_class_by_class():
    judge = answering(
        [0.7, 0.1, 0.1, 0.1],  # first
        [0.4, 0.3, 0.2, 0.1],  # second
        [0.1, 0.3, 0.4, 0.2],  # fourth
        [0.0, 0.1, 0.3, 0.6],  # third
    )
    found = recognition(np.zeros((4, 2, 2)), [0, 1, 0, 1], judge)
    assert found.accuracy == 0.25
    assert found.accuracy_among_three == 0.75 - 0.25 + 0.25
    zero, one = found.by_class[0], found.by_class[1]
    assert (zero.images, zero.first, zero.among_three) == (2, 1, 1)
    assert (one.images, one.first, one.among_three) == (2, 0, 2)
    assert zero.probability == pytest.approx(0.4)
    assert found.probability == pytest.approx((0.7 + 0.3 + 0.1 + 0.1) / 4)
    assert found.accuracy_interval == rate_interval(1, 4, 0.95)


def test_a_judge_in_doubt_has_not_seen_the_class():
    same = answering(*[[0.1] * 10] * 5)
    found = recognition(np.zeros((5, 4)), [0, 1, 2, 3, 4], same)
    assert found.accuracy == found.accuracy_among_three == 0


def test_a_judge_may_answer_nothing():
    found = recognition(np.zeros((2, 4)), [0, 1], answering([0.2, 0.1, 0.7], [0.1, 0.6, 0.3]))
    assert found.accuracy == 0.5


def test_recognition_is_for_the_curator():
    found = recognition(np.zeros((1, 4)), [1], answering([0.2, 0.8]))
    kept = json.loads(json.dumps(found.to_dict()))
    assert (kept["channel"], kept["by_class"]["1"]["first"]) == ("curator", 1)
    assert "100.0% of 1 images rightly (95% interval 2.5% to 100.0%)" in str(found)


def test_copies_of_members_are_called_records():
    inside, outside, _ = people(40)
    examples = Candidates.of(inside, outside)
    rows = np.arange(0, 160, 8)
    copies = inside[0][rows] + 0.01
    found = closeness(copies, inside[1][rows], examples, generator=np.random.default_rng(2))
    assert found.verdict == "records"
    assert found.p_value == 1 / 1000
    assert found.nearer_to_a_member == 1
    assert found.member_distance == pytest.approx([0.01 * np.sqrt(30)] * 20, rel=1e-3)
    assert found.ratio.max() < 0.1
    others = closeness(
        outside[0][rows] + 0.01, outside[1][rows], examples, generator=np.random.default_rng(2)
    )
    assert others.verdict == "prototypes, not records"
    assert others.p_value > 0.99
    assert others.ratio.min() > 10


def test_class_means_are_prototypes():
    inside, outside, centres = people(40)
    examples = Candidates.of(inside, outside)
    found = closeness(centres, np.arange(4), examples, generator=np.random.default_rng(2))
    assert found.verdict == "prototypes, not records"
    assert found.p_value > 0.05
    assert np.median(found.ratio) == pytest.approx(1, abs=0.1)
    assert found.similarity.min() > 0.95
    exact = class_means(*inside, [2, 0])
    assert exact[0] == pytest.approx(inside[0][inside[1] == 2].mean(axis=0), abs=1e-6)
    same = closeness(exact, [2, 0], examples, generator=np.random.default_rng(2))
    assert same.similarity == pytest.approx(1, abs=1e-6)
    assert same.structure == pytest.approx(1, abs=1e-6)


def test_what_leans_towards_members_is_told_from_records():
    inside, outside, centres = people(200)
    labels = np.repeat(np.arange(4), 10)
    half_way = (inside[0].reshape(4, 200, -1)[:, :10].reshape(40, -1) + centres[labels]) / 2
    found = closeness(
        half_way, labels, Candidates.of(inside, outside), generator=np.random.default_rng(2)
    )
    assert found.p_value < 0.01
    assert 0.5 < np.median(found.ratio) < 0.9
    assert found.verdict == "prototypes that lean towards members"


def test_chance_is_called_unlikely_as_often_as_it_says():
    """Five images alike a class: counted as trials of their own they would mislead."""
    random, below, repeats = np.random.default_rng(3), 0, 500
    for seed in range(repeats):
        inside, outside, centres = people(6, classes=2, pixels=4, seed=seed)
        alike = np.repeat(centres, 5, axis=0)
        found = closeness(
            alike, np.repeat([0, 1], 5), Candidates.of(inside, outside), generator=random,
            exchanges=49,
        )  # fmt: skip
        below += found.p_value <= 0.1
    assert below / repeats == pytest.approx(0.1, abs=3 * np.sqrt(0.09 / repeats))


def test_both_sides_are_of_one_size():
    """The nearest of many is nearer: without picking as many, other people's pictures would win."""
    inside, outside, centres = people(400, classes=2, pixels=3)
    few = inside[0][::20], inside[1][::20]
    found = [
        closeness(
            centres,
            [0, 1],
            Candidates.of(few, outside),
            generator=np.random.default_rng(seed),
            exchanges=1,
        )
        for seed in range(20)
    ]
    assert np.mean([one.other_distance for one in found]) > 2 * np.mean(
        [
            np.linalg.norm(outside[0].reshape(2, 400, 3)[k] - centres[k], axis=1).min()
            for k in (0, 1)
        ]
    )


def test_closeness_is_for_the_curator():
    inside, outside, centres = people(5)
    found = closeness(
        centres, np.arange(4), Candidates.of(inside, outside), generator=np.random.default_rng(1)
    )
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["channel"] == "curator"
    assert len(kept["ratio"]) == 4
    assert str(found).startswith(found.verdict)


def test_bad_examples_are_refused():
    inside, outside, centres = people(5)
    generator = np.random.default_rng(1)
    with pytest.raises(Overlap):
        Candidates.of(inside, inside)
    examples = Candidates.of(inside, outside)
    with pytest.raises(ValueError, match="examples must be members and others"):
        closeness(centres[:1], [7], examples, generator=generator)
    with pytest.raises(ValueError, match="examples must be of shape"):
        closeness(centres[:, :5], np.arange(4), examples, generator=generator)
    with pytest.raises(ValueError, match="labels must be one for each"):
        closeness(centres, [0], examples, generator=generator)
    with pytest.raises(ValueError, match="judge's answers must be"):
        recognition(centres, np.arange(4), answering([0.5, 0.5]))
    with pytest.raises(ValueError, match="images must be"):
        recognition(np.zeros(4), [0], answering([1.0]))


def test_likeness_by_hand():
    dark, bright = np.full((1, 1, 9, 9), 0.2), np.full((1, 1, 9, 9), 0.6)
    expected = (2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4)
    assert structural_similarity(dark, bright) == pytest.approx([expected])
    assert cosine(dark, bright).tolist() == [0]
    random = np.random.default_rng(1)
    a, b = random.random((1, 3, 3)), random.random((1, 3, 3))  # one window holds all of it
    ma, mb, va, vb = a.mean(), b.mean(), a.var(), b.var()
    joint = ((a - ma) * (b - mb)).mean()
    whole = (2 * ma * mb + 1e-4) * (2 * joint + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))
    flat = structural_similarity(a.reshape(1, 9), b.reshape(1, 9))
    assert flat == pytest.approx([whole])
    assert cosine(a, b) == pytest.approx([joint / np.sqrt(va * vb)])


@given(
    arrays(np.float64, (2, 6, 6), elements=st.floats(0, 1)),
    arrays(np.float64, (2, 6, 6), elements=st.floats(0, 1)),
)
def test_likeness_is_symmetric_and_at_most_one(a, b):
    for alike in (cosine, structural_similarity):
        assert alike(a, b) == pytest.approx(alike(b, a))
        assert (np.abs(alike(a, b)) <= 1 + 1e-9).all()
    assert structural_similarity(a, a) == pytest.approx(1)
