"""How far one row moves a layer's coefficients: never further than said, and as far."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm
from sfumato.learning.autoencoder.printed import code_noise_scale, printed_bound
from sfumato.learning.autoencoder.releases import LayerRelease
from sfumato.learning.autoencoder.sensitivity import layer_bound, square_weight, whole_bound

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
BOTH = pytest.mark.parametrize("neighbours", [REPLACE, ADD])
NORMS = pytest.mark.parametrize("norm", [Norm.L1, Norm.L2])


def release(norm, neighbours, columns=5, width=3):
    return LayerRelease(columns, width, 10, norm, 1.0, neighbours)


def length(values, norm):
    return float(np.linalg.norm(values, 1 if norm is Norm.L1 else 2))


def told(layer, row):
    inputs, codes = row
    return layer.told(np.atleast_2d(inputs), np.atleast_2d(codes))


def moved(layer, one, other):
    """By a neighbour step: from one row to another, or to none."""
    before = told(layer, one)
    after = told(layer, other) if layer.neighbours is REPLACE else 0.0
    return length(before - after, layer.norm)


def rows(columns, width):
    ends = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    return st.tuples(
        st.lists(ends, min_size=columns, max_size=columns).map(np.array),
        st.lists(ends, min_size=width, max_size=width).map(np.array),
    )


@BOTH
@NORMS
@settings(max_examples=50)
@given(rows(5, 3), rows(5, 3))
def test_no_row_moves_them_further(norm, neighbours, one, other):
    layer = release(norm, neighbours)
    assert moved(layer, one, other) <= layer_bound(5, 3, norm, neighbours) * (1 + 1e-12)


@BOTH
@NORMS
@pytest.mark.parametrize(("columns", "width"), [(1, 1), (1, 9), (2, 30), (40, 3)])
def test_none_of_many_ends_of_ranges_does_either(norm, neighbours, columns, width):
    """Codes far outnumber inputs in some, where squares weigh most."""
    layer, rng = release(norm, neighbours, columns, width), np.random.default_rng(0)
    bound = layer_bound(columns, width, norm, neighbours)
    most = 0.0
    for _ in range(400):
        share = rng.random(4)
        one, other = (
            (1.0 * (rng.random(columns) < a), np.where(rng.random(width) < b, 1.0, rng.random()))
            for a, b in (share[:2], share[2:])
        )
        most = max(most, moved(layer, one, other))
    assert most <= bound * (1 + 1e-12)


@BOTH
@NORMS
@pytest.mark.parametrize(("columns", "width"), [(1, 1), (5, 3), (3, 40)])
def test_one_row_moves_them_as_far(norm, neighbours, columns, width):
    layer, codes = release(norm, neighbours, columns, width), np.ones(width)
    found = moved(layer, (np.zeros(columns), codes), (np.ones(columns), codes))
    assert found == pytest.approx(layer_bound(columns, width, norm, neighbours), rel=1e-9)
    assert found < layer.mechanism.sensitivity.bound  # rounding is counted besides


def test_a_larger_weight_would_cost_a_replacement_something():
    """Of Laplace noise: between codes of 1 and codes of 0.91, with a weight that is 10 % larger."""
    d, b, t = 7, 4, 1 / 1.1
    layer = release(Norm.L1, REPLACE, d, b)
    first, second = (np.zeros(d), np.ones(b)), (np.ones(d), np.full(b, t))
    apart = abs(told(layer, first) - told(layer, second))
    assert apart.sum() <= d * b
    assert apart[: d * b].sum() + 1.1 * apart[d * b :].sum() > 1.002 * d * b


@BOTH
def test_squares_are_weighed_as_said(neighbours):
    laplace, normal = release(Norm.L1, neighbours), release(Norm.L2, neighbours)
    codes = np.array([1.0, 0.5, 0.25])
    for layer, apart in ((laplace, 1.0), (normal, math.sqrt(2))):
        found = told(layer, (np.full(5, 0.5), codes))[15:]
        weight = square_weight(5, 3, layer.norm) / 8
        wanted = np.array([1, 0.5 * apart, 0.25 * apart, 0.25, 0.125 * apart, 0.0625]) * weight
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_figures_in_print_and_ours():
    assert printed_bound(784, 25) == 142100
    assert code_noise_scale(784, 25, 8.0, 50_000) == pytest.approx(0.35525)
    assert whole_bound(784, 25) == 19756.25
    assert layer_bound(784, 25, Norm.L1, REPLACE) == 19600
    assert layer_bound(784, 25, Norm.L1, ADD) == 14700
    assert layer_bound(784, 25, Norm.L2, REPLACE) == 140
    assert layer_bound(784, 25, Norm.L2, ADD) == pytest.approx(85.732, abs=1e-3)


@given(rows(5, 3), rows(5, 3))
def test_the_simple_bound_holds_without_weights(one, other):
    """Of the linear part, and of all of h h' / 8."""
    (x, h), (y, g) = one, other
    apart = np.abs(np.outer(0.5 - x, h) - np.outer(0.5 - y, g)).sum()
    assert apart + np.abs(np.outer(h, h) - np.outer(g, g)).sum() / 8 <= whole_bound(5, 3)


def test_blanking_out_is_refused_with_its_remedy():
    with pytest.raises(ValueError, match=r"neighbours='replace-one' covers"):
        layer_bound(3, 2, Norm.L1, Neighbours.ZERO_OUT)
    with pytest.raises(ValueError, match="replace-one"):
        LayerRelease.pure(3, 2, 10, epsilon=1.0, neighbours=Neighbours.ZERO_OUT)
