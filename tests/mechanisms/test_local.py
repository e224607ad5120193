"""Laplace noise at the source, and what it costs against a trusted curator."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core import SYSTEM, Neighbours, SeededCoins
from sfumato.core.events import LaplaceEvent, event_from_dict
from sfumato.mechanisms.local import LocalLaplace, error_comparison


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None])
def test_bad_epsilon(epsilon) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        LocalLaplace(epsilon, 0, 1)
    with pytest.raises(ValueError, match="epsilon must be"):
        error_comparison(10, epsilon)


def test_other_bad_parameters() -> None:
    for lower, upper in ((1, 1), (2, 1), (0, math.inf), (math.nan, 1), ("0", 1), (-1e308, 1e308)):
        with pytest.raises(ValueError, match="range"):
            LocalLaplace(1.0, lower, upper)
    for default in (-1, 2, math.nan, "x"):
        with pytest.raises(ValueError, match="default must be"):
            LocalLaplace(1.0, 0, 1, default=default)
    with pytest.raises(ValueError, match="unit must be"):
        LocalLaplace(1.0, 0, 1, unit=" ")
    for bad in ({"n": 0}, {"categories": 1}, {"frequency": 2}):
        with pytest.raises(ValueError, match="must be"):
            error_comparison(**({"n": 10, "epsilon": 1.0} | bad))


def test_errors_of_ten_thousand_people() -> None:
    errors = error_comparison(n=10_000, epsilon=1.0, categories=10, frequency=0.3)
    assert errors.central == pytest.approx(1.414, abs=5e-4)
    assert errors.local_laplace == pytest.approx(141.4, abs=0.05)
    assert errors.randomized_response == pytest.approx(95.95, abs=5e-3)
    assert errors.categorical_response == pytest.approx(224.2, abs=0.05)


def test_formulas() -> None:
    n, epsilon, k, f = 700, 0.4, 5, 0.15
    e = math.exp(epsilon)
    errors = error_comparison(n, epsilon, k, f)
    assert errors.central == pytest.approx(math.sqrt(2) / epsilon)
    assert errors.local_laplace == pytest.approx(math.sqrt(2 * n) / epsilon)
    assert errors.randomized_response == pytest.approx(math.sqrt(n * e) / (e - 1))
    assert errors.categorical_response == pytest.approx(
        math.sqrt(n * (k - 2 + e) / (e - 1) ** 2 + n * f * (k - 2) / (e - 1))
    )


def test_simulated_sum() -> None:
    """A noise scale off by 10% fails."""
    phone, n, rounds = LocalLaplace(1.0, 0.0, 1.0), 2_000, 1_500
    bits = (np.arange(n) % 2).astype(float)
    coins = SeededCoins(9)
    sums = np.array([phone.perturb(bits, coins=coins).sum() for _ in range(rounds)])
    expected = math.sqrt(2 * n)
    assert phone.sum_standard_deviation(n) == expected
    assert sums.std(ddof=1) == pytest.approx(expected, rel=3 * (2 * rounds) ** -0.5)
    assert sums.mean() == pytest.approx(n / 2, abs=3 * expected / math.sqrt(rounds))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_privacy_between_the_ends_of_the_range(epsilon) -> None:
    """Pr[report < lower] is 1/2 at lower and e^-epsilon / 2 at upper: the whole budget."""
    phone, n = LocalLaplace(epsilon, -3.0, 21.0), 100_000
    below = [(phone.perturb(np.full(n, end), coins=SeededCoins(4)) < -3).mean() for end in (-3, 21)]
    assert math.log(below[0] / below[1]) == pytest.approx(epsilon, rel=0.06)


def test_a_use_and_a_person() -> None:
    """Lap(1 / epsilon) on a count up to 24 protects one use; a person needs the range."""
    person, use = LocalLaplace(1.0, 0, 24), LocalLaplace(24.0, 0, 24)
    assert person.scale == 24.0
    assert use.scale == pytest.approx(1.0)
    assert use.guarantee().epsilon == pytest.approx(
        24.0
    )  # what the noise of one use leaves to a person


def test_scale_is_never_rounded_down() -> None:
    for epsilon, lower, upper in (
        (0.1, 0.0, 0.3),
        (3.0, -0.1, 0.7),
        (0.7, 1e-17, 1.0),
        (1.0, -1e-17, 1.0),
    ):
        phone = LocalLaplace(epsilon, lower, upper)
        exact = (Fraction(upper) - Fraction(lower)) / Fraction(epsilon)
        assert Fraction(phone.scale) >= exact
        assert phone.scale == pytest.approx((upper - lower) / epsilon, rel=1e-14)
        assert phone.guarantee().epsilon <= epsilon


def test_values_are_clamped_and_odd_ones_count_as_the_default() -> None:
    phone = LocalLaplace(1e6, 0.0, 24.0, default=7.0)  # hardly any noise
    odd = [3, -5, 1000, math.nan, math.inf, -math.inf, None, "12", [1], 10**400]
    expected = [3, 0, 24, 7, 7, 7, 7, 7, 7, 7]
    assert np.allclose(phone.perturb(odd), expected, atol=0.01)
    assert np.allclose([phone.release(value).value for value in odd], expected, atol=0.01)
    assert np.allclose(LocalLaplace(1e6, 5, 6).perturb([math.nan]), 5, atol=0.01)
    assert phone.perturb(np.zeros((3, 2))).shape == (3, 2)


def test_release_event_and_stamp() -> None:
    phone = LocalLaplace(0.5, 0.0, 24.0)
    assert phone.event == LaplaceEvent(2.0, Neighbours.REPLACE_ONE, "person")
    assert event_from_dict(json.loads(json.dumps(phone.event.to_dict()))) == phone.event
    assert str(phone.guarantee()) == "epsilon 0.5, delta 0, replace one person"
    report = phone.release(3, confidence=0.9, coins=SeededCoins(1))
    assert not report.private
    assert "NOT PRIVATE" in report.to_dict()["warning"]
    assert report.value == phone.release(3, coins=SeededCoins(1)).value
    assert report.half_width == pytest.approx(48 * math.log(10), rel=1e-5)
    assert phone.release(3, coins=SYSTEM).private
