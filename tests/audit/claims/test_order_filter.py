"""The attack on a filter that picks its order late, and that it is the lateness that breaks it."""

import numpy as np
import pytest

from sfumato.accounting.rdp import epsilon_from_rdp
from sfumato.audit.claims import order_filter
from sfumato.audit.claims.order_filter import ORDERS, audit_filter, limit, transcript
from sfumato.audit.exact import hockey_stick
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

PROMISE = Guarantee(10.0, 1e-5, Neighbours.ADD_REMOVE)
USEFUL = [order for order in ORDERS if limit(order, 10.0, 1e-5) > order / 2]


@pytest.mark.parametrize("order", ORDERS)
def test_a_limit_converts_back_to_the_budget(order):
    spent = limit(order, 10.0, 1e-5)
    if spent > 0:
        assert epsilon_from_rdp((order,), np.array([spent]), 1e-5) == pytest.approx(10.0)


@pytest.mark.parametrize("order", USEFUL)
def test_any_one_order_fixed_in_advance_keeps_its_promise(order):
    assert hockey_stick(*transcript(10.0, 1e-5, (order,)), 10.0) <= 1e-5


def test_one_order_nearly_uses_up_delta_and_the_best_of_them_exceeds_it():
    fixed = max(hockey_stick(*transcript(10.0, 1e-5, (order,)), 10.0) for order in USEFUL)
    assert 0.99e-5 < fixed <= 1e-5
    assert hockey_stick(*transcript(10.0, 1e-5), 10.0) == pytest.approx(1.70e-5, rel=0.01)


def test_dividing_delta_among_the_orders_repairs_it():
    assert hockey_stick(*transcript(10.0, 1e-5 / len(ORDERS)), 10.0) <= 1e-5
    assert not audit_filter(1e-5 / len(ORDERS), PROMISE).refuted


def test_transcripts_are_laws_and_every_coin_passed():
    p, q = transcript(10.0, 1e-5)
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    heads = p[: len(p) // 2] / (p[: len(p) // 2] + p[len(p) // 2 :])
    assert (heads > 0).all()


def test_a_coin_costs_what_its_order_has_left():
    missing = np.linspace(2.0, 12.0, 50)
    for order in USEFUL:
        room = limit(order, 10.0, 1e-5) - order / 2
        p, q = order_filter._coin(missing, order, room)
        cost = order_filter._cost(p, q, order)
        assert (cost <= room).all()
        assert ((q > 0) & (q < p) & (p < 1)).all()


def test_the_cost_of_a_coin_is_its_renyi_divergence():
    p, q, order = 0.3, 0.1, 2.0
    direct = np.log(p**2 / q + (1 - p) ** 2 / (1 - q))
    other = np.log(q**2 / p + (1 - q) ** 2 / (1 - p))
    shown = order_filter._cost(np.array([p]), np.array([q]), order)[0]
    assert shown == pytest.approx(max(direct, other))


def test_a_budget_too_small_for_the_first_answer_is_an_error():
    with pytest.raises(ValueError, match="first answer"):
        transcript(0.1, 1e-5)
