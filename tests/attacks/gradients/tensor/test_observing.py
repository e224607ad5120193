"""Defences: what each does to a gradient, and what that does to the attack."""

import numpy as np
import pytest

from sfumato.attacks.gradients.tensor import observing
from sfumato.attacks.gradients.tensor.activations import CUBIC

SIZES = (25, 20_000, 2)
SEEDS = 8


def seen(case):
    return case.network.gradient(case.inputs, case.labels)


def whole(defend):
    """From a gradient to what is seen of it, all units kept."""
    return lambda case: (defend(case), case.network.hidden)


@pytest.fixture
def error(mean_error):
    def measure(see=None):
        return mean_error(CUBIC, *SIZES, seeds=SEEDS, see=see)

    return measure


# --- what they do ---------------------------------------------------------------------------------


def test_noise_has_the_spread_asked_for(draw):
    case = draw(CUBIC, 5, 40_000, 2, seed=0)
    added = observing.noisy(seen(case), 0.5, generator=case.random) - seen(case)
    assert added.std() == pytest.approx(0.5 * seen(case).std(), rel=0.03)
    assert added.mean() == pytest.approx(0, abs=5 * added.std() / 200)


def test_clipping_scales_down_only():
    gradient = np.array([3.0, 4.0])
    np.testing.assert_allclose(observing.clipped(gradient, 1.0), [0.6, 0.8])
    np.testing.assert_allclose(observing.clipped(gradient, 9.0), gradient)


def test_private_sum_without_noise_is_the_sum_of_clipped_gradients():
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    random = np.random.default_rng(0)
    found = observing.privatised(rows, 1.0, 0.0, generator=random)
    np.testing.assert_allclose(found, [0.6 + 0.3, 0.8 + 0.4])
    loose = observing.privatised(rows, 100.0, 0.0, generator=random)
    np.testing.assert_allclose(loose, rows.sum(axis=0))


def test_private_noise_is_the_multiplier_times_the_norm():
    random = np.random.default_rng(0)
    found = observing.privatised(np.zeros((2, 40_000)), 3.0, 0.5, generator=random)
    assert found.std() == pytest.approx(1.5, rel=0.03)


def test_dropout_keeps_the_mean_and_tells_the_mask():
    random = np.random.default_rng(0)
    found, kept = observing.dropped(np.ones(40_000), 0.3, generator=random)
    assert kept.mean() == pytest.approx(0.7, abs=5 * np.sqrt(0.21 / 40_000))
    assert set(found[kept].tolist()) == {1 / 0.7}
    assert not found[~kept].any()


def test_pruning_keeps_the_largest():
    gradient = np.array([0.1, -5.0, 2.0, -0.2, 3.0])
    assert observing.pruned(gradient, 0.6).tolist() == [0.0, -5.0, 0.0, 0.0, 3.0]
    assert observing.pruned(gradient, 0.0).tolist() == gradient.tolist()
    assert gradient[0] == 0.1  # what was given stays as it was


def test_local_steps_are_a_gradient_with_the_sum_of_residuals(draw):
    case = draw(CUBIC, 8, 500, 3, seed=0)
    rate = 0.01 / 500
    total, output, residuals = 0.0, case.network.output, []
    for _ in range(4):
        now = case.network.with_output(output)
        residuals.append(now.residuals(case.inputs, case.labels))
        total, output = total + seen_by(now, case), output - rate * seen_by(now, case)
    found = observing.locally_summed(case.network, case.inputs, case.labels, 4, rate)
    np.testing.assert_allclose(found, total)
    alike = case.network.features(case.inputs) @ np.sum(residuals, axis=0)
    np.testing.assert_allclose(found, alike)
    assert np.abs(residuals[3] - residuals[0]).max() > 0.05  # steps that do something


def seen_by(network, case):
    return network.gradient(case.inputs, case.labels)


# --- what that is worth ---------------------------------------------------------------------------


def test_clipping_the_whole_gradient_protects_nothing(error):
    clipped = error(whole(lambda case: observing.clipped(seen(case), 1e-3)))
    assert clipped == pytest.approx(error(), rel=1e-6)


def test_local_steps_protect_nothing(error):
    def stepping(case):
        rate = 0.1 / (16 * case.network.width)
        return observing.locally_summed(case.network, case.inputs, case.labels, 8, rate)

    assert error(whole(stepping)) == pytest.approx(error(), rel=0.1)


def test_dropout_costs_as_many_units_as_it_drops(error):
    """Left out, error / sqrt(1 - p); taken for zeros, more."""

    def leaving_out(case):
        found, kept = observing.dropped(seen(case), 0.5, generator=case.random)
        return found[kept], case.network.hidden[kept]

    plain, known = error(), error(leaving_out)
    zeros = error(whole(lambda case: observing.dropped(seen(case), 0.5, generator=case.random)[0]))
    assert known / plain == pytest.approx(np.sqrt(2), rel=0.1)
    assert zeros > 1.15 * known


def test_noise_and_pruning_grow_with_their_size(error):
    plain = error()
    noise = [
        error(whole(lambda case, s=s: observing.noisy(seen(case), s, generator=case.random)))
        for s in (0.5, 2.0)
    ]
    assert plain < noise[0] < 1.3 * plain
    assert noise[1] > 1.7 * plain
    pruned = [
        error(whole(lambda case, p=p: observing.pruned(seen(case), p))) for p in (0.5, 0.9, 0.99)
    ]
    assert pruned[0] == pytest.approx(plain, rel=0.1)  # half the units say next to nothing
    assert plain * 1.15 < pruned[1] < pruned[2]


def test_private_noise_worth_a_guarantee_leaves_nothing(error):
    def private(multiplier):
        def see(case):
            rows = case.network.example_gradients(case.inputs, case.labels)
            norm = float(np.median(np.linalg.norm(rows, axis=1)))
            return observing.privatised(rows, norm, multiplier, generator=case.random)

        return whole(see)

    assert error(private(0.0)) == pytest.approx(error(), rel=0.1)
    assert error(private(1.0)) > 1  # one number's noise is that of sqrt(m) numbers' signal


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda g, r: observing.noisy(g, -1, generator=r), r"multiple must be .* got -1"),
        (lambda g, r: observing.noisy([[1.0]], 1, generator=r), r"gradient must be .* \(1, 1\)"),
        (lambda g, r: observing.clipped(g, 0), r"norm must be .* got 0"),
        (lambda g, r: observing.dropped(g, 1.0, generator=r), r"share must be .* got 1.0"),
        (lambda g, r: observing.pruned(g, -0.1), r"share must be .* got -0.1"),
        (lambda g, r: observing.pruned([np.nan], 0.1), r"gradient must be finite"),
        (
            lambda g, r: observing.privatised(g, 1, 1, generator=r),
            r"example_gradients must be finite numbers in 2 dimension\(s\), got \(3,\)",
        ),
        (
            lambda g, r: observing.privatised([g], 1, -2, generator=r),
            r"noise_multiplier must be .* got -2",
        ),
    ],
)
def test_bad_parameters_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call(np.ones(3), np.random.default_rng(0))


def test_steps_and_rates_are_told(draw):
    case = draw(CUBIC, 3, 20, 1, seed=0)
    with pytest.raises(ValueError, match=r"steps must be .* got 0"):
        observing.locally_summed(case.network, case.inputs, case.labels, 0, 0.1)
    with pytest.raises(ValueError, match=r"rate must be .* got -0.1"):
        observing.locally_summed(case.network, case.inputs, case.labels, 1, -0.1)
