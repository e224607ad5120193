"""Laplace noise: pure DP at the seed documents' numbers, never rounded down."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core import Norm, SeededCoins, Sensitivity
from sfumato.core.events import LaplaceEvent
from sfumato.mechanisms.laplace import Laplace


def test_noise_of_standard_deviation_two_is_epsilon_0_7071():
    """The noisy count of bad credit ratings: N = 3 plus Laplace noise of standard deviation 2."""
    noisy = Laplace(2 / math.sqrt(2), Sensitivity(1.0))
    assert noisy.standard_deviation == pytest.approx(2)
    assert noisy.scale == pytest.approx(math.sqrt(2))
    assert noisy.guarantee().epsilon == pytest.approx(1 / math.sqrt(2), rel=1e-14)
    answers = noisy.perturb(np.full(5, 3.0), coins=SeededCoins(0))
    assert np.all(np.abs(answers - 3) < 20)


@pytest.mark.parametrize(("bound", "epsilon"), [(1.0, 0.1), (7.0, 0.5), (200e3, 2.0)])
def test_variance_and_expected_error(bound, epsilon):
    noisy = Laplace.calibrate(Sensitivity(bound), epsilon=epsilon)
    assert noisy.standard_deviation**2 == pytest.approx(2 * (bound / epsilon) ** 2)
    assert noisy.expected_error == pytest.approx(bound / epsilon)


def test_lecture_examples():
    # Four salaries capped at 50K come and go together.
    salary = Sensitivity(50e3).for_group(4, unit="group of four")
    assert Laplace.calibrate(salary, epsilon=1.0).scale == 200e3
    # The mean of n numbers in [0, 1], one of them replaced.
    n, epsilon = 1000, 0.1
    mean = Sensitivity(1 / n, neighbours="replace-one")
    assert Laplace.calibrate(mean, epsilon=epsilon).scale == pytest.approx(1 / (epsilon * n))
    # Noise Lap(k / epsilon) for a group of k people.
    group = Laplace.calibrate(Sensitivity(1.0).for_group(5), epsilon=1.0)
    assert group.scale == 5
    assert "group of 5 records" in str(group.guarantee())


@given(st.floats(1e-50, 1e50), st.floats(1e-50, 1e50))
def test_calibration_never_exceeds_its_target(bound, epsilon):
    noisy = Laplace.calibrate(Sensitivity(bound), epsilon=epsilon)
    assert Fraction(bound) <= Fraction(epsilon) * Fraction(noisy.scale)
    assert noisy.guarantee().epsilon <= epsilon
    assert 1 / noisy.event.noise_multiplier <= epsilon
    assert Fraction(1) <= Fraction(epsilon) * Fraction(noisy.event.noise_multiplier)
    # And is the least, up to the last digits.
    assert noisy.scale <= bound / epsilon * (1 + 1e-15)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0, 0.999))
def test_the_stated_epsilon_is_not_below_the_true_one(scale, bound, delta):
    stated = Fraction(Laplace(scale, Sensitivity(bound)).guarantee(delta).epsilon)
    pure = Fraction(bound) / Fraction(scale)
    if delta == 0:
        assert stated >= pure
    else:
        # delta(epsilon) = 1 - e^((epsilon - pure) / 2), from below with a little slack for exp.
        true_delta = -math.expm1(float((stated - pure) / 2))
        assert true_delta <= delta * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1, 0.3])
@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_the_curve_agrees_with_dp_accounting(scale, delta):
    from dp_accounting.pld import privacy_loss_distribution as pld

    oracle = pld.from_laplace_mechanism(scale, sensitivity=2, value_discretization_interval=1e-4)
    mine = Laplace(scale, Sensitivity(2.0)).guarantee(delta).epsilon
    assert mine == pytest.approx(oracle.get_epsilon_for_delta(delta), abs=2e-4)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_moving_one_coordinate_is_the_worst_case(share):
    """In two dimensions, sharing the same L1 distance between both never gives a larger delta."""
    x, step = np.linspace(-15, 15, 1501, retstep=True)
    density = lambda z: np.exp(-np.abs(z)) / 2  # noqa: E731
    here = np.outer(density(x), density(x))
    there = np.outer(density(x - share), density(x - (1 - share)))
    noisy = Laplace(1.0, Sensitivity(1.0, dimension=2))
    for epsilon in (0.0, 0.2, 0.5, 0.9):
        delta = np.maximum(here - math.exp(epsilon) * there, 0).sum() * step**2
        assert delta <= -math.expm1((epsilon - 1) / 2) + 1e-4
        if 0 < delta < 1:
            assert noisy.guarantee(float(delta)).epsilon >= epsilon - 1e-3


def test_the_guarantee_is_floored_at_zero():
    assert Laplace(10.0, Sensitivity(1.0)).guarantee(0.5).epsilon == 0.0
    assert Laplace(10.0, Sensitivity(1.0)).guarantee(0.0).epsilon == 0.1


def test_the_event_is_relative_to_the_sensitivity():
    sensitivity = Sensitivity(3.0, Norm.L1, "replace-one", "person", dimension=4)
    assert Laplace(6.0, sensitivity).event == LaplaceEvent(2.0, "replace-one", "person")


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.95, 0.999999])
def test_half_width_is_the_quantile_plus_half_a_grid_step(confidence):
    noisy = Laplace(2.0, Sensitivity(1.0, dimension=3), grid=0.125)
    assert 1 - math.exp(-(noisy.half_width(confidence) - 0.0625) / 2) == pytest.approx(confidence)
    together = noisy.half_width(confidence, simultaneous=True)
    assert (1 - math.exp(-(together - 0.0625) / 2)) ** 3 == pytest.approx(confidence)
