"""The exponential mechanism, its printed specimen, and questions that are not about numbers."""

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from sfumato.core import Neighbours, SeededCoins, Sensitivity
from sfumato.core.events import ExponentialEvent
from sfumato.mechanisms.exponential import Exponential, printed_privacy_loss
from sfumato.mechanisms.selection import privacy_loss

VOTE = Sensitivity(1.0, unit="person")
HARD_PAIR = [0] + [1] * 999, [1] + [0] * 999


def test_the_printed_formula_loses_twice_what_it_claims() -> None:
    assert printed_privacy_loss(*HARD_PAIR, epsilon=1.0, sensitivity=1.0) == pytest.approx(
        1.9977, abs=5e-5
    )


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0])
def test_ours_keeps_its_claim_on_the_same_pair(epsilon) -> None:
    laws = [Exponential(epsilon, VOTE).probabilities(scores) for scores in HARD_PAIR]
    assert 0.97 * epsilon < privacy_loss(*laws) <= epsilon


def test_dropping_the_two_needs_monotone_scores() -> None:
    """The monotone version on scores that are not monotone would lose twice its epsilon."""
    laws = [Exponential(1.0, VOTE, monotone=True).probabilities(scores) for scores in HARD_PAIR]
    assert privacy_loss(*laws) == pytest.approx(1.9977, abs=5e-5)


@pytest.mark.parametrize("argument", ["epsilon", "sensitivity"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "1"])
def test_specimen_with_bad_parameters(argument, value) -> None:
    with pytest.raises(ValueError, match=f"{argument} must be"):
        printed_privacy_loss([0, 1], [1, 0], **{"epsilon": 1, "sensitivity": 1, argument: value})


def test_probabilities_are_the_formula() -> None:
    law = Exponential(0.9, Sensitivity(2.0)).probabilities([7, 1.5, -3])
    weights = [math.exp(0.9 * score / 4) for score in (7, 1.5, -3)]
    assert np.allclose(law, np.array(weights) / sum(weights), rtol=1e-5)


def test_draws_follow_the_probabilities() -> None:
    """Log weights 0, -1, -3: the last one's share would be 0.027 or 0.051 at a 10% error."""
    mechanism = Exponential(1.0, Sensitivity(0.5))
    scores, coins, draws = [3.0, 2.0, 0.0], SeededCoins(11), 6000
    seen = Counter(mechanism.release(scores, coins=coins).value for _ in range(draws))
    weights = np.exp([0, -1, -3])
    expected = draws * weights / weights.sum()
    assert stats.chisquare([seen[i] for i in range(3)], expected).pvalue > 0.01
    for wrong in (0.9, 1.1):
        weights = np.exp([0, -wrong, -3 * wrong])
        expected = draws * weights / weights.sum()
        assert stats.chisquare([seen[i] for i in range(3)], expected).pvalue < 1e-3


def test_event_has_bounded_range() -> None:
    sensitivity = Sensitivity(1.0, neighbours=Neighbours.REPLACE_ONE, unit="user")
    event = Exponential(0.25, sensitivity).event
    assert event == ExponentialEvent(0.25, Neighbours.REPLACE_ONE, "user")
    # And it is: over all outputs the loss spans no more than epsilon.
    rng = np.random.default_rng(2)
    for monotone in (False, True):
        mechanism = Exponential(0.25, VOTE, monotone=monotone)
        for _ in range(50):
            scores = rng.normal(scale=3, size=10)
            moved = scores + rng.uniform(0 if monotone else -1, 1, 10)
            loss = np.log(mechanism.probabilities(scores)) - np.log(mechanism.probabilities(moved))
            assert np.ptp(loss) <= 0.25


def test_theorem_3_11() -> None:
    """Pr[score <= OPT - (2 Delta / eps)(ln |R| + t)] <= e^-t."""
    mechanism = Exponential(0.5, Sensitivity(3.0))
    t = 2.0
    gap = mechanism.score_gap(50, confidence=1 - math.exp(-t))
    assert gap == pytest.approx(2 * 3.0 / 0.5 * (math.log(50) + t), rel=1e-5)
    rng = np.random.default_rng(3)
    for spread in (1, 10, 100):
        scores = rng.normal(scale=spread, size=50)
        law = mechanism.probabilities(scores)
        assert law[scores <= scores.max() - gap].sum() <= math.exp(-t)
        assert mechanism.expected_error(scores) == pytest.approx(
            float(law @ (scores.max() - scores)), rel=1e-9
        )


def test_most_popular_film() -> None:
    """One vote each: adding a person raises one count, so counts are monotone."""
    films = ["Alien", "Brazil", "Casablanca", "Diva"]
    people = ["Brazil"] * 70 + ["Alien"] * 20 + ["Casablanca"] * 5 + ["my neighbour's home video"]
    winner = Exponential(1.0, VOTE, monotone=True).release(Counter(people), films)
    assert winner.value == "Brazil"
    assert str(winner.guarantee) == "epsilon 1, delta 0, add or remove one person"


def test_best_meeting_date() -> None:
    """A person may be free on many dates: one score each still moves by at most 1, all upwards."""
    dates = ["Monday", "Tuesday", "Wednesday"]
    free = [{"Monday", "Wednesday"}] * 40 + [{"Wednesday"}] * 30 + [{"Tuesday"}] * 10
    attendance = {date: sum(date in calendar for calendar in free) for date in dates}
    assert attendance == {"Monday": 40, "Tuesday": 10, "Wednesday": 70}
    mechanism = Exponential(1.0, VOTE, monotone=True)
    assert mechanism.release(attendance, dates).value == "Wednesday"
    # The worst person to add or remove is free on all dates but one.
    everyone_but = {date: count + (date != "Tuesday") for date, count in attendance.items()}
    laws = [mechanism.probabilities(list(counts.values())) for counts in (attendance, everyone_but)]
    assert 0.95 < privacy_loss(*laws) <= 1
