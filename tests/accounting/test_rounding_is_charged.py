"""Floating point must not make an epsilon smaller: what it loses is charged."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import events
from sfumato.accounting import theorems
from sfumato.accounting.convolution import bound, repeated
from sfumato.accounting.dpa import DEFAULT_ORDERS, LossMasses
from sfumato.accounting.gaussian_losses import gaussian_losses
from sfumato.accounting.pld import LossDistribution, delta_at
from sfumato.accounting.rdp import rdp_vector
from sfumato.core.gaussian_profile import composed_multiplier, gaussian_delta, gaussian_epsilon

ADD, REPLACE = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE
DELTAS = (1e-3, 1e-5, 1e-8, 1e-10, 1e-11, 1e-12)


@settings(max_examples=25)
@given(st.floats(-1, 1), st.floats(0.5, 5.5))
@pytest.mark.slow
def test_many_gaussian_steps_are_never_below_one_release_of_them_all(log_mu, log_steps):
    mu, steps = 10**log_mu, int(10**log_steps)
    grid = max(min(1e-4, mu / steps**0.5 / 10), 2 * (mu**2 + 15 * mu) / 2**20)
    (one,) = gaussian_losses(steps**0.5 / mu, 1.0, False, grid)
    losses = LossDistribution([repeated(one, steps, 1e-15)])
    for delta in DELTAS:
        assert losses.epsilon(delta) >= gaussian_epsilon(1 / mu, delta)


@pytest.mark.parametrize(
    ("epsilon", "count"), [(0.5, 100), (0.1, 10_000), (0.01, 10**6), (1, 1_000)]
)
def test_many_opaque_steps_are_never_below_their_theorem(epsilon, count):
    event = sf.repeat(events.EpsilonDeltaEvent(epsilon), count)
    for delta in DELTAS:
        truth = theorems.optimal(epsilon, 0.0, count, delta)
        found = sf.account(event, delta)
        assert truth * (1 - 1e-9) <= found.epsilon <= truth * 1.15
        assert found.accountant == "pld" or "does not resolve" in found.note


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=8),
    st.integers(-5, 3),
    st.integers(2, 12),
)
def test_repetition_is_convolution(weights, lowest, count):
    probs = (np.array(weights) + 1e-3) / (np.sum(weights) + 1e-3 * len(weights))
    step = LossMasses(lowest, probs * 0.999, 0.001, 0.1)
    direct = np.ones(1)
    for _ in range(count):
        direct = np.convolve(direct, step.probs)
    truth = LossMasses(count * lowest, direct, 1 - 0.999**count, 0.1)
    found = repeated(step, count, 1e-15)
    at = np.linspace(0, 5, 21)
    assert delta_at(found, at) == pytest.approx(delta_at(truth, at), abs=1e-12)
    assert np.all(delta_at(found, at) >= delta_at(truth, at))


def test_the_window_holds_all_but_the_tail():
    (one,) = gaussian_losses(30.0, 1.0, False, 1e-3)
    nothing = LossMasses(0, np.ones(1), 0.0, 1e-3)
    for tail in (1e-3, 1e-10):
        edge = bound(one, nothing, 1000, tail, upper=True) * 1e-3
        mu = 1000**0.5 / 30
        exact = math.erfc((edge - mu**2 / 2) / mu / math.sqrt(2)) / 2
        assert exact <= tail


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_an_rdp_next_to_zero_is_not_rounded_to_zero(relation):
    """At q = 1e-8 the RDP is 1.7e-16 a step: nothing beside 1, and not nothing a billion times."""
    sigma, q, steps = 1.0, 1e-8, 10**9
    least = q**2 * math.expm1(1 / sigma**2)  # the chi-square divergence, whose ln(1 + .) is order 2
    values = rdp_vector(sf.dp_sgd(sigma, q, steps), relation, (2.0, 4.0, 32.0)).values
    assert np.all(values >= steps * least * (1 - 1e-6))
    assert sf.account(sf.dp_sgd(sigma, q, steps), 1e-5, accountant="rdp").epsilon > 0


@given(st.floats(-9, -2), st.sampled_from(["laplace", "discrete", "response", "opaque"]))
def test_rdp_of_tiny_pure_releases(log_epsilon, kind):
    epsilon = 10**log_epsilon
    event = {
        "laplace": events.LaplaceEvent(1 / epsilon),
        "discrete": events.DiscreteLaplaceEvent(1 / epsilon),
        "response": events.RandomizedResponseEvent(epsilon),
        "opaque": events.EpsilonDeltaEvent(epsilon),
    }[kind]
    orders = np.array([o for o in DEFAULT_ORDERS if o * epsilon < 0.05])
    found = rdp_vector(event, event.relation, tuple(orders.tolist())).values
    # To second order all four are alpha eps^2 / 2, which is a bound as well.
    exact = orders * epsilon**2 / 2
    assert np.all(found >= exact * (1 - epsilon * orders))
    charged = (
        1e-13 if kind == "discrete" else 2e-15
    )  # its sums over integers are rounded more often
    assert np.all(found <= exact * 1.0001 + charged * orders / (orders - 1))


@given(st.lists(st.tuples(st.floats(1e-160, 1e160), st.integers(0, 10**9)), max_size=6))
def test_composed_noise_neither_overflows_nor_exceeds_its_least(releases):
    counted = [(m, n) for m, n in releases if n]
    found = composed_multiplier(releases)
    if not counted:
        assert found == math.inf
    else:
        assert 0 <= found <= min(m for m, _ in counted)


def test_composed_noise_is_pythagoras():
    assert composed_multiplier([(3.0, 1), (4.0, 1)]) == pytest.approx(12 / 5)
    assert composed_multiplier([(4.0, 10_000)]) == pytest.approx(0.04)


@pytest.mark.parametrize("noise", [0.3, 1.0, 20.0])
def test_the_grid_is_above_the_closed_form_everywhere(noise):
    (one,) = gaussian_losses(noise, 1.0, False, 1e-3)
    for epsilon in np.linspace(0, 3 / noise + 2, 30):
        stated = delta_at(one, np.array([epsilon]))[0]
        exact = gaussian_delta(noise, float(epsilon))
        assert exact * (1 - 1e-9) <= stated <= exact * 1.01 + 1e-12


@pytest.mark.parametrize("q", [1e-10, 1e-8, 1e-5, 0.1])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
def test_rdp_of_rarely_sampled_gaussians_is_not_rounded_to_zero(q, sigma):
    """At order 2 it is ln(1 + q^2 (e^(1/sigma^2) - 1)), which a logarithm near 1 would lose."""
    exact = math.log1p(q * q * math.expm1(1 / sigma**2))
    step = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    (found,) = rdp_vector(step, sf.Neighbours.ADD_REMOVE, (2.0,)).values
    assert exact <= found <= exact * (1 + 1e-9) + 1e-14
