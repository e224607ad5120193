"""Discrete Laplace noise: its own law, exact in every number it states."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core import Neighbours, Norm, SeededCoins, Sensitivity
from sfumato.core.events import DiscreteLaplaceEvent, EpsilonDeltaEvent
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace, noisy_count

SCALES = [0.05, 0.3, 1.0, 2.5, 40.0]
SEVERAL = Sensitivity(2.0, dimension=5)


def law(scale, reach=4000):
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-np.abs(k) / scale)
    return k, weights / weights.sum()


def hockey_stick(scale, shift, epsilon):
    """The delta of an integer that moves by ``shift``, summed over outcomes."""
    _, p = law(scale)
    return np.maximum(p[shift:] - math.exp(epsilon) * p[:-shift], 0).sum()


@pytest.mark.parametrize("scale", SCALES)
def test_moments(scale):
    k, p = law(scale)
    noisy = DiscreteLaplace(scale, Sensitivity(1))
    assert noisy.standard_deviation**2 == pytest.approx((k**2 * p).sum(), rel=1e-10)
    assert noisy.expected_error == pytest.approx((np.abs(k) * p).sum(), rel=1e-10)
    p_one = math.exp(-1 / scale)
    assert noisy.standard_deviation**2 == pytest.approx(2 * p_one / (1 - p_one) ** 2)


def test_moments_of_extreme_scales():
    wide = DiscreteLaplace(1e12, Sensitivity(1))
    assert wide.standard_deviation == pytest.approx(math.sqrt(2) * 1e12)
    assert wide.expected_error == pytest.approx(1e12)
    assert wide.half_width(0.95) == pytest.approx(1e12 * math.log(20))
    none = DiscreteLaplace(1e-3, Sensitivity(1))
    assert none.standard_deviation < 1e-200
    assert none.half_width(0.999) == 0


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.9, 0.95, 0.999999])
def test_half_width_is_the_exact_quantile(scale, confidence):
    k, p = law(scale)
    half_width = DiscreteLaplace(scale, Sensitivity(1)).half_width(confidence)
    assert half_width == int(half_width)
    within = p[np.abs(k) <= half_width].sum()
    assert within >= confidence - 1e-12
    assert half_width == 0 or p[np.abs(k) <= half_width - 1].sum() < confidence + 1e-12


@given(st.integers(1, 10**9), st.floats(1e-4, 1e4))
def test_calibration_never_exceeds_its_target(shift, epsilon):
    noisy = DiscreteLaplace.calibrate(Sensitivity(shift), epsilon=epsilon)
    assert Fraction(shift) <= Fraction(epsilon) * Fraction(noisy.scale)
    assert noisy.guarantee().epsilon <= epsilon
    assert noisy.event.sensitivity / noisy.event.scale <= epsilon
    assert noisy.scale <= shift / epsilon * (1 + 1e-15)


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5, 40.0])
@pytest.mark.parametrize("shift", [1, 2, 3, 10])
def test_the_curve_by_summing_over_outcomes(scale, shift):
    noisy = DiscreteLaplace(scale, Sensitivity(shift))
    for delta in (1e-9, 1e-3, 0.05, 0.2, 0.5, 0.9):
        epsilon = noisy.guarantee(delta).epsilon
        assert hockey_stick(scale, shift, epsilon) <= delta + 1e-12
        if epsilon > 1e-9:
            assert hockey_stick(scale, shift, epsilon - 1e-9 * max(1, epsilon)) >= delta - 1e-12


@pytest.mark.parametrize("scale", [0.8, 3.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-2, 0.2])
def test_the_curve_agrees_with_dp_accounting(scale, delta):
    from dp_accounting.pld import privacy_loss_distribution as pld

    oracle = pld.from_discrete_laplace_mechanism(
        1 / scale, sensitivity=3, value_discretization_interval=1e-4
    )
    mine = DiscreteLaplace(scale, Sensitivity(3)).guarantee(delta).epsilon
    assert mine == pytest.approx(oracle.get_epsilon_for_delta(delta), abs=2e-4)


@given(st.integers(1, 10**15), st.floats(1e-3, 1e3), st.floats(0, 0.9999))
def test_the_curve_at_any_size(shift, epsilon, delta):
    noisy = DiscreteLaplace(min(shift / epsilon, 2.0**50), Sensitivity(shift))
    pure = noisy.guarantee().epsilon
    assert 0 <= noisy.guarantee(delta).epsilon <= pure
    assert noisy.guarantee(delta).epsilon >= pure + 2 * math.log1p(-delta) - 2 / noisy.scale - 1e-9


def test_events():
    assert DiscreteLaplace(3.0, Sensitivity(2, unit="person")).event == DiscreteLaplaceEvent(
        3.0, 2, unit="person"
    )
    assert DiscreteLaplace(4.0, SEVERAL).event == EpsilonDeltaEvent(0.5)
    histogram = DiscreteLaplace(3.0, SEVERAL, one_coordinate=True)
    assert histogram.event == DiscreteLaplaceEvent(3.0, 2)


def test_several_coordinates_are_promised_the_pure_epsilon_at_every_delta():
    several = DiscreteLaplace(3.0, SEVERAL)
    assert several.guarantee(0.1).epsilon == several.guarantee().epsilon
    histogram = DiscreteLaplace(3.0, SEVERAL, one_coordinate=True)
    assert histogram.guarantee(0.1).epsilon < several.guarantee(0.1).epsilon


def test_one_coordinate_is_refused_where_a_record_moves_two():
    with pytest.raises(ValueError, match="one_coordinate must be False under replace-one"):
        DiscreteLaplace.calibrate(SEVERAL.under("replace-one"), epsilon=1.0, one_coordinate=True)
    DiscreteLaplace.calibrate(SEVERAL.under("zero-out"), epsilon=1.0, one_coordinate=True)


@pytest.mark.parametrize("bound", [0.5, 1.5, math.pi])
def test_the_sensitivity_must_be_whole(bound):
    with pytest.raises(ValueError, match="sensitivity must be a whole number"):
        DiscreteLaplace.calibrate(Sensitivity(bound), epsilon=1.0)


def test_the_sampler_has_this_law():
    noisy = DiscreteLaplace(1.5, Sensitivity(1))
    draws = noisy.perturb(np.zeros(200_000, dtype=int), coins=SeededCoins(31))
    k, p = law(1.5)
    for value in range(-4, 5):
        expected = p[k == value][0]
        assert np.mean(draws == value) == pytest.approx(
            expected, abs=4 * math.sqrt(expected / draws.size)
        )


def test_values_at_the_ends_of_64_bits_saturate():
    noisy = DiscreteLaplace(5.0, Sensitivity(1))
    top = noisy.perturb(np.full(100, 2**63 - 1), coins=SeededCoins(1))
    assert top.min() > 2**63 - 1000
    assert (top == 2**63 - 1).sum() > 40
    assert noisy.release(-1e300, coins=SeededCoins(1)).value < -(2**63) + 1000


@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_noisy_count_under_every_relation(neighbours):
    release = noisy_count(1204, 0.1, neighbours=neighbours, unit="person", coins=SeededCoins(3))
    assert isinstance(release.value, int)
    assert release.guarantee.neighbours is neighbours
    assert release.guarantee.unit == "person"
    assert release.guarantee.epsilon == 0.1
    assert release.guarantee.delta == 0
    assert release.event == DiscreteLaplaceEvent(10.0, 1, neighbours, "person")
    assert release.half_width == 30
    assert abs(release.value - 1204) < 200


def test_noisy_counts_do_not_fail_on_what_is_no_count():
    for count in (math.nan, None, "many", 1e400, -5, 3.7):
        assert isinstance(noisy_count(count, 1.0, coins=SeededCoins(1)).value, int)
    with pytest.raises(ValueError, match="count must be one number, got '2 of them'"):
        noisy_count([3, 4], 1.0)
    wide = Sensitivity(1.0, Norm.L1)
    assert (
        noisy_count(3.7, 1.0, coins=SeededCoins(1)).value
        == DiscreteLaplace.calibrate(wide, epsilon=1.0).release(4, coins=SeededCoins(1)).value
    )


@pytest.mark.parametrize("count", [2**63 - 1, 2**63, -(2**70), 10**30, 2.0**80, 5])
def test_a_noisy_count_of_any_size_is_the_count_and_its_noise(count):
    """Not clamped to 64 bits: neighbours on both sides of the edge have the same noise."""
    for at in (count, int(count) + 1):
        found = noisy_count(at, 0.5, coins=SeededCoins(7)).value
        assert found - int(at) == noisy_count(0, 0.5, coins=SeededCoins(7)).value
