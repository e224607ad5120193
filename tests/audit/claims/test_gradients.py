"""Claims about shared gradients: their laws, their constants, and what is needless in them."""

import math

import numpy as np
import pytest

from sfumato.audit.claims import Kind, claim, run_claims
from sfumato.audit.claims.gradients import linear_gradient, seen_of_one_example
from sfumato.core.gaussian_profile import gaussian_delta
from sfumato.mechanisms.sensitivity import gradient_noise

EXACT = {"gradient-norm-as-printed": (2.0, 1.0), "only-a-linear-combination": (math.inf, 1.0)}


@pytest.fixture(scope="module")
def results():
    return {result.claim.name: result for result in run_claims(EXACT)}


@pytest.mark.parametrize(("name", "figures"), EXACT.items())
def test_figures(name, figures, results):
    found, corrected = figures
    assert claim(name).kind is Kind.EXACT
    assert results[name].found.epsilon == pytest.approx(found, rel=1e-4)
    assert results[name].corrected.epsilon == pytest.approx(corrected, rel=1e-4)
    assert results[name].refuted
    assert results[name].repaired


def test_the_gradient_is_that_of_the_squared_loss():
    """By differences."""
    random = np.random.default_rng(0)
    x, y = random.random((3, 4)), random.random(3)
    hidden, output = random.standard_normal((6, 4)), random.standard_normal(6)
    found, step = linear_gradient(x, y, hidden, output), 1e-6
    for j, k in [(0, 0), (2, 3), (5, 1)]:
        moved = [hidden.copy(), hidden.copy()]
        moved[0][j, k] += step
        moved[1][j, k] -= step
        losses = [np.square(x @ w.T @ output - y).sum() for w in moved]
        assert found[j, k] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-6)


def test_of_one_example_everything_is_seen_of_two_a_mixture():
    random = np.random.default_rng(1)
    hidden, output = random.standard_normal((6, 4)), random.standard_normal(6)
    x = random.random((2, 4))
    one = seen_of_one_example(linear_gradient(x[:1], np.ones(1), hidden, output), output)
    assert np.allclose(one, x[0] / x[0].max())
    two = seen_of_one_example(linear_gradient(x, np.ones(2), hidden, output), output)
    assert not any(np.allclose(two, row / row.max(), atol=0.01) for row in x)


# --- Laplace's route and the Gaussian one -------------------------------------------------------


def test_noise_by_the_notes():
    """m = 1000, d = 784: a standard deviation of 79,196 at epsilon 1 for the weights alone."""
    found = gradient_noise(1000, 784, epsilon=1.0, delta=1e-5)
    assert found.unclipped == pytest.approx(math.sqrt(2) * 58_000)
    assert found.clipped == pytest.approx(math.sqrt(2 * 785_000))
    assert gaussian_delta(found.gaussian, 1.0) == pytest.approx(1e-5, rel=1e-6)


def test_only_the_gaussian_route_forgets_the_size():
    small, large = (gradient_noise(m, 100, epsilon=2.0, delta=1e-6) for m in (100, 10_000))
    assert large.gaussian == small.gaussian
    assert large.clipped == pytest.approx(10 * small.clipped)
    assert large.unclipped == pytest.approx(100 * small.unclipped)
    wide = gradient_noise(100, 100, epsilon=2.0, delta=1e-6, clip=3.0)
    assert (wide.gaussian, wide.clipped) == pytest.approx((3 * small.gaussian, 3 * small.clipped))


def test_laplace_noise_of_that_size_is_what_the_clip_needs():
    """A gradient of L2 norm C spread over D numbers has an L1 norm of C sqrt(D): the worst one."""
    clip, numbers, epsilon = 2.0, 300, 1.5
    worst = np.full(numbers, clip / math.sqrt(numbers))
    scale = gradient_noise(100, 2, epsilon=epsilon, delta=1e-5, clip=clip).clipped / math.sqrt(2)
    assert np.abs(worst).sum() / scale == pytest.approx(epsilon)


@pytest.mark.parametrize(
    "changes", [{"epsilon": 0.0}, {"delta": 0.0}, {"delta": 1.0}, {"clip": -1.0}]
)
def test_bad_parameters_are_refused(changes):
    with pytest.raises(ValueError, match="must be"):
        gradient_noise(10, 10, **({"epsilon": 1.0, "delta": 1e-5} | changes))
