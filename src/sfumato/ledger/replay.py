"""Replay: would the ledger have written these entries?"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NoReturn

from sfumato.core.events import Event, RepeatedEvent, event_from_dict
from sfumato.ledger.amounts import SATURATED, Vector
from sfumato.ledger.entries import Entry, canonical, digest
from sfumato.ledger.errors import MISSHAPEN
from sfumato.ledger.gate import Gate
from sfumato.ledger.lots import Taken, paid_lots, unread_refusal
from sfumato.ledger.plans import plan_event, promise, uncounted
from sfumato.ledger.spending import REASONS, cost_of, refundable
from sfumato.ledger.state import State
from sfumato.ledger.terms import Cap, Terms
from sfumato.ledger.turns import Turn, began_with

__all__ = ["Replay", "RuleBroken"]

_TOLERANCE = 1e-6
"""Relative: another machine's floating point, or a tighter bound in a later version, may differ."""


class RuleBroken(Exception):  # noqa: N818 - not an error of the caller's
    """An entry that the ledger would not have written."""


class Replay:
    """Takes entries in order, checks each against the rules, and keeps the state.

    Attributes:
        remarks: turns and refunds that this version refuses and the first ones wrote. Totals follow
            from them all the same, so that they stop nothing; what they gave back may have been
            run.
    """

    def __init__(self, name: str) -> None:
        self.remarks: list[str] = []
        self._name = name
        self._number = 0
        self._open: dict[int, dict[str, Any]] = {}  # reservations without an end
        self._refunded: dict[int, int] = {}  # down to how many steps
        self._turns: set[tuple[int, int]] = set()
        self._last_turns: dict[str, tuple[Turn | None, Turn]] = {}  # the last two
        self._taken: dict[int, Taken] = {}
        self._plans: dict[int, dict[str, Any]] = {}
        self._replaced: dict[int, int | None] = {}
        self._tables: dict[str, str | None] = {}
        self._table_entries, self._charged = 0, False
        self.state: State

    def take(self, entry: Entry) -> None:
        """One entry.

        Raises:
            RuleBroken: naming the entry and the rule.
        """
        self._number = entry.sequence
        data = entry.data
        judge = getattr(self, f"_judge_{entry.kind}", None)
        if judge is None:
            self._fail(f"is of unknown kind {entry.kind!r}")
        if (entry.kind == "open") != (entry.sequence == 1):
            self._fail("opens the dataset, or should")
        try:
            datetime.fromisoformat(data["at"])
            judge(data)
            self.state.advance(entry.sequence, entry.kind, data, entry.hash)
        except MISSHAPEN as error:
            self._fail(f"does not hold what it should ({error})")

    def _fail(self, what: str) -> NoReturn:
        raise RuleBroken(f"entry {self._number} {what}")

    def _judge_open(self, data: dict[str, Any]) -> None:
        terms = Terms.from_payload(self._name, {k: v for k, v in data.items() if k != "at"})
        self._require_limits(terms.gate, Gate.of(terms.budget, terms.gate.orders))
        self.state = State.start(terms)

    def _judge_table(self, data: dict[str, Any]) -> None:
        table, column = data["table"], data["unit_column"]
        self._table_entries += 1
        if data["number"] != self._table_entries:
            self._fail(f"is number {data['number']!r} of those about tables, not the next one")
        if not (isinstance(table, str) and table and (column is None or isinstance(column, str))):
            self._fail("names no table and column")
        if data["by"] not in ("opening", "curator"):
            self._fail(f"was written by {data['by']!r}")
        if data["by"] == "opening" and self._tables:
            self._fail(f"adds table {table!r} without an act of the curator's")
        if table in self._tables and (self._charged or self._tables[table] == column):
            self._fail(f"changes the unit column of {table!r}, which was charged for by then")
        self._tables[table] = column

    def _judge_cap(self, data: dict[str, Any]) -> None:
        cap = Cap.from_payload(self._number, data, self.state.terms.gate.orders)
        self._require_limits(cap.gate, Gate.of(cap.budget, cap.gate.orders))
        replaced = self._replaced[self._number] = data["replaces"]
        if replaced is not None:
            old = self.state.caps[replaced].cap
            if not (old.standing and cap.standing and old.analyst == cap.analyst):
                self._fail(f"replaces cap {replaced}, which is not the same analyst's grant")

    def _require_limits(self, found: Gate, right: Gate) -> None:
        pairs = zip((*found.limits, found.slack), (*right.limits, right.slack), strict=True)
        if any(limit > allowed + _TOLERANCE * abs(allowed) for limit, allowed in pairs):
            self._fail("has limits above those of its budget")

    def _judge_reserve(self, data: dict[str, Any]) -> None:
        self._charged = True
        event = event_from_dict(data["event"])
        if data["digest"] != digest([data["event"], data["request"], data["analyst"]]):
            self._fail("has a digest of another request")
        if data["plan"] is None:
            self._require_charge(data, event)
        else:
            self._require_planned(data)
        self._open[self._number] = data

    def _judge_plan(self, data: dict[str, Any]) -> None:
        self._charged = True
        events = [event_from_dict(event) for event in data["events"]]
        found = promise(events, data["delta"], self.state.terms)
        if data["epsilon"] < found.epsilon * (1 - _TOLERANCE):
            self._fail(f"claims epsilon {data['epsilon']} for a plan that costs {found.epsilon}")
        self._require_charge(data, plan_event(found))
        self._plans[self._number] = data

    def _require_charge(self, data: dict[str, Any], event: Event) -> None:
        charged, cost = Vector.from_list(data["charge"]), cost_of(event, self.state.terms)
        if not _covers(charged, cost):
            self._fail(f"was charged {charged.to_list()}, less than its cost {cost.to_list()}")
        state, at = self.state, data["at"]
        covering = state.covering(data["analyst"], at)
        if [held.cap.number for held in covering] != data["caps"]:
            self._fail("was not counted for the caps it falls under")
        if state.is_closed_to(data["analyst"], at):
            self._fail("was spent from a closed dataset without a cap")
        for scope in state.scopes(data["analyst"], at):
            if not scope.gate.fits(scope.spent.plus(charged)):
                self._fail(f"exceeds {scope.name}")

    def _require_planned(self, data: dict[str, Any]) -> None:
        plan, drawn = self._plans[data["plan"]], self.state.plans[data["plan"]]
        if canonical(plan["events"][drawn]) != canonical(data["event"]):
            self._fail(f"is not what plan {data['plan']} has next")
        if any(data["charge"]) or data["caps"] or plan["analyst"] != data["analyst"]:
            self._fail(f"is not drawn from plan {data['plan']} as it should be")
        covering = self.state.covering(data["analyst"], data["at"])
        held = uncounted(covering, plan["caps"], self._replaced.__getitem__)
        if held is not None:
            self._fail(f"is drawn under {held.cap.describe()}, which has not counted its plan")

    def _judge_commit(self, data: dict[str, Any]) -> None:
        if data["reserve"] not in self._open:
            self._fail(f"ends reservation {data['reserve']}, which is not open")
        del self._open[data["reserve"]]

    _judge_failed = _judge_commit

    def _judge_resume(self, data: dict[str, Any]) -> None:
        number, turn = data["reserve"], data["turn"]
        if number not in self._open:
            self._fail(f"takes up reservation {number}, which is not open")
        if "run" in data:
            self._require_next(Turn.from_payload(data), number)
            return
        self._require_lots(number)
        if type(turn) is not int or turn < 1 or (number, turn) in self._turns:
            self._fail(f"takes up reservation {number} by turn {turn!r}, which was not free")
        self._turns.add((number, turn))
        self._taken.setdefault(number, Taken()).take(self._number, data, 0, None)

    def _require_next(self, turn: Turn, number: int) -> None:
        earlier, last = self._last_turns.get(turn.run, (None, None))
        before, after = (0, "") if last is None else (last.number, last.token)
        if (turn.number, turn.after) != (before + 1, after):
            self._fail(f"is turn {turn.number} of run {turn.run!r}, which is not its next one")
        if last is not None and turn.lots < (least := began_with(last, earlier)):
            self._remark(f"counts {turn.lots} lots, of {least} that earlier turns took")
        self._require_lots(number, turn, 0 if last is None else last.lots)
        self._last_turns[turn.run] = last, turn

    def _require_lots(self, number: int, turn: Turn | None = None, earlier: int = 0) -> None:
        data, steps = self._open[number], self._refunded.get(number)
        taken, paid = self._taken.setdefault(number, Taken()), paid_lots(data)
        charged = self._number == number + 1 and turn is not None
        if turn is None and steps is not None:
            self._remark(f"takes up reservation {number} after its refund, for all of its steps")
        elif not charged:
            run, lots = ("", 0) if turn is None else (turn.run, turn.lots)
            refused = taken.refusal(run, lots, earlier, paid_lots(data, steps))
            if refused:
                self._remark(f"takes up reservation {number}, which {refused}")
        if turn is not None:
            payload = turn.to_payload() | {"reserve": number}
            taken.take(self._number, payload, earlier, paid)

    def _remark(self, what: str) -> None:
        self.remarks.append(f"entry {self._number} {what}")

    def _judge_refund(self, data: dict[str, Any]) -> None:
        number = data["reserve"]
        reservation = self._open.get(number)
        if reservation is None or number in self._refunded or reservation["plan"] is not None:
            self._fail(f"refunds reservation {number}, which cannot be refunded")
        event = event_from_dict(reservation["event"])
        if not isinstance(event, RepeatedEvent) or not 0 <= data["steps"] <= event.count:
            self._fail(f"refunds steps that reservation {number} does not have")
        if data["because"] not in REASONS or data["caps"] != reservation["caps"]:
            self._fail(f"does not refund reservation {number} as it should")
        charged = Vector.from_list(reservation["charge"])
        taken = Vector.zero(len(charged.orders))
        if data["steps"]:
            taken = cost_of(RepeatedEvent(event.event, data["steps"]), self.state.terms)
        if not _covers(refundable(charged, taken), Vector.from_list(data["back"])):
            self._fail(f"gives back more than reservation {number} left unused")
        taken = self._taken.get(number, Taken())
        refused = unread_refusal(taken, reservation, data["steps"])
        if refused:
            self._remark(f"refunds reservation {number} and {refused}")
        self._refunded[number] = data["steps"]


def _covers(large: Vector, small: Vector) -> bool:
    """Whether every part is at least the other's, within the tolerance."""
    pairs = zip(large.to_list(), small.to_list(), strict=True)
    return all(b <= a * (1 + _TOLERANCE) + 1 or b == a == SATURATED for a, b in pairs)
