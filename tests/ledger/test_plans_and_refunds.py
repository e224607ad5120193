"""Plans charged as one, and steps given back."""

import copy
from datetime import timedelta

import pytest

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, LaplaceEvent, dp_sgd, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import Budget, BudgetExceeded, LedgerError
from sfumato.ledger.amounts import Vector
from sfumato.ledger.charges import charge

STEP = GaussianEvent(40.0)
PLAN = [STEP, LaplaceEvent(5.0), repeat(STEP, 10)]


@pytest.fixture
def census(ledger):
    ledger.create("census", Budget(3.0, 1e-5))
    return ledger


def spent(ledger, name="census"):
    return ledger.status(name, declared=False).reading


# --- plans --------------------------------------------------------------------------------------


def test_a_plan_is_charged_once_by_its_exact_composition(census):
    plan = census.declare("census", PLAN, delta=1e-6, label="report")
    exact = account(PLAN, 1e-6)
    assert plan.guarantee.epsilon == exact.epsilon
    reading = spent(census)
    assert reading == pytest.approx(exact.epsilon, abs=1e-12)
    assert census.status("census").opaque_left == pytest.approx(4e-6)
    for event in PLAN:
        with census.spend("census", event, plan=plan) as spending:
            assert spending.cost == 0.0
            spending.commit(1)
    assert spent(census) == reading
    assert census.status("census").plans[0]["epsilon"] == exact.epsilon
    assert census.verify("census").ok


def test_other_requests_may_come_between(census):
    plan = census.declare("census", PLAN, delta=1e-6)
    with census.spend("census", STEP, plan=plan):
        pass
    with census.spend("census", LaplaceEvent(2.0)) as spending:
        assert spending.cost == 0.5
    with census.spend("census", PLAN[1], plan=plan):
        pass
    assert census.verify("census").ok


def test_anything_but_the_next_event_is_refused(census):
    plan = census.declare("census", PLAN, delta=1e-6, analyst="ann")
    with pytest.raises(LedgerError, match=r"event 1 of plan 2 is .*gaussian"):
        census.spend("census", PLAN[1], plan=plan, analyst="ann")
    with pytest.raises(LedgerError, match="declared by 'ann'"):
        census.spend("census", PLAN[0], plan=plan, analyst="bob")
    for event in PLAN:
        with census.spend("census", event, plan=plan, analyst="ann"):
            pass
    with pytest.raises(LedgerError, match="all 3 events"):
        census.spend("census", STEP, plan=plan, analyst="ann")
    census.create("other", Budget(1.0))
    with pytest.raises(LedgerError, match="is of dataset 'census'"):
        census.spend("other", STEP, plan=plan)
    assert census.verify("census").ok


def test_a_plan_too_large_is_refused_as_a_whole(census):
    with pytest.raises(BudgetExceeded):
        census.declare("census", [LaplaceEvent(0.1)], delta=1e-6)
    with pytest.raises(BudgetExceeded, match="opaque_delta"):
        census.declare("census", PLAN, delta=6e-6)
    with pytest.raises(LedgerError, match="at least one event"):
        census.declare("census", [], delta=1e-6)
    with pytest.raises(LedgerError, match="one label"):
        census.declare("census", [LaplaceEvent(1.0, unit="label")], delta=1e-6)
    assert census.status("census").entries == 1


def test_a_plan_is_cheaper_than_the_same_releases_one_by_one(census):
    training = dp_sgd(noise_multiplier=1.1, sample_rate=0.004, steps=4000)
    declared = census.declare("census", [training], delta=1e-6).guarantee.epsilon
    assert declared < census.preview("census", training).cost


def test_plans_count_for_caps_and_keep_keys(census):
    census.grant("census", "ann", Budget(0.8, 4e-6))
    plan = census.declare("census", PLAN, delta=1e-6, analyst="ann")
    assert census.status("census", "ann").caps[0].reading == pytest.approx(plan.guarantee.epsilon)
    with pytest.raises(BudgetExceeded, match="the cap of 'ann'"):
        census.declare("census", PLAN, delta=1e-6, analyst="ann")
    with census.spend("census", STEP, plan=plan, analyst="ann", key="k") as spending:
        spending.commit(7)
    with census.spend("census", STEP, plan=plan, analyst="ann", key="k") as again:
        assert again.answer == 7
    assert census.verify("census").ok


def test_a_plan_declared_again_with_its_key_is_the_first_one(census):
    plan = census.declare("census", PLAN, delta=1e-6, key="run", label="first")
    census.spend("census", PLAN[0], plan=plan).commit(1)
    reading = spent(census)
    again = census.declare("census", PLAN, delta=1e-6, key="run", label="second")
    assert again == plan
    assert spent(census) == reading
    with pytest.raises(LedgerError, match="event 2"):
        census.spend("census", PLAN[0], plan=again)
    census.spend("census", PLAN[1], plan=again).commit(2)
    for other in ({"delta": 2e-6}, {"analyst": "ann"}):
        with pytest.raises(LedgerError, match="was used for another plan"):
            census.declare("census", PLAN, **({"delta": 1e-6, "key": "run"} | other))
    with pytest.raises(LedgerError, match="was used for another plan"):
        census.declare("census", PLAN[:2], delta=1e-6, key="run")
    # A release's key is another one, and a plan without a key is a new one each time.
    census.spend("census", LaplaceEvent(50.0), key="run").commit(3)
    first, second = (census.declare("census", PLAN[:1], delta=1e-7) for _ in range(2))
    assert first.number != second.number
    assert census.verify("census").ok


def test_a_plan_is_not_drawn_under_a_cap_that_has_not_counted_it(census, clock):
    plan = census.declare("census", PLAN, delta=1e-6, analyst="ann")
    cap = census.allot("census", Budget(0.1), ends=clock() + timedelta(days=1))
    before = census.head("census")
    with pytest.raises(BudgetExceeded, match=r"plan 2 cannot be drawn under the cap of everyone"):
        census.spend("census", STEP, plan=plan, analyst="ann")
    assert census.head("census") == before
    clock.forward(days=2)  # the cap is over
    with census.spend("census", STEP, plan=plan, analyst="ann"):
        pass
    census.grant("census", "ann", Budget(2.0, 4e-6))
    with pytest.raises(BudgetExceeded, match=r"has not counted it") as refusal:
        census.spend("census", PLAN[1], plan=plan, analyst="ann")
    assert refusal.value.scope == "the cap of 'ann'"
    assert cap.number == 3
    assert census.verify("census").ok


def test_a_plan_of_one_period_is_not_drawn_in_the_next(census, clock):
    schedule = {"first": clock(), "every": "day", "periods": 2}
    census.schedule("census", Budget(1.5, 4e-6), **schedule)
    plan = census.declare("census", PLAN, delta=1e-6)
    with census.spend("census", STEP, plan=plan):
        pass
    clock.forward(days=1)
    with pytest.raises(BudgetExceeded, match=r"period 2 of 2\), which has not counted it"):
        census.spend("census", PLAN[1], plan=plan)
    assert census.verify("census").ok


def test_a_larger_grant_keeps_a_plan_and_a_smaller_one_stops_it(census):
    census.grant("census", "ann", Budget(0.8, 4e-6))
    plan = census.declare("census", PLAN, delta=1e-6, analyst="ann")
    for epsilon in (1.0, 1.2):  # each keeps what was spent, the plan included
        census.grant("census", "ann", Budget(epsilon, 4e-6))
    with census.spend("census", STEP, plan=plan, analyst="ann") as spending:
        assert spending.left < 1.2
    census.grant("census", "ann", Budget(0.1, 4e-6))
    with pytest.raises(BudgetExceeded, match="or is used up"):
        census.spend("census", PLAN[1], plan=plan, analyst="ann")
    assert census.verify("census").ok


# --- refunds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 37, 100])
def test_the_charge_becomes_that_of_the_steps_taken(census, steps):
    census.create("twin", Budget(3.0, 1e-5))
    with census.spend("census", repeat(STEP, 100)) as spending:
        spending.stop_after(steps, because="released values")
        spending.commit(None)
    if steps:
        with census.spend("twin", repeat(STEP, steps)):
            pass
    by_finite_orders = census.preview("census", []).reading, census.preview("twin", []).reading
    assert by_finite_orders[0] == pytest.approx(by_finite_orders[1]) or steps == 0
    assert census.verify("census").ok


def test_a_refund_is_a_vector_never_a_difference_of_epsilons(census):
    orders = census.terms("census").gate.orders
    with census.spend("census", repeat(LaplaceEvent(50.0), 20)) as spending:
        assert spending.cost < 0.4  # a finite order is already better than the sum
        spending.stop_after(5, because="fixed plan")
        assert spending.reading == pytest.approx(0.1)
    (entry,) = [entry for entry in census.history("census") if entry.kind == "refund"]
    whole, taken = (
        charge(repeat(LaplaceEvent(50.0), n), Neighbours.ADD_REMOVE, orders) for n in (20, 5)
    )
    assert Vector.from_list(entry.data["back"]) == whole.minus(taken)
    assert census.status("census").left >= 2.9
    assert census.status("census").declared.epsilon == pytest.approx(
        account(repeat(LaplaceEvent(50.0), 5), 1e-5).epsilon
    )


def test_what_gaussian_noise_did_at_infinity_is_not_undone(census):
    with census.spend("census", repeat(STEP, 100)) as spending:
        spending.stop_after(0, because="fixed plan")
    assert census.status("census").to_dict()["reading"] > 0


def test_caps_get_their_refund_too(census):
    census.grant("census", "ann", Budget(0.4))
    with census.spend("census", repeat(LaplaceEvent(50.0), 20), analyst="ann") as spending:
        spending.stop_after(10, because="fixed plan")
    assert census.status("census", "ann").left == pytest.approx(0.2)
    assert census.verify("census").ok


def test_nothing_is_refunded_after_the_end(census):
    spending = census.spend("census", repeat(STEP, 20))
    twin = copy.copy(spending)
    spending.commit(5)
    with pytest.raises(LedgerError, match=r"reservation 2 has ended and cannot be refunded"):
        twin.stop_after(0, "fixed plan")
    assert [entry.kind for entry in census.history("census")] == ["open", "reserve", "commit"]
    assert census.verify("census").ok


def test_nothing_is_refunded_twice_through_a_copy(census):
    spending = census.spend("census", repeat(STEP, 20))
    twin = copy.copy(spending)
    spending.stop_after(10, "fixed plan")
    with pytest.raises(LedgerError, match="was refunded before: that is final"):
        twin.stop_after(5, "fixed plan")
    assert census.verify("census").ok


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((5, "it looked good"), "because must be 'fixed plan' or 'released values'"),
        ((21, "fixed plan"), "at most the 20"),
        ((-1, "fixed plan"), "whole number, 0 or above"),
    ],
)
def test_bad_refunds_are_refused(census, arguments, word):
    with census.spend("census", repeat(STEP, 20)) as spending:
        with pytest.raises(ValueError, match=word):
            spending.stop_after(*arguments)
        spending.stop_after(5, "fixed plan")
        with pytest.raises(LedgerError, match="refunded before"):
            spending.stop_after(3, "fixed plan")
    with pytest.raises(LedgerError, match="has ended"):
        spending.stop_after(3, "fixed plan")


def test_only_repeated_events_outside_plans_are_refunded(census):
    with census.spend("census", STEP) as spending, pytest.raises(LedgerError, match="repeated"):
        spending.stop_after(0, "fixed plan")
    plan = census.declare("census", [repeat(STEP, 20)], delta=1e-6)
    with (
        census.spend("census", repeat(STEP, 20), plan=plan) as spending,
        pytest.raises(LedgerError, match="charged as a whole"),
    ):
        spending.stop_after(5, "fixed plan")


# --- releases that raise --------------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [None, 0, 3], ids=["whole", "none were run", "three were run"])
def test_a_repeated_release_that_raised_stays_charged(census, stopped):
    """Noise may have been seen: an error gives nothing back beyond what was refunded before it."""
    spending = census.spend("census", repeat(STEP, 10))
    if stopped is not None:
        spending.stop_after(stopped, because="fixed plan")
    left = census.status("census").left
    with pytest.raises(ZeroDivisionError), spending:
        raise ZeroDivisionError
    assert census.status("census").left == left
    kinds = [entry.kind for entry in census.history("census")]
    assert kinds == ["open", "reserve", *["refund"] * (stopped is not None), "failed"]
    with pytest.raises(LedgerError, match="has ended"):
        spending.stop_after(0, because="fixed plan")
    assert census.status("census").left == left
    assert census.verify("census").ok


def test_an_answer_returned_again_that_raised_changes_nothing(census):
    with census.spend("census", repeat(STEP, 10), key="k") as spending:
        spending.commit(7)
    head = census.head("census")
    with pytest.raises(ZeroDivisionError), census.spend("census", repeat(STEP, 10), key="k"):
        raise ZeroDivisionError
    assert census.head("census") == head
