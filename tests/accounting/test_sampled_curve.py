"""Poisson sampling of a release known by its RDP: exact Gaussians, and random pairs of laws."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import account, sampled_curve
from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    PoissonSampledEvent,
    RandomizedResponseEvent,
    RdpCurveEvent,
    ZcdpEvent,
    repeat,
)
from sfumato.core.neighbours import Neighbours

WHOLE = tuple(float(order) for order in range(2, 65))


def divergence(p, q, order):
    return math.log(float(np.sum(p**order * q ** (1 - order)))) / (order - 1)


@pytest.mark.parametrize("sigma", [0.7, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.2])
def test_equal_to_the_exact_sampled_gaussian_at_whole_orders(sigma, rate):
    event = GaussianEvent(sigma)
    exact = rdp_vector(PoissonSampledEvent(event, rate), Neighbours.ADD_REMOVE, WHOLE).values
    mine = rdp_vector(sampled_curve(event, rate, symmetric=True), Neighbours.ADD_REMOVE, WHOLE)
    assert mine.values == pytest.approx(exact, rel=1e-6, abs=1e-13)
    assert np.all(mine.values >= exact * (1 - 1e-7) - 2e-15)
    general = rdp_vector(sampled_curve(event, rate), Neighbours.ADD_REMOVE, WHOLE).values
    assert np.all(general >= mine.values)


@pytest.mark.parametrize("symmetric", [True, False])
def test_epsilon_after_many_steps_is_an_upper_bound_and_close(symmetric):
    exact = account(
        repeat(PoissonSampledEvent(GaussianEvent(1.0), 0.01), 1000), 1e-5, accountant="rdp"
    )
    mine = account(
        repeat(sampled_curve(GaussianEvent(1.0), 0.01, symmetric=symmetric), 1000), 1e-5,
        accountant="rdp",
    )  # fmt: skip
    assert (
        exact.epsilon * (1 - 1e-9) <= mine.epsilon <= (1.02 if symmetric else 1.3) * exact.epsilon
    )


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.floats(0.01, 0.9), st.integers(2, 12), st.floats(0.1, 3.0))
def test_random_pairs_both_ways_round(seed, rate, order, spread):
    """The general bound, for pairs that are no mirror images."""
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(6, 1.0)) + 1e-4
    p = q * np.exp(spread * rng.normal(size=6))
    p, q = p / p.sum(), q / q.sum()
    orders = tuple(float(a) for a in range(2, 13))
    values = [max(divergence(p, q, a), divergence(q, p, a), 0.0) for a in orders]
    event = RdpCurveEvent(orders, tuple(np.maximum.accumulate(values)))
    curve = sampled_curve(event, rate, largest_order=12)
    found = dict(zip(curve.orders, curve.values, strict=True))[float(order)]
    mixed = (1 - rate) * q + rate * p
    worst = max(divergence(mixed, q, order), divergence(q, mixed, order))
    assert worst <= found + 1e-12


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.floats(0.01, 0.9), st.integers(2, 12), st.floats(0.1, 3.0))
def test_random_mirror_images_both_ways_round(seed, rate, order, spread):
    rng = np.random.default_rng(seed)
    q = np.exp(spread * rng.normal(size=6))
    q /= q.sum()
    p = q[::-1]
    orders = tuple(float(a) for a in range(2, 13))
    event = RdpCurveEvent(orders, tuple(max(divergence(p, q, a), 0.0) for a in orders))
    curve = sampled_curve(event, rate, symmetric=True, largest_order=12)
    found = dict(zip(curve.orders, curve.values, strict=True))[float(order)]
    mixed = (1 - rate) * q + rate * p
    assert divergence(q, mixed, order) <= divergence(mixed, q, order) + 1e-12
    assert divergence(mixed, q, order) == pytest.approx(found, rel=1e-7, abs=1e-12)


def test_the_inequality_behind_mirror_images():
    rng = np.random.default_rng(7)
    q, a = rng.uniform(0, 1, 10**6), 1 + np.exp(rng.uniform(-4, 4, 10**6))
    r = np.exp(rng.uniform(0, 12, 10**6))
    up, down = np.log1p(q * (r - 1)), np.log1p(q * (1 / r - 1))
    left = np.logaddexp(a * up, np.log(r) + a * down)
    right = np.logaddexp((1 - a) * up, np.log(r) + (1 - a) * down)
    assert np.min(left - right) > -1e-12


def test_edges():
    event = ZcdpEvent(0.3, Neighbours.ZERO_OUT, "client")
    whole = sampled_curve(event, 1.0)
    assert whole.neighbours is Neighbours.ZERO_OUT
    assert whole.unit == "client"
    assert whole.values == pytest.approx([0.3 * order for order in whole.orders], rel=0.1)
    tiny = sampled_curve(event, 1e-9, symmetric=True)
    assert tiny.values[0] == pytest.approx(1e-18 * math.expm1(0.6), rel=1e-6)
    laplace = sampled_curve(LaplaceEvent(1.0), 0.1, symmetric=True, largest_order=4)
    assert laplace.orders[-1] == 4
    short = RdpCurveEvent((2.0, 5.0), (0.1, 0.2))
    assert sampled_curve(short, 0.5).orders[-1] == 5
    with pytest.raises(ValueError, match="add-remove or zero-out"):
        sampled_curve(RandomizedResponseEvent(1.0), 0.1)
    with pytest.raises(ValueError, match="no delta beside"):
        sampled_curve(EpsilonDeltaEvent(1.0, 1e-6), 0.1)
    with pytest.raises(ValueError, match="order 2"):
        sampled_curve(RdpCurveEvent((1.5,), (0.1,)), 0.1)
    with pytest.raises(ValueError, match="sample_rate"):
        sampled_curve(event, 0.0)


def test_a_factor_too_many_or_too_few_is_seen():
    """A tenth off anywhere would be: at order 2 the value is ln(1 + q^2 (e^v - 1))."""
    curve = sampled_curve(ZcdpEvent(0.5), 0.1, symmetric=True)
    assert curve.values[0] == pytest.approx(math.log1p(0.01 * math.expm1(1.0)), rel=1e-8)


def test_between_whole_orders_the_chord():
    curve = RdpCurveEvent.of_whole_orders(lambda order: 0.1 * order, 100)
    for order, value in zip(curve.orders, curve.values, strict=True):
        assert (
            0.1 * order <= value * (1 + 1e-12) <= 0.1 * order * (1 + 0.26 / (order * (order - 1)))
        )
    assert curve.orders[0] == 2
    assert curve.orders[-1] == 100
