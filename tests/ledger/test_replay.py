"""Replay: every rule that the ledger keeps when it writes is asked again of what was written.

No database: entries of a sound history are changed one by one, as someone would who can also
compute hashes, and each change that the ledger would not have written must be refused.
"""

import dataclasses
import json

import pytest

from sfumato.core.events import EpsilonDeltaEvent, GaussianEvent, LaplaceEvent, repeat
from sfumato.ledger import Budget, Ledger, Turn
from sfumato.ledger.entries import canonical
from sfumato.ledger.replay import Replay, RuleBroken

RUN = repeat(GaussianEvent(40.0), 5)
PLANNED = GaussianEvent(50.0)
ONE = LaplaceEvent(10.0)


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Entries of every kind, by what they are."""
    ledger = Ledger(tmp_path_factory.mktemp("ledger") / "sound.db")
    ledger.create("census", Budget(2.0, 1e-5))
    ledger.open_table("census", "pid")
    ledger.grant("census", "ann", Budget(1.0, 1e-6))
    with ledger.spend("census", ONE, analyst="ann") as spending:
        spending.commit({"count": 1})
    with ledger.spend("census", EpsilonDeltaEvent(0.01, 1e-6)):
        pass
    plan = ledger.declare("census", [PLANNED, ONE], delta=1e-6)
    with ledger.spend("census", PLANNED, plan=plan):
        pass
    with ledger.spend("census", RUN) as spending:
        spending.stop_after(2, "fixed plan")
    turn = Turn.drawn("run", None, 1)
    number = ledger.spend("census", RUN, turn=turn).sequence
    ledger.resume("census", number, RUN, turn=Turn.drawn("run", turn, 2))
    other = ledger.spend("census", RUN).sequence
    ledger.resume("census", other, RUN, turn=1)
    ledger.grant("census", "ann", Budget(1.5, 1e-6))
    entries = ledger.history("census")
    ledger.close()
    return entries


def rewritten(entry, sequence=None, kind=None, **fields):
    """The entry with other fields in its payload; those that are functions are asked."""
    data = entry.data
    for name, value in fields.items():
        data[name] = value(data[name]) if callable(value) else value
    return dataclasses.replace(
        entry,
        payload=canonical(data),
        kind=kind or entry.kind,
        sequence=sequence or entry.sequence,
    )


def place(history, kind, number=0):
    """Where the n-th entry of a kind is."""
    return [at for at, entry in enumerate(history) if entry.kind == kind][number]


def judged(entries):
    """The remarks; an error at the first entry that breaks a rule."""
    replay = Replay("census")
    for entry in entries:
        replay.take(entry)
    return replay.remarks


def test_a_sound_history_has_no_remarks(history):
    assert judged(history) == []
    kinds = {entry.kind for entry in history}
    assert kinds == {"open", "table", "cap", "reserve", "commit", "plan", "refund", "resume"}


# A charge is a list: the opaque delta, the pure epsilon, then RDP at every order.


def times(factor, at):
    """A list whose number at that place is another."""
    return lambda values: [int(v * factor) if v == values[at] else v for v in values]


def with_delta(units):
    return lambda values: [values[0] + units, *values[1:]]


@pytest.mark.parametrize(
    ("kind", "number", "fields", "word"),
    [
        # Limits are those that the budget gives, at every order.
        ("open", 0, {"limits": times(1.01, 0)}, "limits above those of its budget"),
        ("open", 0, {"limits": times(1.01, -1)}, "limits above"),
        ("open", 0, {"opaque_limit": lambda v: 2 * v}, "limits above"),
        ("cap", 0, {"limits": times(1.01, 0)}, "limits above those of its budget"),
        ("cap", 0, {"opaque_limit": lambda v: v + v // 100}, "limits above"),
        # One grant replaces another of the same analyst.
        ("cap", 1, {"analyst": "bob"}, "not the same analyst's grant"),
        ("cap", 1, {"analyst": None}, "not the same analyst's grant"),
        ("cap", 1, {"standing": False}, "not the same analyst's grant"),
        ("cap", 1, {"replaces": 99}, "does not hold what it should"),
        # Tables.
        ("table", 0, {"number": 2}, "not the next one"),
        ("table", 0, {"table": ""}, "names no table and column"),
        ("table", 0, {"unit_column": 3}, "names no table and column"),
        ("table", 0, {"by": "someone"}, "was written by 'someone'"),
        # Charges: at least the cost at every order and in delta, counted for the right caps.
        ("reserve", 0, {"charge": times(0.99, 1)}, "less than its cost"),
        ("reserve", 0, {"charge": times(0.99, -1)}, "less than its cost"),
        ("reserve", 1, {"charge": times(0.99, 0)}, "less than its cost"),
        ("reserve", 0, {"charge": lambda v: v[:-1]}, "does not hold what it should"),
        ("reserve", 0, {"caps": []}, "not counted for the caps"),
        ("reserve", 1, {"caps": [3]}, "not counted for the caps"),
        ("reserve", 0, {"event": ONE.to_dict() | {"noise_multiplier": 11.0}}, "digest of another"),
        ("reserve", 0, {"analyst": "bob"}, "digest of another request"),
        ("reserve", 0, {"request": 1}, "digest of another request"),
        ("reserve", 0, {"digest": "0" * 64}, "digest of another request"),
        # Plans.
        ("plan", 0, {"epsilon": lambda v: v * 0.99}, "for a plan that costs"),
        ("plan", 0, {"charge": times(0.99, 1)}, "less than its cost"),
        ("plan", 0, {"caps": [3]}, "not counted for the caps"),
        ("plan", 0, {"analyst": "bob"}, "is not drawn from plan"),
        ("reserve", 2, {"charge": with_delta(1)}, "is not drawn from plan"),
        ("reserve", 2, {"caps": [3]}, "is not drawn from plan"),
        # Ends.
        ("commit", 0, {"reserve": 1}, "ends reservation 1, which is not open"),
        ("commit", 1, {"reserve": 4}, "ends reservation 4, which is not open"),
        # Turns.
        ("resume", 0, {"reserve": 4}, "takes up reservation 4, which is not open"),
        ("resume", 1, {"turn": 3}, "which is not its next one"),
        ("resume", 1, {"after": "another"}, "which is not its next one"),
        ("resume", 2, {"turn": 0}, "which was not free"),
        ("resume", 2, {"turn": True}, "which was not free"),
        ("resume", 2, {"turn": "1"}, "which was not free"),
        # Refunds: at most what the steps that were not run cost, at every order and in delta.
        ("refund", 0, {"back": times(1.01, 2)}, "gives back more than"),
        ("refund", 0, {"back": times(1.01, -1)}, "gives back more than"),
        ("refund", 0, {"back": with_delta(1000)}, "gives back more than"),
        ("refund", 0, {"steps": 3}, "gives back more than"),
        ("refund", 0, {"steps": -1}, "refunds steps that"),
        ("refund", 0, {"steps": 6}, "refunds steps that"),
        ("refund", 0, {"reserve": 1}, "which cannot be refunded"),
        ("refund", 0, {"reserve": 99}, "which cannot be refunded"),
        ("refund", 0, {"because": "regret"}, "does not refund reservation"),
        ("refund", 0, {"caps": [3]}, "does not refund reservation"),
    ],
)
def test_what_the_ledger_would_not_have_written_is_refused(history, kind, number, fields, word):
    at = place(history, kind, number)
    changed = [*history[:at], rewritten(history[at], **fields), *history[at + 1 :]]
    with pytest.raises(RuleBroken, match=word):
        judged(changed)


@pytest.mark.parametrize(
    ("kind", "number", "again", "word"),
    [
        ("open", 0, "open", "opens the dataset, or should"),
        ("commit", 0, "commit", "which is not open"),
        ("commit", 0, "failed", "which is not open"),
        ("refund", 0, "refund", "which cannot be refunded"),
        ("resume", 2, "resume", "which was not free"),
        ("resume", 1, "resume", "which is not its next one"),
        ("reserve", 0, "gift", "is of unknown kind 'gift'"),
    ],
)
def test_what_is_there_once_is_not_written_again(history, kind, number, again, word):
    entry = history[place(history, kind, number)]
    after = [*history, rewritten(entry, sequence=len(history) + 1, kind=again)]
    if kind == "refund":  # while the reservation is open
        at = place(history, "refund")
        after = [*history[: at + 1], rewritten(entry, sequence=at + 2)]
    with pytest.raises(RuleBroken, match=word):
        judged(after)


def test_a_history_that_does_not_begin_with_its_terms(history):
    with pytest.raises(RuleBroken, match="opens the dataset, or should"):
        judged([rewritten(history[1], sequence=1)])


@pytest.mark.parametrize(
    ("number", "fit", "scope"),
    [(0, 10, "the cap of 'ann'"), (1, 5, "the dataset")],  # 10 of 0.1 in 1; 5 of 1e-6 in 5e-6
)
def test_no_entry_may_overdraw_any_limit(history, number, fit, scope):
    """The same request again and again stops where the ledger would have refused it."""
    begin = place(history, "reserve", number)
    kept = history[: begin + 1]
    again = [rewritten(history[begin], sequence=begin + 1 + i, key="") for i in range(1, fit + 1)]
    assert judged([*kept, *again[:-1]]) == []
    with pytest.raises(RuleBroken, match=f"entry {begin + 1 + fit} exceeds {scope}"):
        judged([*kept, *again])


def test_who_spends_from_a_closed_dataset_has_a_cap(history):
    closed = rewritten(history[0], closed=True)
    until = place(history, "reserve", 1)
    assert judged([closed, *history[1:until]]) == []  # ann has one
    with pytest.raises(RuleBroken, match="spent from a closed dataset without a cap"):
        judged([closed, *history[1:]])


def test_a_plan_gives_each_of_its_events_once(history):
    draw = place(history, "reserve", 2)
    for extra, word in (
        (history[draw], "is not what plan .* has next"),  # the second is another event
        (rewritten(history[draw], event=LaplaceEvent(9.0).to_dict(), digest=None), "digest"),
    ):
        with pytest.raises(RuleBroken, match=word):
            judged([*history[: draw + 1], rewritten(extra, sequence=draw + 2)])
    plan = rewritten(history[place(history, "plan")], events=[PLANNED.to_dict()])
    at = place(history, "plan")
    twice = [*history[:at], plan, history[draw], rewritten(history[draw], sequence=draw + 2)]
    with pytest.raises(RuleBroken, match="does not hold what it should"):
        judged(twice)


def test_a_planned_reservation_is_not_refunded(history):
    draw = place(history, "reserve", 2)
    refund = rewritten(
        history[place(history, "refund")], sequence=draw + 2, reserve=draw + 1, steps=0
    )
    with pytest.raises(RuleBroken, match="which cannot be refunded"):
        judged([*history[: draw + 1], refund])


def test_what_is_not_repeated_has_no_steps_to_refund(history):
    at = place(history, "reserve", 1)
    refund = rewritten(history[place(history, "refund")], sequence=at + 2, reserve=at + 1, steps=0)
    with pytest.raises(RuleBroken, match="refunds steps that reservation"):
        judged([*history[: at + 1], refund])


def test_every_entry_says_when(history):
    for at, entry in enumerate(history):
        for when in (None, "yesterday", 3):
            changed = [*history[:at], rewritten(entry, at=when)]
            with pytest.raises(RuleBroken, match=f"entry {at + 1} does not hold what it should"):
                judged(changed)
        assert json.loads(entry.payload)["at"]


def test_a_table_keeps_its_unit_once_it_was_charged(history):
    at = place(history, "table")
    other = rewritten(history[at], sequence=at + 2, number=2, unit_column="visit", by="curator")
    assert judged([*history[: at + 1], other]) == []  # nothing is charged yet
    same = rewritten(history[at], sequence=at + 2, number=2, by="curator")
    with pytest.raises(RuleBroken, match="changes the unit column"):
        judged([*history[: at + 1], same])
    late = rewritten(other, sequence=len(history) + 1)
    with pytest.raises(RuleBroken, match=r"changes the unit column of .*, which was charged for"):
        judged([*history, late])
    opened = rewritten(other, table="another", by="opening")
    with pytest.raises(RuleBroken, match="without an act of the curator's"):
        judged([*history[: at + 1], opened])
