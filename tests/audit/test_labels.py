"""Released labels: their law, the law of many, and what both show about epsilon."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from sfumato.audit.exact import exact_epsilon
from sfumato.audit.labels import (
    Check,
    audit_label_law,
    audit_scored_games,
    label_law,
    label_score,
    log_ratios,
    moved_worst,
    scores_by_law,
)
from sfumato.audit.repeated import audit_games
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours


@pytest.mark.parametrize("sigma", [0.7, 10.0, 300.0])
@pytest.mark.parametrize("lead", [0, 2, 31])
def test_two_classes_by_the_normal_law(sigma, lead):
    found = label_law(np.array([[100 + lead, 100]]), "gaussian", sigma)
    wanted = norm.cdf(lead / (sigma * math.sqrt(2)))
    assert found[0] == pytest.approx([wanted, norm.cdf(-lead / (sigma * math.sqrt(2))), 0.0])


def test_two_classes_by_laplace():
    """Lap(1/g) - Lap(1/g) exceeds a lead l with probability e^(-g l) (2 + g l) / 4."""
    found = label_law(np.array([[250, 0], [3, 1]]), "laplace", 20.0)
    for row, lead in zip(found, (250, 2), strict=True):
        gap = lead / 20
        assert row[1] == pytest.approx(math.exp(-gap) * (2 + gap) / 4, rel=1e-9)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_ten_classes_as_they_are_drawn(noise):
    random = np.random.default_rng(3)
    votes = np.array([30, 22, 22, 10, 5, 5, 3, 2, 1, 0])
    draws = random.standard_normal if noise == "gaussian" else random.laplace
    drawn = (votes + 8.0 * draws(size=(200_000, 10))).argmax(axis=1)
    law = label_law(votes[None, :], noise, 8.0)[0]
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    error = 6 * np.sqrt(law[:10] / 200_000) + 1e-5
    assert (np.abs(np.bincount(drawn, minlength=10) / 200_000 - law[:10]) < error).all()


def test_a_check_comes_first():
    votes = np.array([[60, 40], [50, 50]])
    found = label_law(votes, "gaussian", 10.0, Check(55.0, 20.0))
    passes = norm.cdf([(60 - 55) / 20, (50 - 55) / 20])
    assert found[:, 2] == pytest.approx(1 - passes)
    assert found[:, :2].sum(axis=1) == pytest.approx(passes)
    compared = label_law(votes, "gaussian", 10.0, Check(5.0, 20.0, np.array([55.0, 45.0])))
    assert compared[:, 2] == pytest.approx(1 - norm.cdf([(5 - 5) / 20, (5 - 5) / 20]))


def pair(questions, sigma):
    """A tie, turned by one vote, in every question."""
    return [
        label_law(np.tile(row, (questions, 1)), "gaussian", sigma)
        for row in ([125, 124], [124, 125])
    ]


@pytest.mark.parametrize(("questions", "sigma"), [(1, 0.8), (20, 40.0), (250, 40.0)])
def test_many_labels_are_a_binomial_law(questions, sigma):
    """Rounded down by 0.01 at most, and never above what holds."""
    won = norm.cdf(1 / (sigma * math.sqrt(2)))
    count = np.arange(questions + 1)
    laws = binom.pmf(count, questions, won), binom.pmf(count, questions, 1 - won)
    exact = exact_epsilon(*laws, 1e-5, accuracy=1e-9)
    found = audit_label_law(*pair(questions, sigma), delta=1e-5)
    assert exact - 0.011 < found.epsilon <= exact + 1e-6
    assert found.facts["questions"] == questions


def test_near_ties_come_close_to_the_claim():
    """A tenth more or less noise would show: 250 labels show 77 % of what noisy counts cost."""
    claim = Guarantee(gaussian_epsilon(40 / math.sqrt(500), 1e-5), 1e-5, Neighbours.ADD_REMOVE)
    found = audit_label_law(*pair(250, 40.0), claim=claim)
    assert found.epsilon / claim.epsilon == pytest.approx(0.77, abs=0.02)
    assert not found.refuted
    assert audit_label_law(*pair(250, 28.0), claim=claim).refuted


def test_pure_epsilon_of_one_answer():
    """Laplace noise of scale 1 and a vote moved to a class far behind: nearly 2, not 1."""
    laws = [label_law(np.array([row]), "laplace", 1.0) for row in ([140, 110], [139, 111])]
    found = audit_label_law(*laws, delta=0.0)
    assert 1.85 < found.epsilon < 2
    assert found.confidence == 1


def test_the_same_votes_show_nothing():
    same = label_law(np.tile([7, 3], (5, 1)), "gaussian", 2.0)
    assert audit_label_law(same, same, delta=0.0).epsilon == 0


def test_the_score_is_the_log_ratio_of_what_was_said():
    p, q = np.array([[0.5, 0.3, 0.2]] * 3), np.array([[0.25, 0.55, 0.2]] * 3)
    ratios = log_ratios(p, q)
    wanted = math.log(2) + math.log(0.3 / 0.55)
    assert label_score([0, None, 1], ratios) == pytest.approx(wanted)
    assert label_score([0], ratios) == pytest.approx(math.log(2))
    assert log_ratios([[0.0, 1.0]], [[0.0, 1.0]]).tolist() == [[0.0, 0.0]]


def test_the_move_that_tells_most_is_found():
    votes = np.array([[50, 48, 2], [90, 10, 0], [100, 0, 0]])
    given, moved = moved_worst(votes, lambda table: label_law(table, "gaussian", 5.0))
    assert (given == votes).all()
    assert (np.abs(moved - given).sum(axis=1) == 2).all()
    assert (moved.min(axis=1) >= 0).all()
    assert moved[0, 2] == 2  # between the two that are nearly tied
    assert moved[2].tolist() in ([99, 1, 0], [99, 0, 1])


def test_scores_by_law_are_those_of_released_labels():
    p, q = np.array([[0.2, 0.1, 0.7]] * 4), np.array([[0.1, 0.2, 0.7]] * 4)
    ratios = log_ratios(p, q)
    found = scores_by_law(p, ratios, answers=1)
    step = math.log(2)
    shares = [np.isclose(found, value).mean() for value in (step, -step, 0.0)]
    none = 0.7**4
    assert shares == pytest.approx([(1 - none) * 2 / 3, (1 - none) / 3, none], abs=0.015)
    assert scores_by_law(p, ratios, answers=4).mean() == pytest.approx(4 * 0.1 * step, abs=0.02)


@pytest.mark.parametrize("flipped", [False, True])
def test_games_show_epsilon_and_no_more(flipped):
    """Randomised response at ln 9, and a rare outcome that tells more, on either side."""
    random = np.random.default_rng(2)
    claim = Guarantee(math.log(9), 0.0, Neighbours.ADD_REMOVE)
    inside, outside = (random.random(4000) < rate for rate in (0.9, 0.1))
    found = audit_scored_games(inside, outside, claim=claim, confidence=0.99)
    assert 0.85 * claim.epsilon < found.epsilon < claim.epsilon
    rare, never = random.random(4000) < 0.05, np.zeros(4000)
    sides = (-never, -rare.astype(float)) if flipped else (rare, never)
    found = audit_scored_games(*sides, claim=claim, confidence=0.99)
    assert found.epsilon > 1.5
    assert found.facts["event"].startswith("a score below" if flipped else "a score above")
    assert "mu_at_least" not in found.facts


def test_labels_that_are_no_gaussian_show_no_more_than_their_law():
    """A bound that takes them for Gaussian would be far above what is true of them."""
    p, q = ([[0.55, 0.45, 0.0]], [[0.45, 0.55, 0.0]])
    exact = audit_label_law(p, q, delta=1e-5).epsilon
    claim = Guarantee(exact, 1e-5, Neighbours.ADD_REMOVE)
    random = np.random.default_rng(3)
    inside, outside = (random.random(20_000) < rate for rate in (0.55, 0.45))
    found = audit_scored_games(inside, outside, claim=claim, confidence=0.99)
    assert 0 < found.epsilon <= exact
    assert not found.refuted
    wrong = audit_games(inside, outside, claim=claim, threshold=0.5, analysis="gaussian")
    assert wrong.epsilon > 2 * exact
    assert "if the noise is Gaussian" in str(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: label_law([[1, 2]], "uniform", 1.0), "noise must be"),
        (lambda: label_law([[1, 2]], "gaussian", 0.0), "scale must be"),
        (lambda: audit_label_law([[0.5, 0.5]], [[0.5, 0.2]], delta=0.1), "q must be a row"),
        (lambda: audit_label_law([[0.5, 0.5]], [[1.0]], delta=0.1), "q must be probabilities"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
