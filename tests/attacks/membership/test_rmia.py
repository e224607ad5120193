"""RMIA: by all pairs, uniform on non-members, and a tuned without looking at the target."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import kstest

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.rmia import (
    GRID,
    offline_marginal,
    online_marginal,
    rmia_attack,
    rmia_scores,
    tune_a,
)
from sfumato.attacks.roc import Roc
from sfumato.attacks.targets import NotSeen, Target

EIGHTHS = st.integers(1, 8).map(lambda k: k / 8)
PAIRS = st.lists(st.tuples(EIGHTHS, EIGHTHS), min_size=1, max_size=12)


def world(random, models, examples, population, gap=2.0, included=None):
    """Probabilities of models on examples they were trained on or not, of population, the truth."""
    if included is None:
        included = random.random((models, examples)) < 0.5
        included[0, :2], included[1:, :2] = [True, False], [[False, True]]
    hard, there = random.normal(0, 2, examples), random.normal(0, 2, population)
    seen = expit(hard + gap * included + random.normal(0, 1, (models, examples)))
    return seen, expit(there + random.normal(0, 1, (models, population))), included


def auc(scores, truth):
    return Roc.from_scores(scores[truth], scores[~truth]).auc


@given(PAIRS, PAIRS, st.sampled_from([1.0, 2.0, 4.0]))
def test_sorting_counts_all_pairs(examples, population, gamma):
    """Probabilities in eighths: ties are frequent, and count as at least gamma."""
    (p, over), (there, under) = np.array(examples).T, np.array(population).T
    ratios = (p / over)[:, None] / (there / under)[None, :]
    direct = (ratios >= gamma * (1 - 1e-12)).mean(axis=1)
    assert rmia_scores(p, over, there, under, gamma=gamma).tolist() == pytest.approx(direct)


def test_marginals_by_hand():
    references = np.array([[0.2, 0.6], [0.4, 0.8]])
    assert offline_marginal(references, a=1.0) == pytest.approx([0.3, 0.7])
    assert offline_marginal(references, a=0.0) == pytest.approx([0.65, 0.85])
    assert offline_marginal(references, a=0.4) == pytest.approx(
        [(1.4 * 0.3 + 0.6) / 2, (1.4 * 0.7 + 0.6) / 2]
    )
    included = np.array([[True, False], [False, True]])
    assert offline_marginal(references, 1.0, included) == pytest.approx([0.4, 0.6])
    assert online_marginal(references, included) == pytest.approx([0.3, 0.7])
    uneven = np.array([[1, 0], [0, 1], [0, 1]])
    more = np.vstack([references, [[0.6, 1.0]]])
    assert online_marginal(more, uneven) == pytest.approx([(0.2 + 0.5) / 2, (0.9 + 0.6) / 2])


def test_a_guess_of_p_in_that_is_right_makes_offline_equal_online():
    """If p_in = a p_out + 1 - a, both marginals agree."""
    out, a = np.array([0.1, 0.5, 0.9]), 0.3
    included = np.array([[False] * 3, [True] * 3])
    both = online_marginal([out, a * out + 1 - a], included)
    assert offline_marginal([out], a) == pytest.approx(both)


@pytest.mark.parametrize("a", [0.2, 1.0])
def test_non_members_score_uniformly(a):
    """With gamma 1 and one law for x and z. A population normalised otherwise fails."""
    random = np.random.default_rng(1)
    seen, there, _ = world(random, 5, 3000, 3000, gap=0.0)
    x, z = offline_marginal(seen[1:], a), offline_marginal(there[1:], a)
    scores = rmia_scores(seen[0], x, there[0], z, gamma=1.0)
    assert kstest(scores, "uniform").pvalue > 1e-3
    assert np.mean(scores > 0.95) == pytest.approx(0.05, abs=0.02)
    if a < 1:
        uncorrected = rmia_scores(seen[0], x, there[0], there[1:].mean(axis=0), gamma=1.0)
        assert kstest(uncorrected, "uniform").pvalue < 1e-6


def test_members_are_found_and_more_models_help():
    random = np.random.default_rng(2)
    seen, there, included = world(random, 17, 4000, 1000)
    truth = included[0]
    found = {}
    for count in (1, 16):
        rest, marks = seen[1 : 1 + count], included[1 : 1 + count]
        usable = ~marks.all(axis=0)
        x = offline_marginal(rest[:, usable], 0.5, marks[:, usable])
        z = offline_marginal(there[1 : 1 + count], 0.5)
        found[count] = auc(rmia_scores(seen[0, usable], x, there[0], z), truth[usable])
    usable = included[1:].any(axis=0) & ~included[1:].all(axis=0)
    x = online_marginal(seen[1:, usable], included[1:, usable])
    z = offline_marginal(there[1:], 1.0)
    online = auc(rmia_scores(seen[0, usable], x, there[0], z), truth[usable])
    alone = auc(seen[0], truth)
    assert alone + 0.02 < found[1] < found[16] - 0.01
    assert online > alone + 0.05


def test_a_is_tuned_on_a_model_of_the_attackers_own():
    random = np.random.default_rng(3)
    seen, there, included = world(random, 4, 1500, 500)
    tuned = tune_a(seen, there, included, paired=1)
    usable = ~included[[0, 2, 3]].all(axis=0)
    direct = {}
    for a in GRID:
        x = offline_marginal(seen[[0, 2, 3]][:, usable], a, included[[0, 2, 3]][:, usable])
        z = offline_marginal(there[[0, 2, 3]], a)
        direct[a] = auc(rmia_scores(seen[1, usable], x, there[1], z), included[1, usable])
    assert dict(tuned.aucs) == pytest.approx(direct)
    assert direct[tuned.a] == max(direct.values())
    assert min(direct.values()) < max(direct.values()) - 0.01  # so that it matters
    assert str(tuned).endswith("on reference model 1")
    assert json.loads(json.dumps(tuned.to_dict()))["a"] == tuned.a


def test_equal_values_of_a_give_the_smallest():
    seen = np.array([[0.9, 0.1], [0.5, 0.5]])
    tuned = tune_a(seen, seen, [[1, 0], [0, 0]], grid=[0.8, 0.4])
    assert (tuned.a, tuned.aucs) == (0.4, ((0.4, 1.0), (0.8, 1.0)))


def test_a_probability_of_nought_scores_nothing():
    scores = rmia_scores([0.0, 0.5], [0.0, 0.5], [0.2, 0.0], [0.4, 0.3], gamma=1.0)
    assert scores.tolist() == [0.5, 1.0]


# The attack on a target.


def asked(random, models, examples, population):
    """A target, its candidates and the population, and the answers of models trained like it."""
    halves = np.arange(models)[:, None] % 2 == np.zeros(examples)
    known = np.concatenate([random.random((1, examples)) < 0.5, random.permuted(halves, axis=0)])
    seen, there, included = world(random, 1 + models, examples, population, included=known)
    labels, there_labels = random.integers(0, 2, examples), random.integers(0, 2, population)

    def rows(own, y):
        return np.where(y[:, None] == [0, 1], own[..., None], 1 - own[..., None])

    x, z = rows(seen, labels), rows(there, there_labels)
    everything = np.concatenate([x[0], z[0]])
    target = Target.of_scores(lambda inputs: everything[inputs[:, 0].astype(int)])
    places = np.arange(float(examples + population))[:, None]
    people = Candidates(places[:examples], labels, included[0])
    others = places[examples:], there_labels
    return target, people, others, (x[1:], z[1:], included[1:]), (seen, there, included)


@pytest.mark.parametrize("online", [False, True])
def test_the_attack_is_the_scores_of_what_it_asks(online):
    target, people, others, (x, z, included), (seen, there, _) = asked(
        np.random.default_rng(5), 6, 400, 300
    )
    report = rmia_attack(
        target, people, x, included, population=others, population_answers=z, online=online,
        confidence=0.9,
    )  # fmt: skip
    a = tune_a(seen[1:], there[1:], included).a
    marginal = (
        online_marginal(seen[1:], included) if online else offline_marginal(seen[1:], a, included)
    )
    direct = rmia_scores(seen[0], marginal, there[0], offline_marginal(there[1:], a))
    assert report.scores == pytest.approx(direct)
    assert report.members.tolist() == people.members.tolist()
    assert report.auc > 0.7
    assert (report.queries, target.queries, report.confidence) == (700, 700, 0.9)
    assert report.attack == f"RMIA, {'online' if online else 'offline'}"
    assert len(report.calls) == 3  # of all, and of two classes


def test_the_attack_takes_an_a_and_one_model_is_enough_then():
    target, people, others, (x, z, included), (seen, there, _) = asked(
        np.random.default_rng(6), 1, 50, 40
    )
    included = np.zeros_like(included)
    report = rmia_attack(
        target, people, x, included, population=others, population_answers=z, a=0.3, gamma=1.0
    )
    direct = rmia_scores(
        seen[0], offline_marginal(seen[1:], 0.3), there[0], offline_marginal(there[1:], 0.3),
        gamma=1.0,
    )  # fmt: skip
    assert report.scores == pytest.approx(direct)
    with pytest.raises(ValueError, match="reference models must be two or more"):
        rmia_attack(target, people, x, included, population=others, population_answers=z)


def test_the_attack_refuses_before_it_asks():
    target, people, others, (x, z, included), _ = asked(np.random.default_rng(7), 3, 20, 10)
    known = {"population": others, "population_answers": z}
    with pytest.raises(NotSeen):
        rmia_attack(target.showing("labels"), people, x, included, **known)
    for wrong, message in (
        ({"shadow_answers": x[:, 1:]}, "shadow_answers must be answers about 20 examples"),
        ({"population_answers": z[:, 1:]}, "population_answers must be answers about 10"),
        ({"population": (others[0], others[1] + 1)}, "labels must be classes below 2"),
        ({"included": included[1:]}, "included must be"),
        ({"a": 1.5}, "a must be between"),
    ):
        given_ = {"shadow_answers": x, "included": included} | known | wrong
        with pytest.raises(ValueError, match=message):
            rmia_attack(target, people, **given_)
    assert target.queries == 0


def test_many_against_many_is_no_table():
    """300,000 against 300,000 would be a table of 720 GB."""
    random = np.random.default_rng(4)
    x, z = random.random((2, 300_000)), random.random((2, 300_000))
    scores = rmia_scores(x[0], x[1], z[0], z[1], gamma=1.0)
    assert scores.mean() == pytest.approx(0.5, abs=4 * math.sqrt(2 / 12 / 300_000))


def test_what_is_refused():
    good, marks = np.full((2, 3), 0.5), np.array([[True, False, True], [False, True, False]])
    for call, message in (
        (
            lambda: rmia_scores([0.5], [0.5, 0.5], [0.5], [0.5]),
            "probabilities and marginal must be",
        ),
        (lambda: rmia_scores([1.5], [0.5], [0.5], [0.5]), "probabilities must be numbers from"),
        (lambda: rmia_scores([0.5], [math.nan], [0.5], [0.5]), "marginal must be numbers from"),
        (lambda: rmia_scores([0.5], [0.5], [], []), "population_probabilities and"),
        (lambda: rmia_scores([0.5], [0.5], [0.5], [0.5], gamma=0.5), "gamma must be 1 or above"),
        (lambda: offline_marginal(good, 1.1), "a must be between 0 and 1"),
        (lambda: offline_marginal(good, -0.1), "a must be"),
        (lambda: offline_marginal(good[0], 0.5), "references must be of shape"),
        (lambda: offline_marginal(good, 0.5, marks[:1]), "included must be"),
        (lambda: offline_marginal(good, 0.5, marks * 2), "included must be"),
        (
            lambda: offline_marginal(good, 0.5, good > 0),
            "3 of 3 examples have no reference model w",
        ),
        (lambda: online_marginal(good, good < 0), "3 of 3 examples have no reference model with "),
        (lambda: tune_a(good[:1], good[:1], marks[:1]), "reference models must be two or more"),
        (lambda: tune_a(good, good, marks, paired=2), "paired must be one of 2 models"),
        (lambda: tune_a(good, good, good < 0), "included must be mixed"),
        (lambda: tune_a(good, good, marks * [[1], [0]], grid=[]), "grid must be one value"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
