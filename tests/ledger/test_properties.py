"""Whatever is asked, in whatever order: the laws of the ledger."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import (
    EpsilonDeltaEvent,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    RepeatedEvent,
    repeat,
)
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger.verify import replay

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    opened = Ledger(tmp_path_factory.mktemp("ledger") / "privacy.db")
    yield opened
    opened.close()


def rounded(low, high):
    return st.floats(low, high).map(lambda value: float(f"{value:.3g}"))


events = st.one_of(
    rounded(1, 200).map(LaplaceEvent),
    rounded(5, 400).map(GaussianEvent),
    rounded(0.01, 1).map(ExponentialEvent),
    st.builds(EpsilonDeltaEvent, rounded(0.01, 0.5), st.sampled_from([0.0, 1e-8, 3e-7])),
    st.builds(
        lambda noise, n: repeat(GaussianEvent(noise), n), rounded(20, 400), st.integers(2, 30)
    ),
)
budgets = st.sampled_from(
    [Budget(1.0), Budget(1.0, 1e-6), Budget(3.0, 1e-5, opaque_delta=1e-6), Budget(0.5, 1e-9)]
)
analysts = st.sampled_from(["", "ann", "bob"])


def new_dataset(ledger, budget):
    name = f"d{next(_numbers)}"
    ledger.create(name, budget)
    return name


def try_to_spend(ledger, name, event, analyst=""):
    try:
        with ledger.spend(name, event, analyst=analyst) as spending:
            if isinstance(event, RepeatedEvent) and event.count % 3 == 0:
                spending.stop_after(event.count // 3, "fixed plan")
            spending.commit(1)
    except BudgetExceeded:
        return None
    return spending


def ran(event):
    if isinstance(event, RepeatedEvent) and event.count % 3 == 0:
        return RepeatedEvent(event.event, event.count // 3)
    return event


def proves_the_cap(budget, orders, released):
    """From the events alone, in floats: some order proves the cap for all of them together."""
    vectors = [rdp_vector(event, Neighbours.ADD_REMOVE, orders) for event in released]
    slack = math.fsum(vector.slack for vector in vectors)
    if slack > budget.opaque * (1 + 1e-9):
        return False
    pure = [getattr(event, "epsilon", None) for event in released]
    pure = [
        1 / event.noise_multiplier if isinstance(event, LaplaceEvent) else epsilon
        for event, epsilon in zip(released, pure, strict=True)
    ]
    if None not in pure and math.fsum(pure) <= budget.epsilon * (1 + 1e-12):
        return True
    if not orders:
        return False
    a = np.asarray(orders)
    total = np.sum([vector.values for vector in vectors], axis=0)
    share = (budget.delta - budget.opaque) / len(orders)
    return bool(np.any(total + np.log1p(-1 / a) - np.log(share * a) / (a - 1) <= budget.epsilon))


@given(budgets, st.lists(st.tuples(events, analysts), max_size=8))
@settings(max_examples=60)
def test_no_sequence_of_requests_exceeds_a_budget(shared, budget, requests):
    name = new_dataset(shared, budget)
    cap = Budget(budget.epsilon / 2, budget.delta / 2)
    shared.grant(name, "ann", cap)
    released = [
        (ran(event), analyst)
        for event, analyst in requests
        if try_to_spend(shared, name, event, analyst)
    ]
    orders = shared.terms(name).gate.orders
    assert proves_the_cap(budget, orders, [event for event, _ in released])
    assert proves_the_cap(cap, orders, [event for event, who in released if who == "ann"])
    status = shared.status(name, declared=False)
    assert status.reading <= budget.epsilon
    assert shared.verify(name).ok
    assert try_to_spend(shared, name, EpsilonDeltaEvent(status.left)) is not None


@given(budgets, st.lists(events, max_size=6))
@settings(max_examples=40)
def test_previews_agree_with_spending(shared, budget, requests):
    name = new_dataset(shared, budget)
    for one, event in zip(shared.preview(name, requests).events, requests, strict=True):
        if not one.passes:
            with pytest.raises(BudgetExceeded, match=re.escape(one.reason)):
                shared.spend(name, event)
            continue
        spending = shared.spend(name, event)
        assert (one.cost, one.reading) == (spending.cost, spending.reading)
        assert one.left == spending.left


@given(st.lists(events, max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_the_order_of_charges_does_not_matter(shared, requests, random):
    large = Budget(1000.0, 1e-4)
    shuffled = random.sample(requests, len(requests))
    totals = []
    for sequence in (requests, shuffled):
        name = new_dataset(shared, large)
        for event in sequence:
            assert try_to_spend(shared, name, event)
        totals.append(replay(name, shared.history(name)).spent)
    assert totals[0] == totals[1]


@given(st.lists(events, min_size=1, max_size=5))
@settings(max_examples=30)
def test_the_cached_totals_are_the_fold_of_the_entries(shared, requests):
    name = new_dataset(shared, Budget(3.0, 1e-5))
    for event in requests:
        try_to_spend(shared, name, event)
        folded = replay(name, shared.history(name))
        with shared._book.reading(name) as (_, cached):
            assert (cached.spent, cached.head) == (folded.spent, folded.head)
            assert cached.sequence == folded.sequence


@given(st.integers(1, 40), rounded(2, 100))
@settings(max_examples=30)
def test_n_releases_cost_what_one_of_n_parts_does_at_infinity(shared, count, noise):
    one, whole = new_dataset(shared, Budget(1000.0)), new_dataset(shared, Budget(1000.0))
    for _ in range(count):
        with shared.spend(one, LaplaceEvent(noise)):
            pass
    with shared.spend(whole, repeat(LaplaceEvent(noise), count)):
        pass
    readings = [shared.status(name, declared=False).reading for name in (one, whole)]
    assert readings[1] <= readings[0] <= readings[1] + 1e-12 * count
