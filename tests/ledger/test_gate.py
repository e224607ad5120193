"""The gate against independent computations: limits, closed forms, and the best adversary."""

import dataclasses
import functools
import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import (
    DiscreteLaplaceEvent,
    EpsilonDeltaEvent,
    ExponentialEvent,
    FixedSizeSampledEvent,
    GaussianEvent,
    GroupedEvent,
    LaplaceEvent,
    ParallelEvent,
    PoissonSampledEvent,
    RandomizedResponseEvent,
    ZcdpEvent,
    compose,
    dp_sgd,
    repeat,
)
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import Budget
from sfumato.ledger.amounts import SATURATED, Vector
from sfumato.ledger.charges import charge
from sfumato.ledger.gate import Gate, choose_orders

BUDGETS = [
    Budget(0.1, 1e-9),
    Budget(1.0, 1e-5),
    Budget(1.0, 1e-5, opaque_delta=0.0),
    Budget(3.0, 1e-6),
    Budget(8.0, 1e-6, opaque_delta=1e-7),
    Budget(50.0, 1e-3),
]


def gate_of(budget):
    return Gate.of(budget, choose_orders(budget))


def cost(event, gate, neighbours=Neighbours.ADD_REMOVE):
    return charge(event, neighbours, gate.orders)


def delta_of(order, rdp, epsilon):
    """Proposition 12 of arXiv:2004.00010, in 50 digits."""
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        return mpmath.exp((a - 1) * (rdp - mpmath.mpf(epsilon))) / (a - 1) * (1 - 1 / a) ** a


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_limit_is_the_largest_rdp_that_proves_its_share_of_delta(budget):
    gate = gate_of(budget)
    conversion = mpmath.mpf(repr(budget.delta)) - mpmath.mpf(repr(budget.opaque))
    share = conversion / len(gate.orders)
    assert len(gate.orders) >= 4
    for order, limit in zip(gate.orders, gate.limits[1:], strict=True):
        with mpmath.workdps(50):
            at_limit = mpmath.mpf(limit) / 10**12
            beyond = at_limit + mpmath.mpf(10) ** -11 * (1 + abs(at_limit))
            assert delta_of(order, at_limit, budget.epsilon) <= share
            assert delta_of(order, beyond, budget.epsilon) > share
    total = sum(
        delta_of(order, mpmath.mpf(limit) / 10**12, budget.epsilon)
        for order, limit in zip(gate.orders, gate.limits[1:], strict=True)
    )
    # All shares and the opaque part make the budget's delta, and leave next to nothing of it.
    assert 0.999 * budget.delta < total + budget.opaque <= budget.delta * (1 + 1e-15)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_one_more_unit_is_refused(budget):
    gate = gate_of(budget)
    for place, limit in enumerate(gate.limits):
        if limit < 0:
            continue
        orders = [SATURATED] * len(gate.limits)
        orders[place] = limit
        assert gate.fits(Vector(tuple(orders), gate.slack))
        assert not gate.fits(Vector(tuple(orders), gate.slack + 1))
        orders[place] += 1
        assert not gate.fits(Vector(tuple(orders), gate.slack))


def test_a_pure_budget_adds_epsilons_exactly():
    gate = gate_of(Budget(3.0))
    assert gate.orders == ()
    spent = Vector.zero(1)
    for _ in range(30):
        spent = spent.plus(cost(LaplaceEvent(10.0), gate))
        assert gate.fits(spent)
    assert gate.reading(spent) == 3.0
    assert gate.left(spent) == 0.0
    assert not gate.fits(spent.plus(cost(EpsilonDeltaEvent(1e-12), gate)))
    assert not gate.fits(cost(GaussianEvent(1e6), gate))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("sigma", [20.0, 300.0])
def test_gaussian_spending_is_the_closed_form(budget, sigma):
    """n releases cost alpha n / (2 sigma^2): the number that fits, and the reading, by hand."""
    gate = gate_of(budget)
    share = (budget.delta - budget.opaque) / len(gate.orders)
    constant = [math.log1p(-1 / a) - (math.log(share) + math.log(a)) / (a - 1) for a in gate.orders]
    pairs = list(zip(gate.orders, constant, strict=True))
    most = max(0, *(math.floor((budget.epsilon - c) * 2 * sigma**2 / a) for a, c in pairs))
    allowed = cost(repeat(GaussianEvent(sigma), most), gate) if most else Vector.zero(7)
    assert gate.fits(allowed)
    assert not gate.fits(cost(repeat(GaussianEvent(sigma), most + 1), gate))
    if most:
        by_hand = min(most * a / (2 * sigma**2) + c for a, c in pairs)
        assert gate.reading(allowed) == pytest.approx(by_hand, rel=1e-9)


EVENTS = [
    LaplaceEvent(1.7),
    LaplaceEvent(3e5),
    DiscreteLaplaceEvent(3.3, 2),
    ExponentialEvent(0.4),
    EpsilonDeltaEvent(0.9),
    GroupedEvent(LaplaceEvent(12.0), 3, "record"),
    ParallelEvent((LaplaceEvent(2.0), DiscreteLaplaceEvent(9.0)), 2),
    PoissonSampledEvent(LaplaceEvent(0.5), 0.1),
    repeat(LaplaceEvent(30.0), 7),
    compose(LaplaceEvent(7.0), ExponentialEvent(0.01), EpsilonDeltaEvent(0.2)),
]


def pure_cost_in_epsilon(event):
    from sfumato.accounting import account

    return account(event, 0.0).epsilon


@given(
    st.sampled_from(EVENTS),
    st.sampled_from(BUDGETS),
    st.floats(0.01, 1.0),
    st.integers(1, 400),
)
@settings(max_examples=300)
def test_a_pure_release_of_what_is_left_passes(event, budget, fraction, gaussians):
    """Spend something, look at what is left, ask for that much of any pure kind."""
    gate = gate_of(budget)
    spent = Vector.zero(len(gate.limits))
    for before in (
        repeat(GaussianEvent(60.0), gaussians),
        EpsilonDeltaEvent(fraction * budget.epsilon),
    ):
        after = spent.plus(cost(before, gate))
        spent = after if gate.fits(after) else spent
    left = gate.left(spent)
    assert gate.fits(spent.plus(cost(EpsilonDeltaEvent(left), gate)))
    if pure_cost_in_epsilon(event) <= left:
        assert gate.fits(spent.plus(cost(event, gate)))
    if left > 0:
        assert gate.fits(spent.plus(cost(LaplaceEvent(math.nextafter(1 / left, math.inf)), gate)))
        assert gate.fits(spent.plus(cost(ExponentialEvent(left), gate)))


@given(st.floats(1e-9, 1e6), st.lists(st.floats(0.0, 0.4), max_size=3), st.booleans())
@settings(max_examples=500)
def test_so_it_does_at_any_size_whichever_way_it_is_stated(epsilon, fractions, pure):
    gate = gate_of(Budget(epsilon, 0.0 if pure else 1e-6))
    spent = Vector.zero(len(gate.limits))
    for fraction in fractions:
        after = spent.plus(cost(EpsilonDeltaEvent(fraction * epsilon), gate))
        spent = after if gate.fits(after) else spent
    left = gate.left(spent)
    for event in [EpsilonDeltaEvent(left)] + ([LaplaceEvent(1 / left)] if left > 0 else []):
        assert gate.fits(spent.plus(cost(event, gate)))
    if pure:  # and hardly anything more does
        more = EpsilonDeltaEvent(left * (1 + 1e-15) + 2e-12)
        assert not gate.fits(spent.plus(cost(more, gate)))


@given(st.sampled_from(BUDGETS), st.lists(st.integers(0, 2 * 10**12), min_size=7, max_size=7))
def test_the_reading_is_within_epsilon_exactly_while_some_order_fits(budget, numbers):
    gate = gate_of(budget)
    spent = Vector(tuple(numbers[: len(gate.limits)]), 0)
    assert (gate.reading_units(spent) <= gate.epsilon) == gate.fits(spent)


@given(st.sampled_from(BUDGETS), st.lists(st.sampled_from(EVENTS), max_size=6))
def test_the_reading_never_falls_and_nothing_left_means_refusal(budget, events):
    gate = gate_of(budget)
    spent, last = Vector.zero(len(gate.limits)), 0
    for event in events:
        spent = spent.plus(cost(event, gate))
        assert gate.reading_units(spent) >= last
        last = gate.reading_units(spent)
    assert gate.left(spent) >= 0
    if not gate.fits(spent):
        assert gate.left(spent) == 0


def test_an_opaque_release_charges_its_epsilon_and_its_delta():
    gate = gate_of(Budget(1.0, 1e-5, opaque_delta=1e-6))
    opaque = cost(EpsilonDeltaEvent(0.3, 4e-7), gate)
    assert opaque.orders == cost(EpsilonDeltaEvent(0.3), gate).orders
    assert opaque.orders[0] == 3 * 10**11
    assert opaque.slack == 4 * 10**11
    assert gate.fits(opaque.plus(opaque))
    assert not gate.fits(opaque.plus(opaque).plus(opaque))  # 1.2e-6 of 1e-6
    sampled = cost(PoissonSampledEvent(EpsilonDeltaEvent(0.3, 4e-7), 0.5), gate)
    assert sampled.orders[0] < opaque.orders[0]
    assert sampled.slack == 2 * 10**11
    assert cost(repeat(EpsilonDeltaEvent(0.3, 1e-7), 5), gate).slack == 5 * 10**11


def test_charges_are_the_accountants_vectors_rounded_up():
    gate = gate_of(Budget(3.0, 1e-6))
    for event in (dp_sgd(1.1, 0.004, 1000), ZcdpEvent(0.01), LaplaceEvent(2.0)):
        exact = rdp_vector(event, Neighbours.ADD_REMOVE, gate.orders).values
        for found, value in zip(cost(event, gate).orders[1:], exact, strict=True):
            assert 0 < found - value * 1e12 < 2 + 2e-12 * value * 1e12


def test_relations_convert_where_a_theorem_says_so():
    gate = gate_of(Budget(3.0, 1e-6))
    one, two = (
        cost(LaplaceEvent(4.0), gate, relation)
        for relation in (Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE)
    )
    assert two.orders[0] == 2 * one.orders[0]
    answer = RandomizedResponseEvent(1.0)
    assert cost(answer, gate, Neighbours.REPLACE_ONE).orders[0] == 10**12
    with pytest.raises(ValueError, match="says nothing about add-remove"):
        cost(answer, gate)
    with pytest.raises(ValueError, match="no add-remove guarantee"):
        cost(FixedSizeSampledEvent(GaussianEvent(2.0), 5, 100), gate)


@pytest.mark.parametrize(
    ("budget", "small", "large"),
    [
        (Budget(1.0, 0.05), 0.125, 0.25),
        (Budget(2.0, 0.01), 0.1, 0.2),
        (Budget(0.6, 0.1, opaque_delta=0.0), 0.1, 0.3),
    ],
)
def test_no_adaptive_adversary_beats_the_budget(budget, small, large):
    """The exact optimum over all adaptive strategies that mix two randomised responses."""
    gate = gate_of(budget)
    within = best_adversary(gate, budget.epsilon, small, large)
    assert 0 < within <= budget.conversion_delta
    loose = dataclasses.replace(gate, limits=tuple(3 * limit for limit in gate.limits))
    assert best_adversary(loose, budget.epsilon, small, large) > budget.delta


def best_adversary(gate, epsilon, small, large):
    """Max over strategies of E[(1 - e^(epsilon - L))_+].

    The next release may be chosen by the privacy loss so far, which is all that matters of the
    answers.
    """

    @functools.cache
    def best(loss, smalls, larges):
        stop = max(0.0, -math.expm1(epsilon - loss))
        options = [stop]
        for size in (small, large):
            more = (smalls + (size == small), larges + (size == large))
            if not gate.fits(total(*more)):
                continue
            kept = 1 / (1 + math.exp(-size))
            up = best(round(loss + size, 9), *more)
            options.append(kept * up + (1 - kept) * best(round(loss - size, 9), *more))
        return max(options)

    @functools.cache
    def total(smalls, larges):
        spent = Vector.zero(len(gate.limits))
        for size, count in ((small, smalls), (large, larges)):
            if count:
                spent = spent.plus(cost(repeat(EpsilonDeltaEvent(size), count), gate))
        return spent

    return best(0.0, 0, 0)


def test_the_orders_are_a_function_of_the_budget_alone():
    assert choose_orders(Budget(1.0)) == ()
    assert choose_orders(Budget(1.0, 1e-6, opaque_delta=1e-6)) == ()
    for budget in BUDGETS:
        orders = choose_orders(budget)
        assert orders == tuple(sorted(set(orders)))
        assert all(order > 1.05 for order in orders)
        assert max(Gate.of(budget, orders).limits[1:]) > 0


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0, 1e3, 1e5, 1e6])
def test_every_budget_with_a_delta_admits_gaussian_noise(epsilon):
    budget = Budget(epsilon, 1e-5)
    gate = Gate.of(budget, choose_orders(budget))
    noise = GaussianEvent(1000 / epsilon)
    assert gate.fits(charge(noise, Neighbours.ADD_REMOVE, gate.orders))
