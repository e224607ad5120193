"""Least squares from the tensor attack's estimate: exact without noise, as good as can be with."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from sfumato.attacks.gradients.tensor import observing, polishing
from sfumato.attacks.gradients.tensor.activations import (
    ACTIVATIONS,
    CUBIC,
    RELU,
    SIGMOID,
    TANH,
)
from sfumato.attacks.gradients.tensor.network import unit_inputs
from sfumato.attacks.gradients.tensor.polishing import fit_cost, polish, polished_error
from sfumato.attacks.gradients.tensor.scoring import match_inputs

SMALL = (10, 4000, 2)


def seen(case):
    return case.network.gradient(case.inputs, case.labels)


def true_residuals(case):
    return case.network.residuals(case.inputs, case.labels)


def polished(case, found, gradient, hidden=None, **options):
    weights = case.network.hidden if hidden is None else hidden
    return polish(found, gradient, weights, case.activation, **options)


def error(case, found):
    return match_inputs(found, case.inputs).error


# --- without noise --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=lambda one: one.name)
def test_exact_without_noise(activation, draw, attack):
    case = draw(activation, *SMALL, seed=0, labels=[1, 1])
    found = attack(case, labels=case.labels).found
    last = polished(case, found, seen(case))
    match = match_inputs(last, case.inputs)
    assert error(case, found) > 0.05
    assert match.error < 1e-12
    np.testing.assert_allclose(last.residuals[match.order], true_residuals(case), atol=1e-12)
    assert fit_cost(last, seen(case), case.network.hidden, activation) < 1e-18


def test_inputs_that_are_alike(draw, attack):
    """Cosine 0.8, labels of both signs."""
    case = draw(CUBIC, *SMALL, seed=1, labels=[1, -1])
    case.inputs[1] = 0.8 * case.inputs[0] + 0.6 * across(case.inputs[0], case.random)
    assert error(case, polished(case, attack(case).found, seen(case))) < 1e-12


def across(x, random):
    other = random.normal(size=x.shape)
    other -= (other @ x) * x
    return other / np.linalg.norm(other)


def test_lengths_are_found_where_they_may_change(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    long = case.inputs * [[1.3], [0.8]]
    gradient = case.network.gradient(long, case.labels)
    found = attack(case, gradient).found
    free = polished(case, found, gradient, unit=False)
    assert match_inputs(free, long).error < 1e-9
    kept = polished(case, found, gradient)
    np.testing.assert_allclose(np.linalg.norm(kept.inputs, axis=1), 1)
    assert error(case, kept) > 1e-3  # no unit vectors fit


def test_relu_does_not_tell_lengths_from_residuals(draw, attack):
    """Yet their product, and no warning of a singular matrix."""
    case = draw(RELU, *SMALL, seed=0)
    last = polished(case, attack(case).found, seen(case), unit=False)
    order = match_inputs(last, case.inputs).order
    found = (last.inputs * np.abs(last.residuals)[:, None])[order]
    np.testing.assert_allclose(
        found, case.inputs * np.abs(true_residuals(case))[:, None], atol=1e-9
    )


# --- behind defences ------------------------------------------------------------------------------


def test_dropout_and_factors_leave_it_exact(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    gradient, kept = observing.dropped(seen(case), 0.5, generator=case.random)
    hidden = case.network.hidden
    found = attack(case, gradient[kept], hidden[kept]).found
    left = polished(case, found, gradient[kept], hidden[kept])
    assert error(case, left) < 1e-12
    assert left.width == kept.sum()
    weighted = polished(case, found, gradient, weights=kept)
    np.testing.assert_allclose(weighted.inputs, left.inputs, atol=1e-12)
    assert weighted.width == kept.sum()
    clipped = observing.clipped(seen(case), 1e-3)
    assert error(case, polished(case, attack(case, clipped).found, clipped)) < 1e-12


def test_local_steps_leave_it_exact(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    rate = 0.1 / (16 * case.network.width)
    total = observing.locally_summed(case.network, case.inputs, case.labels, 8, rate)
    assert error(case, polished(case, attack(case, total).found, total)) < 1e-12


def test_pruned_numbers_are_bounded_by_those_left(draw, attack):
    """200 numbers for 20 unknowns; as zeros, the 19,800 others would be wrong equations."""
    case = draw(CUBIC, 10, 20_000, 2, seed=0)
    gradient = observing.pruned(seen(case), 0.99)
    found = attack(case, gradient).found
    assert error(case, polished(case, found, gradient, pruned=True)) < 1e-12
    assert error(case, polished(case, found, gradient)) > 0.1


def test_bounds_tell_what_too_few_numbers_do_not(draw, attack):
    """10 numbers for 20 unknowns: what is left out narrows it down."""
    errors = []
    for seed in range(5):
        case = draw(CUBIC, 10, 20_000, 2, seed)
        gradient = observing.pruned(seen(case), 1 - 10 / 20_000)
        found = attack(case, gradient).found
        ignored = polished(case, found, gradient, weights=gradient != 0)
        bounded = polished(case, found, gradient, pruned=True)
        errors.append([error(case, ignored), error(case, bounded)])
    ignored, bounded = np.mean(errors, axis=0)
    assert bounded < 0.9 * ignored


# --- with noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "noise"), [(CUBIC, 1.0), (TANH, 0.5), (SIGMOID, 0.1), (RELU, 1.0)],
    ids=lambda one: getattr(one, "name", str(one)),
)  # fmt: skip
def test_errors_with_noise_are_those_of_the_linear_problem(activation, noise, draw, attack):
    """Of 12 runs with 58 numbers each the root of the mean square is known to 3 %."""
    found, wanted, first = [], [], []
    for seed in range(12):
        case = draw(activation, 30, 5000, 2, seed, labels=[1, 1])
        spread = noise * seen(case).std()
        gradient = observing.noisy(seen(case), noise, generator=case.random)
        start = attack(case, gradient, labels=case.labels).found
        first.append(error(case, start) ** 2)
        found.append(error(case, polished(case, start, gradient)) ** 2)
        hidden = case.network.hidden
        wanted.append(
            polished_error(hidden, activation, case.inputs, true_residuals(case), spread) ** 2
        )
    assert np.sqrt(np.mean(found) / np.mean(wanted)) == pytest.approx(1, abs=0.15)
    assert np.mean(found) < 0.5 * np.mean(first)


def test_expected_error_in_closed_form():
    """E sigma'^2 is 4 + 27 for z^2 + z^3; known residuals and free lengths change one number."""
    hidden = np.random.default_rng(0).normal(size=(400_000, 8))
    x = np.eye(8)[:1]
    wanted = 3.0 * np.sqrt(7 / (31 * 400_000)) / 0.5
    assert polished_error(hidden, CUBIC, x, [-0.5], 3.0) == pytest.approx(wanted, rel=0.02)
    known = polished_error(hidden, CUBIC, x, [-0.5], 3.0, known=True)
    assert known == pytest.approx(wanted, rel=0.02)
    both = [polished_error(hidden, CUBIC, x, [1.0], 1.0, unit=False, known=k) for k in (0, 1)]
    assert both[0] > 1.02 * both[1] > 1.02 * wanted / 6


def test_expected_error_by_differences(draw):
    """The Jacobian as differences, on the tangent of the sphere."""
    case = draw(CUBIC, 4, 60, 2, seed=0)
    x, r, hidden = case.inputs, true_residuals(case), case.network.hidden

    def fitted(theta):
        return CUBIC.value(hidden @ theta[:8].reshape(2, 4).T) @ theta[8:]

    at, step = np.append(x.ravel(), r), 1e-6
    jacobian = np.stack(
        [(fitted(at + step * e) - fitted(at - step * e)) / (2 * step) for e in np.eye(10)], axis=1
    )
    tangent = np.eye(10)[:, [8, 9]]
    for i in range(2):
        block = np.zeros((10, 3))
        block[4 * i : 4 * i + 4] = np.linalg.svd(x[i][None])[2][1:].T
        tangent = np.hstack([tangent, block])
    spread = tangent @ np.linalg.inv(tangent.T @ jacobian.T @ jacobian @ tangent) @ tangent.T
    wanted = 0.7 * np.sqrt(np.trace(spread[:8, :8]) / 2)
    assert polished_error(hidden, CUBIC, x, r, 0.7) == pytest.approx(wanted, rel=1e-6)


def test_known_sizes_of_residuals_help_where_inputs_are_alike(draw, attack):
    """Cosine 0.9: by the linear problem, and measured."""
    found, wanted = [], []
    for seed in range(20):
        case = draw(CUBIC, 5, 4000, 2, seed, labels=[1, -1])
        case.network = case.network.with_output(np.zeros(4000))  # residuals are minus labels
        case.inputs[1] = 0.9 * case.inputs[0] + 0.19**0.5 * across(case.inputs[0], case.random)
        spread = 0.2 * seen(case).std()
        gradient = observing.noisy(seen(case), 0.2, generator=case.random)
        free = polished(case, attack(case, gradient).found, gradient)
        held = polished(case, free, gradient, size=1.0)
        assert set(np.abs(held.residuals)) == {1.0}
        found.append([error(case, free) ** 2, error(case, held) ** 2])
        truth = case.network.hidden, CUBIC, case.inputs, true_residuals(case), spread
        wanted.append([polished_error(*truth, known=known) ** 2 for known in (False, True)])
    ratios = np.sqrt(np.mean(found, axis=0) / np.mean(wanted, axis=0))
    np.testing.assert_allclose(ratios, 1, atol=0.15)
    free, held = np.sqrt(np.mean(found, axis=0))
    assert held < 0.95 * free


# --- it never gets worse --------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 30])
@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_never_fits_worse_than_its_start(steps, noise, draw, attack):
    for seed in range(3):
        case = draw(CUBIC, *SMALL, seed)
        gradient = observing.noisy(seen(case), noise, generator=case.random)
        found = attack(case, gradient).found
        random = replace(found, inputs=unit_inputs(2, 10, generator=case.random))
        for start in (found, random):
            last = polished(case, start, gradient, steps=steps)
            costs = [fit_cost(f, gradient, case.network.hidden, CUBIC) for f in (start, last)]
            assert costs[1] <= costs[0]


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize(
    "inputs", [np.zeros((2, 10)), np.ones((2, 10)), 1e3 * np.eye(10)[:2]], ids=["0", "same", "long"]
)
def test_wrong_starts_do_not_crash(inputs, unit, draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    start = replace(attack(case).found, inputs=inputs, residuals=np.zeros(2))
    last = polished(case, start, seen(case), unit=unit)
    assert np.isfinite(last.inputs).all()
    assert np.isfinite(last.residuals).all()


def test_nothing_seen_changes_nothing_but_residuals(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    found = attack(case).found
    for options in ({"weights": np.zeros(4000)}, {"pruned": True}):
        last = polished(case, found, np.zeros(4000), **options)
        np.testing.assert_allclose(last.inputs, found.inputs)
        assert fit_cost(last, np.zeros(4000), case.network.hidden, CUBIC, **options) == 0


def test_already_exact_stays(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    truth = replace(attack(case).found, inputs=case.inputs, residuals=true_residuals(case))
    last = polished(case, truth, seen(case))
    np.testing.assert_allclose(last.inputs, case.inputs, atol=1e-14)


def test_blocks_do_not_matter(monkeypatch, draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    gradient = observing.noisy(seen(case), 1.0, generator=case.random)
    found = attack(case, gradient).found
    whole = polished(case, found, gradient).inputs
    monkeypatch.setattr(polishing, "_AT_ONCE", 999)
    np.testing.assert_allclose(polished(case, found, gradient).inputs, whole, atol=1e-9)


def test_weights_are_variances_turned_over(draw, attack):
    """Half of the units ten times as noisy: told so, the fit is better for it."""
    told, untold = [], []
    for seed in range(4):
        case = draw(CUBIC, *SMALL, seed)
        spread = np.where(np.arange(4000) % 2, 1.0, 10.0)
        gradient = seen(case) + spread * case.random.normal(size=4000)
        found = attack(case, gradient).found
        told.append(error(case, polished(case, found, gradient, weights=1 / spread**2)))
        untold.append(error(case, polished(case, found, gradient)))
    assert np.mean(told) < 0.5 * np.mean(untold)


# --- records and errors ---------------------------------------------------------------------------


def test_result_is_like_its_start(draw, attack):
    case = draw(CUBIC, *SMALL, seed=0)
    found = attack(case).found
    before = found.inputs.copy()
    last = polished(case, found, seen(case))
    np.testing.assert_array_equal(found.inputs, before)
    assert (last.signs, last.misfit, last.width) == (found.signs, found.misfit, 4000)
    with pytest.raises(FrozenInstanceError):
        last.inputs = before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gradient": np.ones(29)}, r"gradient must be a finite number for each of 30 .*\(29,\)"),
        ({"gradient": np.full(30, np.inf)}, r"gradient must be a finite number"),
        ({"hidden": np.ones(30)}, r"hidden must be a row of d weights for each unit, got \(30,\)"),
        ({"hidden": np.ones((30, 4))}, r"found must be of inputs of 4 numbers, got \(2, 10\)"),
        ({"weights": -np.ones(30)}, r"weights must be 0 or above for each of 30 units"),
        ({"weights": np.ones(29)}, r"weights must be .* got \(29,\)"),
        ({"size": 0}, r"size must be .* got 0"),
        ({"steps": 0}, r"steps must be .* got 0"),
    ],
)
def test_bad_parameters_are_told(change, told, draw, attack):
    given = {"gradient": np.ones(30), "hidden": np.ones((30, 10))} | change
    with pytest.raises(ValueError, match=told):
        polish(attack(draw(CUBIC, *SMALL, seed=0)).found, activation=CUBIC, **given)


def test_bad_truths_are_told():
    with pytest.raises(ValueError, match=r"inputs must be of inputs of 3 numbers, got \(2, 4\)"):
        polished_error(np.ones((9, 3)), CUBIC, np.ones((2, 4)), [1, 1], 1.0)
    with pytest.raises(ValueError, match=r"residuals must be one for each of 2 inputs"):
        polished_error(np.ones((9, 3)), CUBIC, np.ones((2, 3)), [1], 1.0)
    with pytest.raises(ValueError, match=r"noise must be .* got -1"):
        polished_error(np.ones((9, 3)), CUBIC, np.ones((2, 3)), [1, 1], -1)
