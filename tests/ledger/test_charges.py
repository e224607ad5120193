"""What a release is charged: at every order, at infinity and in delta, as often as it is made."""

import pytest

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    GroupedEvent,
    LaplaceEvent,
    ParallelEvent,
    PoissonSampledEvent,
    compose,
    repeat,
)
from sfumato.core.neighbours import Neighbours
from sfumato.ledger.amounts import SATURATED, delta_up, epsilon_up
from sfumato.ledger.charges import charge, require_unit
from sfumato.ledger.errors import LedgerError

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
ORDERS = (2.0, 8.0, 32.0)
OPAQUE = EpsilonDeltaEvent(0.1, 1e-8)
RELEASES = [
    OPAQUE,
    LaplaceEvent(10.0),
    GaussianEvent(20.0),
    PoissonSampledEvent(GaussianEvent(2.0), 0.1),
    ParallelEvent((LaplaceEvent(10.0), OPAQUE), 3),
]


@pytest.mark.parametrize("event", RELEASES)
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_seven_releases_cost_seven_times_one(event, relation):
    one, seven = charge(event, relation, ORDERS), charge(repeat(event, 7), relation, ORDERS)
    assert seven == charge(compose(*[event] * 7), relation, ORDERS)
    assert seven.slack == 7 * one.slack
    for single, many in zip(one.orders, seven.orders, strict=True):
        assert many == SATURATED if single == SATURATED else many <= 7 * single
        assert many >= 7 * single * (1 - 1e-6) - 14 or single == SATURATED


@pytest.mark.parametrize("event", RELEASES)
def test_a_charge_is_never_below_the_divergence(event):
    vector = charge(event, ADD, ORDERS)
    true = rdp_vector(event, ADD, ORDERS)
    assert all(
        units >= value * 1e12 for units, value in zip(vector.orders[1:], true.values, strict=True)
    )
    assert vector.slack >= delta_up(true.slack)


def test_at_infinity_epsilons_add_up_and_gaussians_have_none():
    both = compose(OPAQUE, LaplaceEvent(10.0), repeat(LaplaceEvent(4.0), 3))
    assert charge(both, ADD, ORDERS).orders[0] == pytest.approx(epsilon_up(0.95), abs=3)
    assert charge(compose(both, GaussianEvent(20.0)), ADD, ORDERS).orders[0] == SATURATED
    parts = ParallelEvent((LaplaceEvent(10.0), LaplaceEvent(5.0)), 2)
    assert charge(parts, ADD, ORDERS).orders[0] == epsilon_up(0.4)
    assert charge(parts, REPLACE, ORDERS).orders[0] == epsilon_up(0.8)
    sampled = PoissonSampledEvent(OPAQUE, 0.1)
    assert charge(sampled, ADD, ORDERS).orders[0] < epsilon_up(0.02)


def test_what_is_more_than_can_be_counted_never_fits():
    assert charge(repeat(OPAQUE, 10**18), ADD, ORDERS).slack == SATURATED


def test_a_release_for_others_is_not_charged():
    for event in (LaplaceEvent(1.0, unit="label"), GroupedEvent(OPAQUE, 3, "person")):
        with pytest.raises(LedgerError, match="protects one"):
            require_unit(event, "record")
    hidden = GroupedEvent(LaplaceEvent(1.0, unit="label"), 3, "person")
    with pytest.raises(LedgerError, match="the event protects one label"):
        require_unit(hidden, "person")
    require_unit(GroupedEvent(OPAQUE, 3, "person"), "person")
