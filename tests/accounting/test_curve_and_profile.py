"""Epsilon over steps, trade-off curves, and calibration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sfumato as sf
from sfumato import events
from sfumato.accounting.pld import loss_distribution

ADD, REP = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE


def fine(event, relation=ADD):
    """Epsilon on a finer grid: an upper bound, hardly above the truth."""
    default = loss_distribution(event, relation).grid
    return loss_distribution(event, relation, default / 4).epsilon(1e-5)


def test_a_hundred_points_of_a_long_run():
    points = np.linspace(140, 14_063, 100).astype(int)
    curve = sf.epsilon_curve(sf.dp_sgd(1.1, 0.00427, 1), points.tolist(), 1e-5)
    assert np.all(np.diff(curve) > 0)
    for i in (0, 7, 50, 99):
        exact = fine(sf.dp_sgd(1.1, 0.00427, int(points[i])))
        assert exact * (1 - 1e-6) <= curve[i] <= exact * 1.005


@pytest.mark.parametrize(
    ("noise", "rate", "steps"),
    [(4, 0.01, 10_000), (1.2, 1e-3, 3000), (10, 0.1, 2000), (20, 0.5, 500), (4, 1e-4, 100_000)],
)
@pytest.mark.parametrize("relation", [ADD, REP])
def test_other_runs_stay_within_half_a_percent(noise, rate, steps, relation):
    points = [steps // 50, steps // 3, steps]
    curve = sf.epsilon_curve(sf.dp_sgd(noise, rate, 1), points, 1e-5, relation)
    for n, found in zip(points, curve, strict=True):
        exact = fine(sf.dp_sgd(noise, rate, n), relation)
        assert exact * (1 - 1e-6) <= found <= exact * 1.005


def test_points_in_any_order_and_none_at_all():
    step = sf.dp_sgd(2, 0.01, 1)
    curve = sf.epsilon_curve(step, [500, 0, 100, 500], 1e-5)
    assert curve[1] == 0
    assert curve[0] == curve[3] > curve[2] > 0
    assert sf.epsilon_curve(step, [], 1e-5).size == 0


def test_what_was_released_before_counts_from_the_first_point():
    step, pca = sf.dp_sgd(4, 0.01, 1), events.GaussianEvent(7.0)
    curve = sf.epsilon_curve(step, [0, 100, 1000], 1e-5, before=pca)
    for n, found in zip((0, 100, 1000), curve, strict=True):
        whole = sf.compose(pca, sf.repeat(step, n)) if n else pca
        exact = sf.account(whole, 1e-5).epsilon
        assert exact * (1 - 1e-4) <= found <= exact * 1.005


def test_plain_gaussians_and_rdp_only_steps():
    plain = sf.epsilon_curve(events.GaussianEvent(10.0), [1, 100], 1e-5)
    exact = [sf.account(sf.repeat(events.GaussianEvent(10.0), n), 1e-5).epsilon for n in (1, 100)]
    assert plain == pytest.approx(exact)
    zcdp = sf.epsilon_curve(events.ZcdpEvent(0.001), [1, 100], 1e-5)
    assert zcdp[1] == pytest.approx(
        sf.account(sf.repeat(events.ZcdpEvent(0.001), 100), 1e-5).epsilon
    )


@pytest.mark.parametrize("steps", [[-1], [1.5], ["3"]])
def test_bad_points(steps):
    with pytest.raises(ValueError, match="steps"):
        sf.epsilon_curve(sf.dp_sgd(1, 0.1, 1), steps, 1e-5)


# --- trade-off curves ---------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.5, 1.0, 5.0])
def test_the_gaussian_trade_off_in_closed_form(noise):
    profile = sf.privacy_profile(events.GaussianEvent(noise), [1e-5])
    inner = profile.alphas[1:-1]
    exact = stats.norm.cdf(stats.norm.ppf(1 - inner) - 1 / noise)
    assert np.all(profile.betas[1:-1] <= exact + 1e-9)
    assert np.all(profile.betas[1:-1] >= exact - 1e-5)
    assert profile.advantage == pytest.approx(2 * stats.norm.cdf(1 / (2 * noise)) - 1, abs=1e-9)


def test_a_trade_off_curve_falls_is_convex_and_never_above_guessing():
    profile = sf.privacy_profile(sf.dp_sgd(1, 0.05, 200))
    alphas, betas = profile.alphas, profile.betas
    assert (alphas[0], alphas[-1], betas[-1]) == (0, 1, 0)
    assert np.all(np.diff(betas) <= 0)
    slopes = np.diff(betas) / np.diff(alphas)
    assert np.all(np.diff(slopes) >= -1e-6)
    assert np.all(betas <= 1 - alphas + 1e-12)
    assert profile.advantage >= np.max(1 - alphas - betas) - 1e-12


def test_power_is_bounded_by_every_epsilon_delta_pair():
    profile = sf.privacy_profile(sf.dp_sgd(1, 0.05, 200), [1e-5])
    (guarantee,) = profile.guarantees
    for rate in (1e-4, 1e-2, 0.1):
        bound = math.exp(guarantee.epsilon) * rate + 1e-5
        # The grid of rates is coarse: power is taken at the next larger one.
        assert profile.power_at(rate) <= bound * 1.2
        assert profile.power_at(rate) > rate


def test_pure_and_rdp_only_profiles():
    pure = sf.privacy_profile(events.EpsilonDeltaEvent(3.0), [0.0])
    assert pure.advantage == pytest.approx(math.tanh(1.5), abs=1e-9)
    assert pure.guarantees[0].epsilon == 3.0
    zcdp = sf.privacy_profile(events.ZcdpEvent(0.02))
    gaussian = sf.privacy_profile(events.GaussianEvent(5.0))
    assert np.all(zcdp.betas <= gaussian.betas + 1e-9)
    assert sf.privacy_profile([]).advantage == 0
    assert set(pure.to_dict()) == {"guarantees", "trade_off", "advantage"}


# --- calibration --------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.floats(0.1, 8), st.sampled_from([1e-6, 1e-5]), st.floats(1e-3, 0.2), st.integers(1, 3000))
@pytest.mark.slow
def test_calibrated_noise_never_exceeds_its_target_and_is_hardly_more(epsilon, delta, rate, steps):
    for name in ("pld", "rdp"):
        noise = sf.calibrate_noise(
            epsilon=epsilon, delta=delta, sample_rate=rate, steps=steps, accountant=name
        )

        def cost(x, name=name):
            return sf.account(sf.dp_sgd(x, rate, steps), delta, accountant=name).epsilon

        assert cost(noise) <= epsilon
        assert cost(noise * 0.9995) > epsilon * (1 - 1e-9) or noise <= 0.02


@pytest.mark.slow
def test_calibrated_steps_and_rates_are_the_most_there_are():
    common = {"epsilon": 1.0, "delta": 1e-5, "noise_multiplier": 1.5}

    def cost(rate, steps):
        return sf.account(sf.dp_sgd(1.5, rate, steps), 1e-5).epsilon

    steps = sf.calibrate_steps(**common, sample_rate=0.01)
    assert cost(0.01, steps) <= 1 < cost(0.01, steps + 1)
    rate = sf.calibrate_sample_rate(**common, steps=1000)
    assert cost(rate, 1000) <= 1 < cost(rate * 1.001, 1000)
    assert sf.calibrate_sample_rate(epsilon=5, delta=1e-5, noise_multiplier=50, steps=1) == 1.0


def test_what_is_released_besides_is_paid_for():
    common = {"epsilon": 2, "delta": 1e-5, "sample_rate": 0.01, "steps": 6000}
    pca = events.GaussianEvent(7.0)
    noise = sf.calibrate_noise(**common, besides=pca)
    assert noise > sf.calibrate_noise(**common)
    assert sf.account([sf.dp_sgd(noise, 0.01, 6000), pca], 1e-5).epsilon <= 2
    with pytest.raises(ValueError, match="besides"):
        sf.calibrate_noise(**common | {"epsilon": 0.5}, besides=pca)


def test_units_reach_the_event():
    besides = events.LaplaceEvent(10.0, unit="person")
    sf.calibrate_noise(
        epsilon=2, delta=1e-5, sample_rate=0.1, steps=10, besides=besides, unit="person"
    )


def test_any_monotone_event_can_be_calibrated():
    scale = sf.calibrate(lambda s: sf.repeat(events.LaplaceEvent(s), 50), 1.0, 0.0)
    assert scale == 50.0


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1"])
def test_bad_targets(epsilon):
    for solve, known in (
        (sf.calibrate_noise, {"sample_rate": 0.1, "steps": 10}),
        (sf.calibrate_steps, {"sample_rate": 0.1, "noise_multiplier": 1}),
        (sf.calibrate_sample_rate, {"steps": 10, "noise_multiplier": 1}),
    ):
        with pytest.raises(ValueError, match="epsilon"):
            solve(epsilon=epsilon, delta=1e-5, **known)


def test_targets_out_of_reach_are_said_to_be():
    with pytest.raises(ValueError, match="no noise"):
        sf.calibrate(lambda x: events.EpsilonDeltaEvent(1.0), 0.5, 1e-5)
    with pytest.raises(ValueError, match="in one step"):
        sf.calibrate_steps(epsilon=0.01, delta=1e-9, sample_rate=0.5, noise_multiplier=0.5)


# --- events that hold up to some epsilon alone ----------------------------------------------------


def test_nothing_is_said_above_the_largest_epsilon():
    event = sf.dp_sgd(1.0, 0.1, 100)
    whole = sf.privacy_profile(event, [1e-3, 1e-5, 1e-8])
    largest = whole.guarantees[1].epsilon
    cut = sf.privacy_profile(event, [1e-3, 1e-5, 1e-8], largest_epsilon=largest)
    assert [one.delta for one in cut.guarantees] == [1e-3, 1e-5]
    assert np.all(cut.betas <= whole.betas + 1e-15)  # fewer lines: a lower bound still
    alphas, low, high = cut.alphas, cut.betas, whole.betas
    assert low[0] == pytest.approx(1 - 1e-5, abs=1e-6) != high[0]  # 1 - delta at the largest
    assert np.all(low[alphas > 0.05] == pytest.approx(high[alphas > 0.05], abs=1e-4))
    assert cut.advantage == whole.advantage


def test_rates_that_are_named_are_exact():
    event = events.GaussianEvent(1.0)
    rates = [0.0123, 0.037]
    profile = sf.privacy_profile(event, [1e-5], rates=rates)
    for rate in rates:
        exact = stats.norm.cdf(stats.norm.ppf(rate) + 1.0)
        assert profile.power_at(rate) == pytest.approx(exact, rel=2e-5)


def test_noise_beyond_floating_point_is_refused():
    with pytest.raises(ValueError, match=r"noise_multiplier must be at least 1e-100"):
        sf.privacy_profile(events.GaussianEvent(1e-320), [1e-5])
