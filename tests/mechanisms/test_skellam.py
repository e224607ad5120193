"""The Skellam mechanism: its RDP against the divergence summed outcome by outcome."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ive, logsumexp

from sfumato.accounting import account
from sfumato.audit import audit_step
from sfumato.core import Norm, SeededCoins, Sensitivity
from sfumato.core.events import RdpCurveEvent
from sfumato.mechanisms import skellam_law as law
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.skellam import Skellam


def log_law(variance, reach):
    """ln Pr[k] for -reach .. reach, by the ratios of Bessel functions: no underflow."""
    ratio, logs = 0.0, []
    for k in range(reach + 60, 0, -1):
        ratio = variance / (2 * k + variance * ratio)
        if k <= reach:
            logs.append(math.log(ratio))
    half = np.concatenate([[0.0], np.cumsum(logs[::-1])])
    whole = np.concatenate([half[:0:-1], half])
    return whole - logsumexp(whole)


def exact_rdp(variance, shift, order):
    logs = log_law(variance, int(40 * math.sqrt(variance) + 20 * order * shift + 200))
    p, q = logs[:-shift], logs[shift:]
    return logsumexp(order * p + (1 - order) * q) / (order - 1)


def test_the_oracle_is_the_law():
    assert np.exp(log_law(5.0, 100))[100:110] == pytest.approx(ive(np.arange(10), 5.0), rel=1e-12)


@pytest.mark.parametrize("variance", [0.05, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("shift", [1, 2, 5, 30])
@pytest.mark.parametrize("order", [2, 3, 5, 16, 64, 128])
def test_the_bound_is_above_the_exact_divergence(variance, shift, order):
    assert exact_rdp(variance, shift, order) <= law.rdp(variance, shift**2, shift, order)


@pytest.mark.parametrize(("shift", "order"), [(1, 2), (3, 8), (30, 2), (10, 16)])
def test_and_close_to_it_where_noise_is_large(shift, order):
    bound = law.rdp(1000.0, shift**2, shift, order)
    assert exact_rdp(1000.0, shift, order) >= 0.97 * bound


def test_between_whole_orders_the_curve_is_above_too():
    noisy = Skellam(4.0, Sensitivity(2))
    for order, value in zip(noisy.event.orders, noisy.event.values, strict=True):
        if order < 12:
            assert exact_rdp(4.0, 2, order) <= value


def test_several_coordinates_add():
    """Every whole vector within the L2 bound, coordinate by coordinate."""
    noisy = Skellam(6.0, Sensitivity(math.sqrt(6), Norm.L2, dimension=3))
    curve = dict(zip(noisy.event.orders, noisy.event.values, strict=True))
    for order in (2.0, 3.0, 8.0):
        one = {0: 0.0, 1: exact_rdp(6.0, 1, order), 2: exact_rdp(6.0, 2, order)}
        worst = max(
            one[a] + one[b] + one[c]
            for a in one for b in one for c in one if a * a + b * b + c * c <= 6
        )  # fmt: skip
        assert 0.4 * curve[order] <= worst <= curve[order]


def test_parts_sum_to_exactly_the_whole():
    part = np.exp(log_law(0.4, 60))
    total = part
    for _ in range(4):
        total = np.convolve(total, part)
    middle = len(total) // 2
    assert total[middle : middle + 20] == pytest.approx(ive(np.arange(20), 2.0), rel=1e-9)


def test_of_discrete_gaussians_they_do_not():
    k = np.arange(-40, 41)
    part = np.exp(-(k**2) / (2 * 0.25))
    part /= part.sum()
    total, whole = np.convolve(part, part)[40:-40], np.exp(-(k**2) / (2 * 0.5))
    assert abs(math.log(total[41] / (whole / whole.sum())[41])) > 0.05


@settings(deadline=None, max_examples=25)
@given(st.floats(-1, 1), st.floats(-10, -1), st.integers(1, 50))
def test_calibration_meets_its_target(log_epsilon, log_delta, dimension):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    sensitivity = Sensitivity(2.0, Norm.L2, dimension=dimension)
    noisy = Skellam.calibrate(sensitivity, epsilon=epsilon, delta=delta)
    assert noisy.guarantee(delta).epsilon <= epsilon
    assert noisy.guarantee(delta).epsilon >= epsilon * (1 - 1e-6) or noisy.variance < 1e-9


def test_the_accountant_agrees_with_the_mechanism():
    noisy = Skellam(30.0, Sensitivity(2))
    by_event = account(noisy.event, 1e-5, accountant="rdp").epsilon
    assert by_event == pytest.approx(noisy.guarantee(1e-5).epsilon, rel=0.02)
    assert RdpCurveEvent(**noisy.event.__dict__) == noisy.event


def test_the_guarantee_of_one_number_is_above_the_exact_curve():
    """The hockey-stick divergence outcome by outcome, at the epsilon that is promised."""
    for variance, delta in ((4.0, 1e-3), (25.0, 1e-5), (400.0, 1e-6)):
        epsilon = Skellam(variance, Sensitivity(2)).guarantee(delta).epsilon
        logs = log_law(variance, int(40 * math.sqrt(variance)) + 100)
        p, q = np.exp(logs[:-2]), np.exp(logs[2:])
        assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= delta


def test_a_little_more_noise_than_the_discrete_gaussian():
    sensitivity = Sensitivity(10.0, Norm.L2, dimension=50)
    whole = Skellam.calibrate(sensitivity, epsilon=1.0, delta=1e-5)
    gaussian = DiscreteGaussian.calibrate(sensitivity, epsilon=1.0, delta=1e-5)
    assert gaussian.sigma < whole.standard_deviation < 1.01 * gaussian.sigma


@pytest.mark.parametrize("variance", [0.01, 0.5, 9.0, 400.0, 1e6])
def test_moments_and_quantiles(variance):
    reach = int(15 * math.sqrt(variance)) + 40
    k = np.arange(-reach, reach + 1)
    p = ive(np.abs(k), variance)
    noisy = Skellam(variance, Sensitivity(1))
    assert noisy.standard_deviation**2 == pytest.approx((k**2 * p).sum(), rel=1e-9)
    assert noisy.expected_error == pytest.approx((np.abs(k) * p).sum(), rel=1e-9)
    for confidence in (0.01, 0.5, 0.95, 0.999999):
        half_width = noisy.half_width(confidence)
        assert p[np.abs(k) <= half_width].sum() >= confidence - 1e-9
        assert half_width == 0 or p[np.abs(k) <= half_width - 1].sum() < confidence + 1e-9


def test_a_release():
    noisy = Skellam(9.0, Sensitivity(1.0, Norm.L2, dimension=3), 1e-5)
    release = noisy.release([1, None, 3.6], coins=SeededCoins(1))
    assert len(release.value) == 3
    assert not release.private
    assert release.guarantee.delta == 1e-5


def test_bad_parameters():
    with pytest.raises(ValueError, match="variance"):
        Skellam(0.0, Sensitivity(1))
    with pytest.raises(ValueError, match="whole number"):
        Skellam(1.0, Sensitivity(1.5))
    with pytest.raises(ValueError, match="coarser steps"):
        Skellam.calibrate(Sensitivity(1), epsilon=1e-5, delta=1e-6)
    assert Skellam(4.0, Sensitivity(1)).guarantee().epsilon == math.inf


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "not refuted"), (0.64, "refuted")])
def test_the_audit_sees_a_fifth(factor, verdict):
    """Noise of 0.8 times the standard deviation is caught, the mechanism itself is not."""
    noisy = Skellam(16.0 * factor, Sensitivity(10))
    coins = SeededCoins(5)

    def step(included):
        return noisy.perturb(10 * included, coins=coins)[:, None]

    found = audit_step(step, multiplier=0.4, games=20_000, coins=SeededCoins(6))
    assert (found.verdict.value == "refuted") == (verdict == "refuted")
