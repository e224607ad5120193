"""Composition of opaque releases: the exact answer by brute force, and the bounds around it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import events
from sfumato.accounting import theorems
from sfumato.accounting.opaque import basic_epsilon, strong_epsilon

ADD = sf.Neighbours.ADD_REMOVE


def worst_case_delta(steps, at):
    """Delta at ``at`` of the worst pairs for a list of (eps, del), outcome by outcome."""
    total = 0.0
    for outcome in itertools.product((0, 1, 2), repeat=len(steps)):
        p = q = 1.0
        for (eps, delta), o in zip(steps, outcome, strict=True):
            high, low = (1 - delta) / (1 + math.exp(-eps)), (1 - delta) / (1 + math.exp(eps))
            p *= (delta, high, low)[o]
            q *= (0.0, low, high)[o]
        total += max(0.0, p - math.exp(at) * q)
    return total


@given(
    st.floats(0.01, 2), st.sampled_from([0.0, 1e-6, 1e-3]), st.integers(1, 6), st.floats(1e-8, 0.3)
)
def test_the_optimal_theorem_is_exact(eps, delta, steps, target):
    found = theorems.optimal(eps, delta, steps, target)
    if math.isinf(found):
        assert 1 - (1 - delta) ** steps > target
        return
    reached = worst_case_delta([(eps, delta)] * steps, found)
    assert reached <= target * (1 + 1e-9)
    if 0 < found < steps * eps * (1 - 1e-9):
        assert worst_case_delta([(eps, delta)] * steps, found * (1 - 1e-6)) > target


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.floats(0.01, 1.5), st.sampled_from([0.0, 1e-4])), min_size=1, max_size=6),
    st.floats(1e-3, 0.2),
)
def test_every_accountant_covers_the_worst_mixture(steps, target):
    event = sf.compose(*(events.EpsilonDeltaEvent(eps, delta) for eps, delta in steps))
    for name in ("pld", "rdp", "strong", "basic"):
        found = sf.account(event, target, accountant=name).epsilon
        assert worst_case_delta(steps, found) <= target * (1 + 1e-6)


@given(st.floats(1e-3, 3), st.integers(1, 3000), st.sampled_from([1e-3, 1e-6, 1e-9]))
def test_optimal_is_below_every_other_theorem(eps, steps, slack):
    best = theorems.optimal(eps, 0.0, steps, slack) - 1e-9
    assert best <= theorems.basic(eps, 0.0, steps)[0]
    assert best <= theorems.strong(eps, 0.0, steps, slack)[0]
    assert best <= theorems.strong_tanh(eps, 0.0, steps, slack)[0]


def test_optimal_at_the_ends():
    assert theorems.optimal(1.0, 1e-5, 1, 1e-5) == pytest.approx(1.0)  # all of delta is given
    assert theorems.optimal(1.0, 1e-5, 2, 1e-5) == math.inf
    assert theorems.optimal(0.0, 0.0, 10, 1e-5) == 0.0
    assert theorems.optimal(1000.0, 0.0, 3, 1e-5) == pytest.approx(3000, rel=1e-8)
    # A billion steps neither overflow nor fill the memory; there, the sum is all but normal.
    many = theorems.optimal(1e-6, 0.0, 10**9, 1e-5)
    assert many == pytest.approx(
        sf.account(events.GaussianEvent(10**4.5 / 1e3), 1e-5).epsilon, rel=1e-3
    )


def test_small_targets_keep_their_digits():
    """1 - (1 - delta) loses them all below 1e-16."""
    at = theorems.optimal(0.5, 0.0, 20, 1e-17)
    losses = 0.5 * (20 - 2 * np.arange(21))
    log_p = [
        math.log(math.comb(20, k)) + 0.5 * (20 - k) - 20 * math.log1p(math.exp(0.5))
        for k in range(21)
    ]
    delta = sum(
        math.exp(p) * -math.expm1(at - loss)
        for p, loss in zip(log_p, losses, strict=True)
        if loss > at
    )
    assert delta == pytest.approx(1e-17, rel=1e-6)


@given(st.floats(1e-6, 50), st.floats(1e-6, 1))
def test_amplification(eps, q):
    amplified = theorems.amplify(eps, q)
    assert amplified <= eps * (1 + 1e-12)
    if eps < 20:
        assert math.expm1(amplified) == pytest.approx(q * math.expm1(eps), rel=1e-9)
    if eps <= 1.2564:
        assert amplified <= 2 * q * eps


def test_amplification_far_out_and_the_printed_shortcut():
    assert theorems.amplify(1000.0, 0.5) == pytest.approx(1000 + math.log(0.5))
    assert theorems.amplify(2.0, 0.01) > 2 * 0.01 * 2.0  # "at most 2 q eps" ends at 1.2564


def test_given_deltas_are_spent_before_any_is_shared():
    given_only = sf.repeat(events.EpsilonDeltaEvent(0.1, 6e-8), 100)
    assert strong_epsilon(given_only, 1e-5, ADD) == pytest.approx(
        theorems.optimal(0.1, 6e-8, 100, 1e-5)
    )
    exactly = sf.compose(events.EpsilonDeltaEvent(1.0, 1e-5), events.LaplaceEvent(10.0))
    assert basic_epsilon(exactly, 1e-5, ADD) == pytest.approx(1.1)
    assert sf.account(exactly, 1e-5).epsilon <= 1.1 + 1e-9
    needy = sf.compose(events.EpsilonDeltaEvent(1.0, 1e-5), events.GaussianEvent(1.0))
    for name in ("pld", "rdp", "strong", "basic"):
        assert sf.account(needy, 1e-5, accountant=name).epsilon == math.inf


def test_deltas_that_use_up_the_target_leave_nothing_but_the_sum():
    """And those that are more than it prove nothing."""
    both = sf.compose(events.EpsilonDeltaEvent(0.1, 5e-6), events.EpsilonDeltaEvent(0.2, 5e-6))
    for solve in (strong_epsilon, basic_epsilon):
        assert solve(both, 1e-5, ADD) == pytest.approx(0.3)
        assert solve(both, 9e-6, ADD) == math.inf


def test_a_release_that_is_known_by_its_rdp_alone_is_summed_too():
    curve = events.RdpCurveEvent((2.0, 16.0, 64.0), (0.001, 0.008, 0.032))
    alone = sf.account(curve, 5e-6, accountant="rdp").epsilon
    assert alone > 0
    assert basic_epsilon(sf.repeat(curve, 2), 1e-5, ADD) == pytest.approx(2 * alone)


def test_the_strong_theorems_add_up_deltas():
    """Each step's own and what the bound itself takes: never more than 1."""
    for theorem in (theorems.strong, theorems.strong_tanh):
        assert theorem(0.1, 1e-7, 50, 1e-6)[1] == pytest.approx(50e-7 + 1e-6)
        assert theorem(0.1, 0.5, 50, 1e-6)[1] == 1.0
