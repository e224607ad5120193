"""Discrete Gaussian noise: the exact curve of its own law, the least sigma, zCDP in many
dimensions."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sfumato.core import Norm, SeededCoins, Sensitivity
from sfumato.core.events import DiscreteGaussianEvent, ZcdpEvent
from sfumato.mechanisms import discrete_gaussian_law as law
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.gaussian import Gaussian

ONE = Sensitivity(1.0, Norm.L2)
SEVERAL = Sensitivity(3.0, Norm.L2, dimension=9)


def true_log_delta(sigma, shift, epsilon):
    """The hockey-stick divergence, outcome by outcome, with 60 digits."""
    with mpmath.workdps(60):
        s, e = mpmath.mpf(sigma), mpmath.mpf(epsilon)
        weight = lambda k: mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * s * s))  # noqa: E731
        reach = int(40 * sigma + abs(shift) + float(epsilon) * sigma**2 / shift) + 40
        total = mpmath.fsum(weight(k) for k in range(-reach, reach + 1))
        gaps = (weight(k) - mpmath.exp(e) * weight(k + shift) for k in range(-reach, reach + 1))
        return mpmath.log(mpmath.fsum(gap for gap in gaps if gap > 0) / total)


@settings(deadline=None, max_examples=40)
@given(st.floats(0.15, 12.0), st.integers(1, 6), st.floats(0.0, 8.0))
# At these the threshold is short of a whole number by less than its own rounding.
@example(0.7458086050253508, 5, 355.0686428730413)
@example(0.30908673874080733, 1, 601.8761028790319)
@example(0.7051860727994119, 1, 101.55093468527033)
def test_the_curve_outcome_by_outcome(sigma, shift, epsilon):
    computed = law.log_delta(sigma, shift, epsilon)
    truth = true_log_delta(sigma, shift, epsilon)
    room = 1e-12 * max(1, abs(truth))
    assert computed >= truth - room
    # Above by no more than a few units in the last place of epsilon make at a cliff.
    earlier = epsilon - 16 * 2.0**-52 * max(epsilon, shift**2 / (2 * sigma**2))
    assert computed <= true_log_delta(sigma, shift, max(earlier, 0.0)) + room


@pytest.mark.parametrize(("sigma", "shift"), [(0.1, 3), (0.1, 2), (0.2, 2), (0.25, 1), (0.07, 1)])
@pytest.mark.parametrize("delta", [1e-30, 1e-15, 1e-9, 1e-5])
def test_epsilon_at_a_cliff_is_not_below_the_truth(sigma, shift, delta):
    """Delta falls by orders of magnitude at one epsilon, whose last digit must not be short."""
    epsilon = DiscreteGaussian(sigma, Sensitivity(shift)).guarantee(delta).epsilon
    assert true_log_delta(sigma, shift, epsilon) <= mpmath.log(delta)


@pytest.mark.parametrize("sigma", [100.0, 3e3, 3e4])
@pytest.mark.parametrize(("shift", "loss"), [(1, 4.0), (7, 0.5), (1, 20.0)])
def test_the_bound_for_large_sigma_is_above_the_sum_and_close(sigma, shift, loss):
    epsilon = loss * shift / sigma
    x = epsilon * sigma**2 / shift - shift / 2
    summed = law.log_delta(sigma, shift, epsilon)
    bound = law._log_delta_bound(sigma, shift, epsilon, x)
    assert summed <= bound <= summed + 2 * (loss + 1) / sigma


def test_the_bound_holds_where_the_shift_is_as_large_as_sigma():
    for shift in (100, 1000):
        summed = law.log_delta(100.0, shift, 2.0)
        bound = law._log_delta_bound(100.0, shift, 2.0, 2.0 * 1e4 / shift - shift / 2)
        assert summed <= bound <= summed + 0.02


def test_sums_and_bounds_meet():
    below, above = law.SUMMED * (1 - 1e-9), law.SUMMED * (1 + 1e-9)
    for epsilon in (1e-5, 1e-4):
        sums, bounds = (law.log_delta(sigma, 1, epsilon) for sigma in (below, above))
        assert sums == pytest.approx(bounds, abs=5e-4)
    assert law.magnitude_quantile(above, 0.05) - law.magnitude_quantile(below, 0.05) in (0, 1)


@pytest.mark.parametrize("sigma", [0.02, 0.2, 0.5, 1.0, 2.9, 3.1, 30.0])
def test_moments(sigma):
    k = np.arange(-2000, 2001)
    p = np.exp(-((k / sigma) ** 2) / 2)
    p /= p.sum()
    noisy = DiscreteGaussian(sigma, ONE)
    assert noisy.standard_deviation**2 == pytest.approx((k**2 * p).sum(), rel=1e-12)
    assert noisy.expected_error == pytest.approx((np.abs(k) * p).sum(), rel=1e-12)
    for confidence in (0.01, 0.5, 0.95, 0.999999):
        half_width = noisy.half_width(confidence)
        assert p[np.abs(k) <= half_width].sum() >= confidence - 1e-12
        assert half_width == 0 or p[np.abs(k) <= half_width - 1].sum() < confidence + 1e-12


def test_moments_meet_where_the_formula_changes():
    for edge, moment in ((3, law.standard_deviation), (512, law.expected_magnitude)):
        low, high = moment(edge * (1 - 1e-12)), moment(edge * (1 + 1e-12))
        assert low == pytest.approx(high, rel=1e-11)


@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 2.0, 4.0, 9.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_the_least_sigma_of_all(shift, epsilon, delta):
    """More noise is not always safer: every smaller sigma must fail, not only the next one."""
    sigma = DiscreteGaussian.calibrate(Sensitivity(shift), epsilon=epsilon, delta=delta).sigma
    for smaller in np.geomspace(sigma / 30, sigma * (1 - 1e-8), 400):
        assert law.log_delta(smaller, shift, epsilon) > math.log(delta)


def test_more_noise_is_not_always_safer():
    assert law.log_delta(0.16, 1, 20.0) < math.log(1e-8)
    assert law.log_delta(0.22, 1, 20.0) > math.log(1e-5)


@settings(deadline=None, max_examples=60)
@given(st.floats(-1.5, 1.5), st.floats(-12, -0.3), st.integers(1, 5))
def test_calibration_never_exceeds_its_target(log_epsilon, log_delta, shift):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    noisy = DiscreteGaussian.calibrate(Sensitivity(shift), epsilon=epsilon, delta=delta)
    assert noisy.guarantee(delta).epsilon <= epsilon
    assert noisy.guarantee(delta).epsilon >= epsilon * (1 - 1e-6) - 1e-6 or noisy.sigma < 0.5
    if noisy.sigma < 20:
        assert true_log_delta(noisy.sigma, shift, epsilon) <= mpmath.log(delta)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5, 3e-7])
def test_large_sigmas_are_calibrated_too(epsilon):
    noisy = DiscreteGaussian.calibrate(ONE, epsilon=epsilon, delta=1e-9)
    continuous = Gaussian.calibrate(ONE, epsilon=epsilon, delta=1e-9)
    assert noisy.sigma == pytest.approx(continuous.sigma, rel=1e-5)
    assert noisy.guarantee(1e-9).epsilon <= epsilon


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.74747), (1.0, 3.74048), (4.0, 1.05759)])
def test_sigmas_at_a_common_delta(epsilon, sigma):
    """Close to the continuous 30.7496, 3.7306 and 1.0812, and on either side of them."""
    noisy = DiscreteGaussian.calibrate(ONE, epsilon=epsilon, delta=1e-5)
    assert noisy.sigma == pytest.approx(sigma, abs=1e-5)


@pytest.mark.parametrize("sigma", [0.8, 2.0, 10.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2])
def test_the_curve_agrees_with_dp_accounting(sigma, delta):
    from dp_accounting.pld import privacy_loss_distribution as pld

    oracle = pld.from_discrete_gaussian_mechanism(
        sigma, sensitivity=2, value_discretization_interval=1e-4
    )
    mine = DiscreteGaussian(sigma, Sensitivity(2)).guarantee(delta).epsilon
    assert mine == pytest.approx(oracle.get_epsilon_for_delta(delta), abs=3e-4)


@settings(deadline=None)
@given(st.floats(-4, 2), st.floats(0, 50))
def test_the_zcdp_conversion_is_the_best_over_orders(log_rho, epsilon):
    rho = 10**log_rho
    alpha = 1 + np.geomspace(1e-4, 1e6, 4001)
    curve = (alpha - 1) * (alpha * rho - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)
    best = min(0.0, curve.min())
    value = law.zcdp_log_delta(rho, epsilon)
    assert value <= best + 1e-9
    assert value >= best - 1e-4 * max(1, abs(best))


def test_several_coordinates_by_zcdp():
    noisy = DiscreteGaussian.calibrate(SEVERAL, epsilon=1.0, delta=1e-5)
    rho = 9 / (2 * noisy.sigma**2)
    assert isinstance(noisy.event, ZcdpEvent)
    assert rho <= noisy.event.rho <= rho * (1 + 1e-14)
    assert noisy.guarantee(1e-5).epsilon == pytest.approx(1.0)
    assert noisy.guarantee(1e-5).epsilon <= 1.0
    assert noisy.guarantee(1e-5).accountant == "zcdp"
    # What the conversion costs over the exact curve of a continuous Gaussian: under a tenth.
    continuous = Gaussian.calibrate(SEVERAL, epsilon=1.0, delta=1e-5)
    assert continuous.sigma < noisy.sigma < 1.1 * continuous.sigma


def test_the_zcdp_conversion_agrees_with_dp_accounting():
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    rho = 0.05
    orders = np.linspace(1.5, 60, 4000)
    oracle, _ = rdp.compute_epsilon(orders, rho * orders, 1e-5)
    noisy = DiscreteGaussian(3 / math.sqrt(2 * rho), SEVERAL)
    assert noisy.guarantee(1e-5).epsilon == pytest.approx(oracle, rel=1e-5)


@given(st.floats(0.01, 50), st.floats(1e-12, 0.5), st.floats(0.1, 1e4), st.integers(2, 100))
@settings(deadline=None, max_examples=50)
def test_calibration_of_several_never_exceeds_its_target(epsilon, delta, bound, dimension):
    sensitivity = Sensitivity(bound, Norm.L2, dimension=dimension)
    noisy = DiscreteGaussian.calibrate(sensitivity, epsilon=epsilon, delta=delta)
    assert noisy.guarantee(delta).epsilon <= epsilon
    assert noisy.guarantee(delta).epsilon >= epsilon * (1 - 1e-6) - 1e-6


def test_a_histogram_moves_one_coordinate():
    cells = Sensitivity(1.0, Norm.L2, dimension=50)
    histogram = DiscreteGaussian.calibrate(cells, epsilon=1.0, delta=1e-5, one_coordinate=True)
    alone = DiscreteGaussian.calibrate(ONE, epsilon=1.0, delta=1e-5)
    assert histogram.sigma == alone.sigma
    assert histogram.event == DiscreteGaussianEvent(alone.sigma, 1) == alone.event
    assert histogram.sigma < DiscreteGaussian.calibrate(cells, epsilon=1.0, delta=1e-5).sigma
    with pytest.raises(ValueError, match="one_coordinate must be False under replace-one"):
        DiscreteGaussian(1.0, cells.under("replace-one"), one_coordinate=True)


def test_the_sensitivity_must_be_whole_where_one_coordinate_moves():
    with pytest.raises(ValueError, match="sensitivity must be a whole number"):
        DiscreteGaussian(1.0, Sensitivity(1.5))
    with pytest.raises(ValueError, match="sensitivity must be a whole number"):
        DiscreteGaussian(1.0, Sensitivity(1.5, Norm.L2, dimension=3), one_coordinate=True)
    DiscreteGaussian(1.0, Sensitivity(math.sqrt(3), Norm.L2, dimension=3))


def test_pure_dp_is_never_promised():
    assert DiscreteGaussian(5.0, ONE).guarantee().epsilon == math.inf
    assert DiscreteGaussian(5.0, SEVERAL).guarantee().epsilon == math.inf
    assert DiscreteGaussian(1e6, ONE).guarantee(0.5).epsilon == 0.0


@pytest.mark.parametrize("sigma", [0.7, 1.5, 6.0])
def test_the_sampler_has_this_law(sigma):
    draws = DiscreteGaussian(sigma, ONE).perturb(np.zeros(200_000), coins=SeededCoins(41))
    normaliser = math.exp(law.log_normaliser(sigma))
    for value in range(-4, 5):
        expected = math.exp(-(value**2) / (2 * sigma**2)) / normaliser
        assert np.mean(draws == value) == pytest.approx(
            expected, abs=4 * math.sqrt(max(expected, 1e-6) / draws.size)
        )
