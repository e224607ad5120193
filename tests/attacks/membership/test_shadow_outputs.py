"""Shadows' answers: halves that do not meet, and marks that say what was seen."""

import numpy as np
import pytest

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.shadow_outputs import ShadowOutputs, train_shadows
from sfumato.attacks.targets import Target


def by_heart(seen, labels):
    """A model that tells what it saw: probability 0.9 for what it was trained on, else 0.6."""
    known = set(seen[:, 0].tolist())

    def answer(inputs):
        own = np.where([value in known for value in inputs[:, 0]], 0.9, 0.6)
        return np.stack([own, 1 - own], axis=1)

    return Target.of_scores(answer)


@pytest.mark.parametrize(("size", "asked"), [(None, 20), (4, 8)])
def test_each_shadow_is_asked_about_what_it_saw_and_as_much_that_it_did_not(size, asked):
    trained = []

    def train(inputs, labels):
        trained.append(inputs[:, 0].tolist())
        assert np.array_equal(labels, inputs[:, 0] % 2)
        return by_heart(inputs, labels)

    inputs = np.arange(21.0)[:, None]
    outputs = train_shadows(
        train, inputs, np.arange(21) % 2, shadows=5, generator=np.random.default_rng(1), size=size
    )
    assert len(outputs) == 5 * asked
    assert [len(set(part)) for part in trained] == [asked // 2] * 5
    assert len({tuple(sorted(part)) for part in trained}) == 5  # each has its own half
    assert np.array_equal(outputs.inside, outputs.probabilities[:, 0] == 0.9)


def test_of_one_shadow_and_of_several():
    inside, outside = np.arange(4.0)[:, None], np.arange(4.0, 7.0)[:, None]
    both = Candidates.of((inside, [0, 1, 0, 1]), (outside, [1, 1, 1]))
    one = ShadowOutputs.of_shadow(by_heart(inside, None), both)
    assert one.probabilities[:, 0].tolist() == [0.9] * 4 + [0.6] * 3
    assert np.array_equal(one.inside, both.members)
    two = ShadowOutputs.pooled([one, one])
    assert two.labels.tolist() == [0, 1, 0, 1, 1, 1, 1] * 2


def test_bad_outputs_are_refused():
    rows, labels, inside = np.full((2, 2), 0.5), np.array([0, 1]), np.array([True, False])
    with pytest.raises(ValueError, match="inside must be some answers of either kind"):
        ShadowOutputs(rows, labels, np.array([True, True]))
    with pytest.raises(ValueError, match="inside must be one mark"):
        ShadowOutputs(rows, labels, inside[:1])
    with pytest.raises(ValueError, match="labels must be classes from 0 to 1"):
        ShadowOutputs(rows, np.array([0, 2]), inside)
    with pytest.raises(ValueError, match="labels must be one for each"):
        ShadowOutputs(rows, labels[:1], inside)
    with pytest.raises(ValueError, match="two or more probabilities"):
        ShadowOutputs(np.zeros((2, 1)), labels, inside)
    with pytest.raises(ValueError, match="finite"):
        ShadowOutputs(np.full((2, 2), np.nan), labels, inside)
    with pytest.raises(ValueError, match="parts must be"):
        ShadowOutputs.pooled([])
    with pytest.raises(ValueError, match="at most half of the 4 examples"):
        train_shadows(
            by_heart,
            np.zeros((4, 1)),
            [0] * 4,
            shadows=1,
            size=3,
            generator=np.random.default_rng(1),
        )
