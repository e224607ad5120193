"""Gaussian noise: the exact curve, the least sigma, and where the printed formulas break."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core import Norm, Sensitivity
from sfumato.core.events import GaussianEvent
from sfumato.core.gaussian_profile import gaussian_delta, gaussian_log_delta
from sfumato.mechanisms.gaussian import PRINTED, Gaussian, Method, first_failure

ONE = Sensitivity(1.0, Norm.L2)


def true_log_delta(multiplier, epsilon):
    """Balle and Wang's formula, with enough digits for every cancellation."""
    with mpmath.workdps(120):
        m, e = mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        delta = mpmath.ncdf(1 / (2 * m) - e * m) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * m) - e * m)
        return mpmath.log(delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [
        (0.1, 1e-5, 30.7496),
        (0.5, 1e-5, 7.0318),
        (1.0, 1e-5, 3.7306),
        (2.0, 1e-5, 1.9938),
        (4.0, 1e-5, 1.0812),
        (8.0, 1e-5, 0.6002),
        (1.0, 1e-6, 4.2247),
    ],
)
def test_the_least_sigma(epsilon, delta, sigma):
    exact = Gaussian.calibrate(ONE, epsilon=epsilon, delta=delta)
    assert exact.sigma == pytest.approx(sigma, abs=6e-5)
    assert exact.guarantee(delta).epsilon == pytest.approx(epsilon, rel=1e-9)


@settings(deadline=None, max_examples=150)
@given(st.floats(-2, 6), st.floats(-6, 2.8))
def test_the_curve_to_twelve_digits(log_multiplier, log_epsilon):
    multiplier, epsilon = 10**log_multiplier, 10**log_epsilon
    if 0.5 / multiplier - epsilon * multiplier < -38:
        return  # delta below the smallest double
    truth = true_log_delta(multiplier, epsilon)
    assert abs(gaussian_log_delta(multiplier, epsilon) - truth) < 1e-12 * max(1, abs(truth))


@pytest.mark.parametrize(
    ("multiplier", "epsilon"), [(1e-3, 1e3), (1e3, 1e3), (1e-8, 0.0), (1e8, 50)]
)
def test_the_curve_does_not_overflow(multiplier, epsilon):
    value = gaussian_log_delta(multiplier, epsilon)
    assert math.isfinite(value)
    assert value <= 0


@settings(deadline=None, max_examples=100)
@given(st.floats(-4, 2.7), st.floats(-300, -0.1), st.floats(-6, 6))
def test_calibration_never_exceeds_its_target(log_epsilon, log_delta, log_bound):
    epsilon, delta, bound = 10**log_epsilon, 10**log_delta, 10**log_bound
    exact = Gaussian.calibrate(Sensitivity(bound, Norm.L2), epsilon=epsilon, delta=delta)
    truth = true_log_delta(mpmath.mpf(exact.sigma) / mpmath.mpf(bound), epsilon)
    assert truth <= mpmath.log(delta)
    assert truth >= mpmath.log(delta) - 1e-9  # the least, to about ten digits
    assert true_log_delta(exact.event.noise_multiplier, epsilon) <= mpmath.log(delta)
    assert exact.guarantee(delta).epsilon <= epsilon
    assert exact.release(0.0).guarantee == exact.guarantee(delta)


@settings(deadline=None, max_examples=100)
@given(st.floats(-2, 4), st.floats(-100, -0.001))
def test_the_stated_epsilon_is_not_below_the_true_one(log_multiplier, log_delta):
    multiplier, delta = 10**log_multiplier, 10**log_delta
    epsilon = Gaussian(multiplier, ONE).guarantee(delta).epsilon
    assert true_log_delta(multiplier, epsilon) <= mpmath.log(delta)


def test_pure_dp_is_never_promised():
    assert Gaussian(5.0, ONE).guarantee().epsilon == math.inf
    assert Gaussian(5.0, ONE).release(1.0).guarantee.epsilon == math.inf
    assert Gaussian(1e6, ONE).guarantee(0.5).epsilon == 0.0


@pytest.mark.parametrize("delta", [1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0, 20.0])
def test_the_curve_agrees_with_dp_accounting(sigma, delta):
    from dp_accounting.pld import privacy_loss_distribution as pld

    oracle = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
    mine = Gaussian(sigma, ONE).guarantee(delta).epsilon
    assert mine == pytest.approx(oracle.get_epsilon_for_delta(delta), abs=2e-4)


@pytest.mark.parametrize(
    ("delta", "method", "epsilon"),
    [
        (1e-5, "dwork-roth", 8.42),
        (1e-5, "two-over-delta", 9.40),
        (1e-5, "one-over-delta", 7.97),
        (1e-2, "dwork-roth", 6.78),
        (1e-2, "two-over-delta", 7.91),
        (1e-2, "one-over-delta", 6.25),
    ],
)
def test_where_each_printed_formula_first_fails(delta, method, epsilon):
    """To the hundredth above."""
    failure = first_failure(method, delta)
    assert math.ceil(failure * 100) / 100 == pytest.approx(epsilon)
    Gaussian.calibrate(ONE, epsilon=failure * (1 - 1e-6), delta=delta, method=method)
    for worse in (1 + 1e-6, 1.5, 10, 100):
        with pytest.raises(ValueError, match=r"true delta.*use method='analytic'"):
            Gaussian.calibrate(ONE, epsilon=failure * worse, delta=delta, method=method)


@pytest.mark.parametrize(("epsilon", "delta"), [(10, 2.27e-5), (20, 1.5e-3)])
def test_how_wrong_the_textbook_formula_gets(epsilon, delta):
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert gaussian_delta(sigma, epsilon) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize("method", PRINTED)
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 0.99, 5.0])
def test_printed_formulas_where_they_hold(method, epsilon):
    printed = Gaussian.calibrate(
        Sensitivity(3.0, Norm.L2), epsilon=epsilon, delta=1e-5, method=method
    )
    expected = 3 * math.sqrt(2 * math.log(PRINTED[method] / 1e-5)) / epsilon
    assert printed.sigma == pytest.approx(expected, rel=1e-14)
    exact = Gaussian.calibrate(Sensitivity(3.0, Norm.L2), epsilon=epsilon, delta=1e-5)
    assert exact.sigma < printed.sigma
    assert printed.guarantee(1e-5).epsilon < epsilon


def test_the_analytic_method_never_fails():
    assert first_failure("analytic", 1e-5) == math.inf
    assert Method("analytic") not in PRINTED
    with pytest.raises(ValueError, match="method must be"):
        Gaussian.calibrate(ONE, epsilon=1.0, delta=1e-5, method="classic")


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan])
def test_a_delta_is_needed(delta):
    with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
        Gaussian.calibrate(ONE, epsilon=1.0, delta=delta)


def test_the_event_is_relative_to_the_sensitivity():
    sensitivity = Sensitivity(4.0, Norm.L2, "replace-one", "person", dimension=9)
    assert Gaussian(8.0, sensitivity).event == GaussianEvent(2.0, "replace-one", "person")


@pytest.mark.parametrize("confidence", [0.1, 0.5, 0.95, 0.999999])
def test_half_width_is_the_quantile_plus_half_a_grid_step(confidence):
    noisy = Gaussian(2.0, Sensitivity(1.0, Norm.L2, dimension=3), grid=0.125)
    within = lambda t: math.erf((t - 0.0625) / (2 * math.sqrt(2)))  # noqa: E731
    assert within(noisy.half_width(confidence)) == pytest.approx(confidence)
    together = within(noisy.half_width(confidence, simultaneous=True))
    assert together**3 == pytest.approx(confidence)


def test_many_dimensions_need_no_more_noise_at_the_same_l2_bound():
    one = Gaussian.calibrate(ONE, epsilon=1.0, delta=1e-5)
    many = Gaussian.calibrate(Sensitivity(1.0, Norm.L2, dimension=1000), epsilon=1.0, delta=1e-5)
    assert one.sigma == many.sigma
    converted = Sensitivity(1.0, Norm.LINF, dimension=16).to("l2")
    assert Gaussian.calibrate(converted, epsilon=1.0, delta=1e-5).sigma == pytest.approx(
        4 * one.sigma
    )
