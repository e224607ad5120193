"""Figures that must come out: published, or recomputed independently. Delta is 1e-5 throughout."""

import math

import numpy as np
import pytest
from scipy import stats

import sfumato as sf
from sfumato import events
from sfumato.accounting import theorems
from sfumato.accounting.moments import moments_delta

ADD = sf.Neighbours.ADD_REMOVE
SLIDE = sf.dp_sgd(4, 0.01, 10_000)


def epsilon(event, **options):
    return sf.account(event, 1e-5, **options).epsilon


@pytest.mark.parametrize(
    ("event", "options", "expected", "tolerance"),
    [
        (SLIDE, {}, 0.9470, 2e-4),
        (SLIDE, {"accountant": "rdp"}, 1.0355, 1e-4),
        (SLIDE, {"accountant": "moments"}, 1.2586, 1e-4),
        (SLIDE, {"neighbours": "replace-one"}, 1.993, 1e-3),
        (sf.dp_sgd(4, 0.01, 40_000), {}, 2.033, 1e-3),
        (sf.dp_sgd(4, 0.01, 40_000), {"accountant": "rdp"}, 2.210, 1e-3),
        (sf.dp_sgd(1.1, 0.00427, 14_063), {}, 2.3839, 2e-4),
        (sf.dp_sgd(1.1, 0.00427, 14_063), {"accountant": "rdp"}, 2.5989, 1e-4),
        (sf.dp_sgd(1.3, 256 / 60_000, 14_062), {}, 1.8237, 2e-4),
        (sf.dp_sgd(1.3, 256 / 60_000, 14_062), {"accountant": "rdp"}, 1.9890, 1e-4),
        (sf.dp_sgd(4, 1, 10_000), {}, 418.2, 0.05),
        (events.GaussianEvent(4), {}, 0.9263, 1e-4),
        (sf.repeat(events.LaplaceEvent(math.sqrt(2)), 50), {}, 26.29, 0.01),
        (sf.repeat(events.RandomizedResponseEvent(0.5), 100), {}, 31.17, 0.01),
        (sf.repeat(events.EpsilonDeltaEvent(0.1), 100), {}, 4.307, 1e-3),
    ],
)
def test_published_epsilons(event, options, expected, tolerance):
    assert epsilon(event, **options) == pytest.approx(expected, abs=tolerance)


def test_a_hundred_randomised_responses_are_counted_a_hundred_times():
    hundred = sf.repeat(events.RandomizedResponseEvent.from_noise_parameter(0.5), 100)
    exact = theorems.optimal(math.log(3), 0.0, 100, 1e-5)
    assert epsilon(hundred) == pytest.approx(exact, abs=1e-3)
    assert epsilon(hundred) == pytest.approx(90.79, abs=0.02)
    assert epsilon(hundred) > 50 * 1.099


def test_unsampled_slide_at_delta_a_tenth():
    assert sf.account(sf.dp_sgd(4, 1, 10_000), 0.1).epsilon == pytest.approx(343.6, abs=0.05)


def test_composition_theorems():
    assert theorems.basic(1.2, 1e-5, 10_000) == pytest.approx((12_000, 0.1))
    assert theorems.strong(1.2, 1e-5, 10_000, 1e-5)[0] == pytest.approx(28_417, abs=1)
    assert theorems.strong_tanh(1.2, 1e-5, 10_000, 1e-5)[0] == pytest.approx(7_020, abs=1)
    assert theorems.amplify(1.2, 0.01) == pytest.approx(0.02294, abs=5e-6)
    step = 0.02294
    assert theorems.strong(step, 1e-7, 10_000, 1e-5)[0] == pytest.approx(16.33, abs=0.02)
    assert theorems.strong_tanh(step, 1e-7, 10_000, 1e-5)[0] == pytest.approx(13.64, abs=0.02)


def test_group_privacy():
    three = sf.Guarantee(1.0, 1e-5, ADD).for_group(3)
    assert (three.epsilon, three.delta) == pytest.approx((3.0, 1.1107e-4), rel=1e-4)


@pytest.mark.parametrize(
    ("at", "delta"), [(0.125, 0.72709), (0.25, 0.24708), (0.5, 0.0029139), (1.0, 6.494e-10)]
)
def test_the_classic_accountants_own_example(at, delta):
    """A PCA with noise 7, then ten steps of two layers accounted one by one, as published."""
    event = sf.compose(events.GaussianEvent(7), sf.dp_sgd(4, 0.01, 20))
    assert moments_delta(event, at, ADD) == pytest.approx(delta, rel=2e-4)


def test_per_layer_clipping_is_one_joint_mechanism():
    """k layers, each clipped and noised with sigma, are one release with noise sigma / sqrt(k).

    Counting them as k independent sampled releases, as released code did, allows too many steps:
    36,412 instead of 31,581 at epsilon 8, sigma 2, k = 2 (classic accountant, q = 1 %).
    """

    def cost(noise, steps):
        return epsilon(sf.dp_sgd(noise, 0.01, steps), accountant="moments")

    assert cost(2 / math.sqrt(2), 31_581) <= 8 < cost(2 / math.sqrt(2), 31_700)
    assert cost(2, 2 * 36_412) <= 8 < cost(2, 2 * 36_600)


def test_fixed_size_samples_are_taken_at_the_distance_of_a_replacement():
    """A peer's 2.221 for this run takes the noise over one record's contribution.

    A replaced record moves the sum by twice that; so does, under zero-out, the record that takes a
    blanked one's place in a sample.
    """
    step = events.FixedSizeSampledEvent(events.GaussianEvent(4), 600, 60_000)
    for relation in ("replace-one", "zero-out"):
        run = sf.repeat(step, 10_000)
        assert epsilon(run, neighbours=relation) == pytest.approx(2.5616, abs=1e-3)
        assert epsilon(run, neighbours=relation, accountant="rdp") == pytest.approx(
            5.1368, abs=1e-3
        )
    with pytest.raises(ValueError, match="no add-remove guarantee"):
        epsilon(step, neighbours="add-remove")


def test_zero_out_of_a_fixed_size_sample_covers_the_known_counterexample():
    """All others contribute -C, one record +C or nothing: mixtures at 0, 2 against 0, 1."""
    sigma, q, width = 1.0, 0.1, 1e-3
    leaf = events.GaussianEvent(sigma, neighbours="zero-out")
    claimed = epsilon(events.FixedSizeSampledEvent(leaf, 10, 100), neighbours="zero-out")
    x = np.arange(-12, 15, width)
    with_record = (1 - q) * stats.norm.pdf(x) + q * stats.norm.pdf(x - 2)
    without = (1 - q) * stats.norm.pdf(x) + q * stats.norm.pdf(x - 1)
    assert np.maximum(with_record - math.exp(claimed) * without, 0).sum() * width <= 1e-5


@pytest.mark.parametrize(("target", "noise"), [(0.5, 5.515), (2, 1.711), (8, 0.7818)])
def test_noise_for_sixty_epochs(target, noise):
    found = sf.calibrate_noise(epsilon=target, delta=1e-5, sample_rate=0.01, steps=6_000)
    assert found == pytest.approx(noise, abs=3e-3)
    assert epsilon(sf.dp_sgd(found, 0.01, 6_000)) <= target


def test_private_pca_costs():
    for noise, expected in ((16, 0.2041), (7, 0.5025), (4, 0.9263)):
        assert epsilon(events.GaussianEvent(noise)) == pytest.approx(expected, abs=1e-4)


def test_tiny_sample_rates_are_not_inflated_by_the_grid():
    """A fixed grid of 1e-4 gives 0.1415; RDP, an upper bound of its own kind, already says less."""
    run = sf.dp_sgd(4, 1e-4, 1_000_000)
    assert epsilon(run) == pytest.approx(0.0763, abs=2e-4)
    assert epsilon(run) < epsilon(run, accountant="rdp") < 0.1415
