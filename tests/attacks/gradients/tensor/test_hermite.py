"""Stein's identity, exactly: means over a grid of quadrature nodes are integrals."""

import numpy as np
import pytest
from scipy.special import roots_hermitenorm

from sfumato.attacks.gradients.tensor import hermite
from sfumato.attacks.gradients.tensor.activations import CUBIC, SIGMOID, SOFTPLUS, TANH
from sfumato.attacks.gradients.tensor.network import unit_inputs

SMOOTH = [CUBIC, TANH, SIGMOID, SOFTPLUS]
RESIDUALS = np.array([1.0, -0.7])


def nodes(dimension, each=40):
    """Weights w and numbers p with which mean(p f(w)) is E[f(w)] for w ~ N(0, I)."""
    points, masses = roots_hermitenorm(each)
    grid = np.stack(np.meshgrid(*[points] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    products = np.prod(np.meshgrid(*[masses / masses.sum()] * dimension, indexing="ij"), axis=0)
    return grid, products.ravel() * len(grid)


@pytest.fixture(params=SMOOTH, ids=lambda one: one.name)
def exact(request):
    """An activation, inputs, weights, and values whose means are expectations."""
    inputs = unit_inputs(2, 3, generator=np.random.default_rng(3))
    weights, masses = nodes(3)
    values = masses * (request.param.value(weights @ inputs.T) @ RESIDUALS)
    return request.param, inputs, weights, values


def powers(inputs, coefficients, order):
    letters = "abcd"[:order]
    return np.einsum(
        f"i,{','.join('i' + one for one in letters)}->{letters}", coefficients, *[inputs] * order
    )


def test_second_order(exact):
    activation, inputs, weights, values = exact
    wanted = powers(inputs, activation.means[2] * RESIDUALS, 2)
    np.testing.assert_allclose(hermite.second_moment(values, weights), wanted, atol=1e-7)


def test_third_order(exact):
    activation, inputs, weights, values = exact
    wanted = powers(inputs, activation.means[3] * RESIDUALS, 3)
    np.testing.assert_allclose(hermite.third_moment(values, weights), wanted, atol=1e-6)
    along = np.array([0.3, -0.5, 0.9])
    contracted = hermite.third_moment_along(values, weights, along)
    np.testing.assert_allclose(contracted, wanted @ along, atol=1e-6)


def test_fourth_order(exact):
    activation, inputs, weights, values = exact
    along = np.array([0.3, -0.5, 0.9])
    wanted = powers(inputs, activation.means[4] * RESIDUALS, 4) @ along
    found = hermite.fourth_moment_along(values, weights, along)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_fourth_order_is_not_nothing():
    """Of z^4 the fourth derivative is 24 everywhere."""
    weights, masses = nodes(2, 8)
    x, along = np.array([0.6, 0.8]), np.array([1.0, 2.0])
    found = hermite.fourth_moment_along(masses * (weights @ x) ** 4, weights, along)
    np.testing.assert_allclose(found, 24 * (x @ along) * powers(x[None], [1.0], 3), atol=1e-10)


def test_sample_means_converge_to_it():
    """At random weights, within five standard errors: so also without a quadrature."""
    random = np.random.default_rng(0)
    weights, x = random.normal(size=(400_000, 2)), np.array([0.6, 0.8])
    values = CUBIC.value(weights @ x)
    rest = hermite.regress(values, weights).rest
    each = rest[:, None, None] * (weights[:, :, None] * weights[:, None, :] - np.eye(2))
    error = each.std(axis=0) / np.sqrt(len(weights))
    gaps = np.abs(hermite.second_moment(rest, weights) - 2 * np.outer(x, x))
    assert (gaps < 5 * error).all()
    assert error.max() < 0.04  # a constant wrong by a tenth would show


def test_blocks_do_not_matter(monkeypatch):
    random = np.random.default_rng(0)
    values, weights = random.normal(size=999), random.normal(size=(999, 3))
    calls = (hermite.third_moment, hermite.without_squares)
    whole = [call(values, weights) for call in calls]
    monkeypatch.setattr(hermite, "_AT_ONCE", 500)
    for call, wanted in zip(calls, whole, strict=True):
        np.testing.assert_allclose(call(values, weights), wanted, atol=1e-12)


def test_the_control_variate_takes_all_that_is_linear():
    random = np.random.default_rng(1)
    weights = random.normal(size=(5000, 4)) + 0.3  # a mean that is not 0 does no harm
    slope = np.array([1.0, -2.0, 0.5, 0.0])
    linear = hermite.regress(3 + weights @ slope, weights)
    np.testing.assert_allclose(linear.slope, slope, atol=1e-10)
    np.testing.assert_allclose(linear.rest, 0, atol=1e-10)
    curved = hermite.regress(np.tanh(weights @ slope), weights).rest
    np.testing.assert_allclose(weights.T @ curved, 0, atol=1e-8)
    assert curved.mean() == pytest.approx(0, abs=1e-12)


def test_squares_are_taken_out_whole():
    random = np.random.default_rng(1)
    weights = random.normal(size=(2000, 3))
    a, b, c = weights.T
    rest = hermite.without_squares(1 + a - 2 * b * c + 3 * c**2, weights)
    np.testing.assert_allclose(rest, 0, atol=1e-10)
    cubic = hermite.without_squares(a * b * c, weights)
    assert cubic.std() > 0.9
    assert abs((cubic * a * b).mean()) < 1e-10


def test_torch_gives_the_same():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(2)
    values, weights = random.normal(size=800), random.normal(size=(800, 3))
    there = torch.as_tensor(values), torch.as_tensor(weights)
    along = np.array([1.0, 2.0, 3.0])
    for call in (hermite.second_moment, hermite.third_moment):
        np.testing.assert_allclose(call(*there), call(values, weights), atol=1e-12)
    for call in (hermite.third_moment_along, hermite.fourth_moment_along):
        np.testing.assert_allclose(call(*there, along), call(values, weights, along), atol=1e-12)
    for call in (hermite.without_squares, lambda *pair: hermite.regress(*pair).rest):
        np.testing.assert_allclose(hermite.home(call(*there)), call(values, weights), atol=1e-12)
