"""Turns of a run: one chain, each turn one holder's, and a refusal is for good."""

import dataclasses
import json

import pytest

from sfumato.core.events import GaussianEvent
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError, Turn, WentOnElsewhere
from sfumato.ledger.replay import Replay, RuleBroken

STEP = GaussianEvent(40.0)


@pytest.fixture
def opened(ledger):
    ledger.create("census", Budget(3.0, 1e-5))
    return ledger


def held(ledger):
    entries = [e.data for e in ledger.history("census") if e.kind == "resume"]
    return [(data["turn"], data["lots"]) for data in entries]


def test_turns_follow_each_other_within_a_reservation(opened):
    number = opened.spend("census", STEP, key="run").sequence
    left, turn = opened.status("census").left, None
    for lots in (3, 5, 4):
        turn = Turn.drawn("run", turn, lots)
        spending = opened.resume("census", number, STEP, turn=turn)
        assert opened.turn("census", "run", turn.number) == turn
    assert held(opened) == [(1, 3), (2, 5), (3, 4)]
    assert opened.status("census").left == left
    assert opened.turn("census", "run", 4) is None
    assert opened.turn("census", "another", 1) is None
    spending.commit("done")
    with pytest.raises(LedgerError, match="has ended"):
        opened.resume("census", number, STEP, turn=Turn.drawn("run", turn, 6))
    assert opened.verify("census").ok


def test_of_two_that_hold_the_same_turns_one_goes_on(opened, url):
    number = opened.spend("census", STEP, key="run").sequence
    both = Turn.drawn("run", None, 1)
    opened.resume("census", number, STEP, turn=both)
    first = Turn.drawn("run", both, 2)
    opened.resume("census", number, STEP, turn=first)
    before = held(opened)
    elsewhere = Ledger(url)
    late = both
    for _ in range(4):  # whatever it counts on with, and however often
        late = Turn.drawn("run", late, late.lots + 1)
        for take in (
            lambda turn: elsewhere.resume("census", number, STEP, turn=turn),
            lambda turn: elsewhere.spend("census", STEP, turn=turn),
        ):
            with pytest.raises(LedgerError, match=r"went on elsewhere|does not hold turn"):
                take(late)
    elsewhere.close()
    assert held(opened) == before
    opened.resume("census", number, STEP, turn=Turn.drawn("run", first, 3))


def test_a_turn_is_charged_with_or_not_at_all(opened):
    turn = Turn.drawn("run", None, 1)
    with opened.spend("census", STEP, turn=turn) as spending:
        spending.commit(7)
    assert held(opened) == [(1, 1)]
    before = [e.kind for e in opened.history("census")]
    following = Turn.drawn("run", turn, 2)
    with pytest.raises(BudgetExceeded):
        opened.spend("census", GaussianEvent(1e-3), turn=following)
    with pytest.raises(WentOnElsewhere):
        opened.spend("census", STEP, turn=Turn.drawn("run", None, 1))
    assert [e.kind for e in opened.history("census")] == before
    opened.spend("census", STEP, turn=following)
    assert opened.verify("census").ok


def test_an_answer_of_before_is_no_new_turn(opened):
    with opened.spend("census", STEP, key="k", turn=Turn.drawn("run", None, 1)) as spending:
        spending.commit(7)
    with pytest.raises(WentOnElsewhere):
        opened.spend("census", STEP, key="k", turn=Turn.drawn("run", None, 1))
    assert opened.spend("census", STEP, key="k").answer == 7


def test_a_turn_that_leaps_is_of_another_ledger(opened):
    unknown = Turn.drawn("run", Turn.drawn("run", None, 1), 2)
    with pytest.raises(LedgerError, match="does not hold turn 1 of run 'run'"):
        opened.spend("census", STEP, turn=unknown)


def test_a_reservation_is_its_runs_alone(opened):
    number = opened.spend("census", STEP, key="run").sequence
    with pytest.raises(LedgerError, match="is that of run 'run', not of 'other'"):
        opened.resume("census", number, STEP, turn=Turn.drawn("other", None, 1))
    assert held(opened) == []


@pytest.mark.parametrize(
    "change",
    [{"number": 1}, {"number": 4}, {"after": ""}, {"after": "00"}, {"run": "other"}, {"lots": -1}],
)
def test_verification_follows_the_chain(opened, change):
    number = opened.spend("census", STEP, key="run").sequence
    turn = Turn.drawn("run", None, 1)
    opened.resume("census", number, STEP, turn=turn)
    opened.resume("census", number, STEP, turn=Turn.drawn("run", turn, 2))
    *entries, last = opened.history("census")
    names = {"number": "turn"}
    payload = last.data | {names.get(name, name): value for name, value in change.items()}
    replay = Replay("census")
    for entry in entries:
        replay.take(entry)
    changed = dataclasses.replace(last, payload=json.dumps(payload))
    with pytest.raises(RuleBroken, match="entry 4 "):
        replay.take(changed)
