"""Randomised response: exact coins, unbiased counts, errors that add up."""

import json
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from sfumato.core import SYSTEM, Neighbours, SeededCoins
from sfumato.core.events import RandomizedResponseEvent, event_from_dict
from sfumato.mechanisms.randomized_response import (
    CountEstimate,
    RandomizedResponse,
    keep_probability,
)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, 1e-20])
def test_bad_epsilon(epsilon) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        RandomizedResponse(epsilon)


@pytest.mark.parametrize("categories", [1, 0, -2, 2.5, math.inf, "2", 2**30])
def test_bad_categories(categories) -> None:
    with pytest.raises(ValueError, match="categories must be"):
        RandomizedResponse(1.0, categories)


def test_other_bad_parameters() -> None:
    for default in (-1, 3, "a", math.nan):
        with pytest.raises(ValueError, match="default must be"):
            RandomizedResponse(1.0, 3, default=default)
    with pytest.raises(ValueError, match="unit must be"):
        RandomizedResponse(1.0, unit="")
    for noise in (0, 1, -1, math.nan):
        with pytest.raises(ValueError, match="noise_parameter must be"):
            RandomizedResponse.from_noise_parameter(noise)
    survey = RandomizedResponse(1.0, 3)
    for n, frequency in ((0, 0.5), (10, -0.1), (10, 1.1), (10, math.nan)):
        with pytest.raises(ValueError, match="must be"):
            survey.standard_deviation(n, frequency)
    for reports in ([], [0.5], [0, 3], [-1]):
        with pytest.raises(ValueError, match="reports must be"):
            survey.estimate(reports)


@pytest.mark.parametrize(
    ("epsilon", "keep"), [(1, 0.231969), (2, 0.450853), (4, 0.858486), (8, 0.996990)]
)
def test_keep_probability_of_ten_categories(epsilon, keep) -> None:
    assert RandomizedResponse(epsilon, 10).keep == pytest.approx(keep, abs=5e-7)


@pytest.mark.parametrize("categories", [2, 3, 10, 2**20])
@pytest.mark.parametrize("epsilon", [2**-32, 1e-6, 0.1, 1.0, 7.3, 40.0, 100.0, 1e6, 1e300])
def test_privacy_is_exact(epsilon, categories) -> None:
    """ln(p / q) <= epsilon for the very fraction that is flipped, at 60 digits; hardly less."""
    p = keep_probability(epsilon, categories)
    q = (1 - p) / (categories - 1)
    assert 0 < q <= p < 1
    with mpmath.workdps(60):
        ratio = p / q
        loss = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert loss <= mpmath.mpf(epsilon)
        if epsilon <= 30:
            assert loss >= mpmath.mpf(epsilon) * (1 - 2**-10)
        if 1e-6 <= epsilon <= 7.3:
            assert loss >= mpmath.mpf(epsilon) * (1 - mpmath.mpf(10) ** -6)


def test_noise_parameter() -> None:
    assert RandomizedResponse.from_noise_parameter(0.5).epsilon == pytest.approx(math.log(3))
    survey = RandomizedResponse.from_noise_parameter(0.2, 5)
    assert survey.keep == pytest.approx(0.8 + 0.2 / 5)
    assert survey.switch == pytest.approx(0.2 / 5)


def test_event_guarantee_and_stamp() -> None:
    survey = RandomizedResponse(1.5, 4)
    event = survey.event
    assert event == RandomizedResponseEvent(1.5, 4, Neighbours.REPLACE_ONE, "person")
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert str(survey.guarantee(1e-6)) == "epsilon 1.5, delta 0, replace one person"
    report = survey.release(2, coins=SeededCoins(1))
    assert not report.private
    assert report.value == survey.release(2, coins=SeededCoins(1)).value
    assert "NOT PRIVATE" in report.to_dict()["warning"]
    assert survey.release(2, coins=SYSTEM).private
    assert type(report.value) is int


@pytest.mark.parametrize(("epsilon", "categories"), [(1.0, 2), (1.0, 10), (3.0, 4)])
def test_reports_follow_the_law(epsilon, categories) -> None:
    survey, n = RandomizedResponse(epsilon, categories), 200_000
    for true in (0, categories - 1):
        reports = survey.perturb(np.full(n, true), coins=SeededCoins(true))
        seen = np.bincount(reports, minlength=categories)
        for factor, fits in ((1.0, True), (0.9, False), (1.1, False)):
            e = math.exp(factor * epsilon)
            law = np.full(categories, 1 / (e + categories - 1))
            law[true] *= e
            assert (stats.chisquare(seen, n * law).pvalue > 1e-3) == fits


def test_answers_outside_the_domain_count_as_the_default() -> None:
    survey = RandomizedResponse(40.0, 3, default=2)  # so large that nobody lies
    odd = [0, 1, 2, 3, -1, 0.5, math.nan, math.inf, None, "1", [0], 10**400]
    expected = [0, 1] + [2] * 10
    assert survey.perturb(odd).tolist() == expected
    assert survey.perturb(np.array(odd, dtype=object)).tolist() == expected
    assert [survey.release(answer).value for answer in odd] == expected
    assert survey.perturb(np.array([[0, 9], [1, 2]])).tolist() == [[0, 2], [1, 2]]
    assert survey.perturb([]).shape == (0,)
    assert survey.perturb(np.array([True, False])).tolist() == [1, 0]


def test_draws_do_not_depend_on_the_answers() -> None:
    """With the same coins, equal answers give equal reports wherever other answers differ."""
    survey = RandomizedResponse(1.0, 7)
    one = np.random.default_rng(1).integers(0, 7, 1000)
    other = one.copy()
    other[500] = (other[500] + 3) % 7
    reports = [survey.perturb(answers, coins=SeededCoins(5)) for answers in (one, other)]
    assert np.array_equal(np.delete(reports[0], 500), np.delete(reports[1], 500))


@pytest.mark.parametrize(
    ("epsilon", "categories", "frequency", "expected"),
    [(1.0, 2, 0.3, 95.95), (1.0, 10, 0.3, 224.2)],
)
def test_error_of_a_count(epsilon, categories, frequency, expected) -> None:
    """Against the closed form, and in simulation: a constant off by 10% fails."""
    survey, n, rounds = RandomizedResponse(epsilon, categories), 10_000, 1500
    e, k = math.exp(epsilon), categories
    closed = math.sqrt(n * (k - 2 + e) / (e - 1) ** 2 + n * frequency * (k - 2) / (e - 1))
    assert survey.standard_deviation(n, frequency) == pytest.approx(closed, rel=1e-9)
    assert closed == pytest.approx(expected, rel=5e-4)
    rest = np.arange(n) % (k - 1) + 1
    answers = np.where(np.arange(n) < frequency * n, 0, rest)
    coins = SeededCoins(2)
    estimates = [survey.estimate(survey.perturb(answers, coins=coins)) for _ in range(rounds)]
    counts = np.array([estimate.counts[0] for estimate in estimates])
    assert counts.std(ddof=1) == pytest.approx(expected, rel=3 * (2 * rounds) ** -0.5)
    assert counts.mean() == pytest.approx(frequency * n, abs=3 * closed / math.sqrt(rounds))
    inside = [low <= frequency * n <= high for (low, high), *_ in map(intervals, estimates)]
    assert np.mean(inside) == pytest.approx(0.9, abs=0.025)


def intervals(estimate: CountEstimate) -> tuple[tuple[float, float], ...]:
    return estimate.intervals(0.9)


def test_estimate_of_known_reports() -> None:
    survey = RandomizedResponse.from_noise_parameter(0.5)  # p = 3/4, q = 1/4
    estimate = survey.estimate(np.array([1] * 60 + [0] * 40))
    assert estimate.counts == pytest.approx((30, 70))
    assert estimate.frequencies == pytest.approx((0.3, 0.7))
    assert sum(estimate.counts) == pytest.approx(100)
    assert estimate.standard_errors == pytest.approx([math.sqrt(100 * 3 / 16) / 0.5] * 2)
    low, high = estimate.intervals(0.95)[1]
    assert (low, high) == pytest.approx((70 - 1.96 * 8.66, 70 + 1.96 * 8.66), abs=0.01)
    with pytest.raises(ValueError, match="confidence must be"):
        estimate.intervals(1.0)


def test_a_million_answers() -> None:
    survey = RandomizedResponse(1.0, 10)
    answers = np.tile(np.arange(10), 100_000)
    estimate = survey.estimate(survey.perturb(answers))
    assert max(abs(count - 100_000) for count in estimate.counts) < 6 * max(
        estimate.standard_errors
    )


def test_exact_keep_is_what_is_flipped() -> None:
    exact = RandomizedResponse(1.0, 10).exact_keep
    assert isinstance(exact, Fraction)
    assert 2**64 % exact.denominator == 0
