"""Spending: reserve, run, commit. The charge is on disk before the data is read.

1. *Reserve*: the gate is asked and the charge written, in one transaction.
2. The release runs. If it fails, or the process dies, the charge stays: noise may have been seen.
3. *Commit*: the answer is written, and only then may anyone have it. Asked again with the same key,
   the ledger returns this answer and charges nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from sfumato.core import validation
from sfumato.core.events import Event, RepeatedEvent
from sfumato.core.guarantee import round_up
from sfumato.ledger import amounts, store
from sfumato.ledger.amounts import Vector
from sfumato.ledger.book import Book
from sfumato.ledger.charges import charge, require_unit
from sfumato.ledger.entries import Entry, alike, canonical, digest, plain
from sfumato.ledger.errors import AlreadyWritten, BudgetExceeded, LedgerError
from sfumato.ledger.lots import require_lots, require_unread
from sfumato.ledger.state import Scope, State
from sfumato.ledger.status import shown_down
from sfumato.ledger.terms import Terms
from sfumato.ledger.transaction import Transaction
from sfumato.ledger.turns import Turn, take_turn

__all__ = [
    "REASONS",
    "Request",
    "Spending",
    "admit",
    "cost_of",
    "refundable",
    "refuse_if_closed",
    "refuse_unless_it_fits",
    "require_open",
    "take_up",
]

REASONS = ("fixed plan", "released values")


@dataclass(frozen=True)
class Request:
    """What is asked for, checked and digested before any lock is taken."""

    event: Event
    event_data: dict[str, Any]
    analyst: str
    key: str
    request: Any
    label: str
    plan: int | None
    digest: str

    @classmethod
    def make(
        cls, event: Event, analyst: str, key: str, request: Any, label: str, plan: int | None
    ) -> Request:
        """A checked request."""
        if not isinstance(event, Event):  # pyright: ignore[reportUnnecessaryIsInstance]
            validation.fail("event", "an event, as mechanism.event is", event)
        with accountable():
            data, asked = plain(event.to_dict()), plain(request)
        digested = digest([data, asked, analyst])
        return cls(event, data, analyst, key, asked, label, plan, digested)

    def is_alike(self, reserved: Mapping[str, Any]) -> bool:
        """Whether a reservation's entry is about the same, but for 1 written as 1.0."""
        own = [self.event_data, self.request, self.analyst]
        return alike(own, [reserved["event"], reserved["request"], reserved["analyst"]])

    def payload(self, at: str, cost: Vector, caps: list[int]) -> dict[str, Any]:
        """What the reservation's entry holds."""
        return {
            "at": at,
            "analyst": self.analyst,
            "caps": caps,
            "charge": cost.to_list(),
            "digest": self.digest,
            "event": self.event_data,
            "key": self.key,
            "label": self.label,
            "plan": self.plan,
            "request": self.request,
        }


def cost_of(event: Event, terms: Terms) -> Vector:
    """What ``event`` costs this dataset; an error if it speaks of another unit or relation."""
    with accountable():
        require_unit(event, terms.unit)
        return charge(event, terms.neighbours, terms.gate.orders)


@contextlib.contextmanager
def accountable() -> Generator[None]:
    """Says so where an event's numbers are beyond all arithmetic."""
    try:
        yield
    except OverflowError as error:
        raise LedgerError(
            f"the event cannot be accounted ({error}), nothing was spent: its counts or group "
            "sizes multiply to more than a float can hold"
        ) from error
    except RecursionError as error:
        raise LedgerError(
            "the event is nested too deeply, nothing was spent: state repetition as "
            "repeat(step, count)"
        ) from error


def admit(
    transaction: Transaction, state: State, analyst: str, cost: Vector, at: str
) -> tuple[list[int], list[Scope]]:
    """Asks the gate: the numbers of the caps to charge, and the scopes as they were before.

    Raises:
        BudgetExceeded: if some limit refuses.
    """
    store.load_caps(transaction, state, analyst)
    refuse_if_closed(state, analyst, at)
    scopes = state.scopes(analyst, at)
    refuse_unless_it_fits(state.terms.dataset, scopes, cost)
    return [held.cap.number for held in state.covering(analyst, at)], scopes


def refuse_if_closed(state: State, analyst: str, at: str) -> None:
    """Raises :class:`BudgetExceeded` for who has no cap of their own in a closed dataset."""
    if state.is_closed_to(analyst, at):
        who = f"analyst {analyst!r}" if analyst else "a request without an analyst"
        raise BudgetExceeded(
            f"dataset {state.terms.dataset!r} is closed, and {who} has no cap there now: grant one",
            state.terms.dataset,
            "the dataset",
        )


def reserve_quickly(book: Book, name: str, request: Request) -> Spending | None:
    """Reserves on what this process saw last; None where the lock must be taken to decide."""
    before: list[tuple[Vector, list[Scope]]] = []

    def payload_for(state: State) -> dict[str, Any] | None:
        cost, scopes = cost_of(request.event, state.terms), state.scopes(request.analyst, "")
        if state.terms.closed or not all(s.gate.fits(s.spent.plus(cost)) for s in scopes):
            return None
        before.append((cost, scopes))
        return request.payload(book.now(), cost, [])

    entry = book.quickly(name, "reserve", payload_for)
    if entry is None:
        return None
    cost, scopes = before[-1]
    return Spending(book, request, name, entry.sequence, scopes, cost)


def refuse_unless_it_fits(dataset: str, scopes: list[Scope], cost: Vector) -> None:
    """Raises :class:`BudgetExceeded` for the first scope in which ``cost`` does not fit."""
    for scope in scopes:
        after = scope.spent.plus(cost)
        if not scope.gate.fits(after):
            left = min(each.gate.left(each.spent) for each in scopes)
            reason = _reason(scope, after, cost)
            raise BudgetExceeded(
                f"refused by {scope.name} of {dataset!r}: {reason}. Nothing was spent; a pure "
                f"release of epsilon {shown_down(left)} would pass",
                dataset,
                scope.name,
                left,
            )


def _reason(scope: Scope, after: Vector, cost: Vector) -> str:
    gate = scope.gate
    if after.slack > gate.slack:
        return (
            f"the release needs delta {amounts.as_delta(cost.slack):g}, and "
            f"{amounts.as_delta(max(0, gate.slack - scope.spent.slack)):g} of the budget's "
            "opaque_delta is left"
        )
    reading = gate.reading(after)
    cap = f"{amounts.as_epsilon(gate.epsilon):g}"
    if reading == float("inf"):
        most = f"{amounts.as_epsilon(amounts.SATURATED - 1):.2g}"
        if any(limit > -amounts.SATURATED for limit in gate.limits[1:]):  # a cap may have no delta
            return f"the release costs an epsilon above {most}, more than is counted"
        return (
            f"without a delta the release costs an epsilon above {most}, or an infinite one: "
            "noise such as Gaussian needs a delta, and this budget was opened with none for it"
        )
    return f"it would read epsilon {round_up(reading):g}, and the cap is {cap}"


class Spending:
    """A reservation, open until it is committed or fails. Use it as a context manager.

    Attributes:
        dataset: which budget.
        sequence: the number of the reservation's entry.
        repeated: the same key was answered before; :attr:`answer` is that answer, nothing was
            charged, and the release must not run again.
        answer: what was stored, if repeated; what was committed, afterwards, as it is stored
            (JSON: keys are text, tuples are lists).
    """

    def __init__(
        self,
        book: Book,
        request: Request,
        dataset: str,
        sequence: int,
        scopes: list[Scope],
        cost: Vector,
        answered: tuple[bool, Any] = (False, None),
        turn: int = 0,
    ) -> None:
        self.dataset, self.sequence = dataset, sequence
        self.repeated, self.answer = answered
        self.event, self.analyst = request.event, request.analyst
        self._book = book
        self._planned = request.plan is not None
        self._scopes, self._cost = scopes, cost
        self._done, self._refunded = self.repeated, False
        self._turn = turn  # the entry of the last turn that the holder took

    @property
    def reading(self) -> float:
        """The dataset's odometer reading with this reservation."""
        return self._scopes[0].gate.reading(self._after(self._scopes[0]))

    @property
    def cost(self) -> float:
        """By how much the reading rose."""
        own = self._scopes[0]
        before = own.gate.reading_units(own.spent)
        return amounts.as_epsilon(own.gate.reading_units(self._after(own)) - before)

    @property
    def left(self) -> float:
        """The largest epsilon of a further pure release that passes every limit of this one."""
        return min(scope.gate.left(self._after(scope)) for scope in self._scopes)

    @property
    def cap(self) -> float:
        """The epsilon of the limit that has least left: what :attr:`left` is left of."""
        tightest = min(self._scopes, key=lambda scope: scope.gate.left(self._after(scope)))
        return amounts.as_epsilon(tightest.gate.epsilon)

    def _after(self, scope: Scope) -> Vector:
        return scope.spent.plus(self._cost)

    def commit(self, answer: Any = None) -> None:
        """Writes the answer. Give it to no one before this returns.

        Raises:
            LedgerError: if the reservation is not open, or the database fails.
        """
        self._require_open("committed")
        stored = plain(answer)  # what JSON cannot hold is an error before anything is written
        self._end("commit", {"answer": stored})
        self.answer = stored

    def stop_after(self, steps: int, because: str) -> None:
        """Gives back the steps of a repeated event that were never run.

        The charge becomes that of ``steps`` steps, rounded up, at every order: never a difference
        of epsilons. Valid only if stopping did not look at unreleased data. No more than ``steps``
        can be run afterwards, by whoever takes the reservation up.

        Args:
            steps: how many steps were run, 0 included.
            because: "fixed plan" or "released values".

        Raises:
            LedgerError: if the reservation has ended, was refunded before or was taken up by
                another since, or a turn took lots that would be given back.
        """
        self._require_open("refunded")
        if because not in REASONS:
            validation.fail("because", "'fixed plan' or 'released values'", because)
        if self._refunded:
            raise self._refunded_before()
        if self._planned:
            raise LedgerError("a declared plan was charged as a whole: its steps are not refunded")
        if not isinstance(self.event, RepeatedEvent):
            raise LedgerError(
                f"only a repeated event has steps to refund, this is {self.event.kind!r}: reserve "
                "it as repeat(step, count)"
            )
        steps = validation.at_least("steps", steps, 0)
        if steps > self.event.count:
            validation.fail("steps", f"at most the {self.event.count} that were reserved", steps)
        self._refund(self.event, steps, because)

    def __enter__(self) -> Self:
        if self._done and not self.repeated:
            raise self._ended("used again: spend anew for another release")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._done:
            return
        if kind is None:
            self.commit(None)
            return
        with contextlib.suppress(LedgerError):  # the first error says more; it stays charged
            self._end("failed", {})

    def _require_open(self, what: str) -> None:
        if self.repeated:
            raise LedgerError(
                "this key was answered before: return spending.answer, and draw no new noise"
            )
        if self._done:
            raise self._ended(what)

    def _ended(self, what: str) -> LedgerError:
        return LedgerError(f"reservation {self.sequence} has ended and cannot be {what}")

    def _end(self, kind: str, extra: dict[str, Any]) -> None:
        payload = {"at": self._book.now(), "reserve": self.sequence} | extra
        try:
            if self._book.quickly(self.dataset, kind, lambda _: payload) is None:
                with self._book.changing(self.dataset) as (transaction, state):
                    store.append(transaction, state, kind, payload)
        except AlreadyWritten:
            raise self._ended("ended again: its first end stands") from None
        self._done = True

    def _refunded_before(self) -> LedgerError:
        return LedgerError(f"reservation {self.sequence} was refunded before: that is final")

    def _refund(self, event: RepeatedEvent, steps: int, because: str) -> None:
        with self._book.changing(self.dataset) as (transaction, state):
            if store.entry_marked(transaction, self.dataset, f"end:{self.sequence}") is not None:
                raise self._ended("refunded")
            if store.entry_marked(transaction, self.dataset, f"refund:{self.sequence}") is not None:
                raise self._refunded_before()
            store.load_caps(transaction, state, self.analyst)
            entry = store.entry_numbered(transaction, self.dataset, self.sequence)
            assert entry is not None
            require_unread(transaction, entry, steps, self._turn)
            taken = Vector.zero(len(self._cost.orders))
            if steps:
                taken = cost_of(RepeatedEvent(event.event, steps), state.terms)
            back = refundable(self._cost, taken)
            payload = {
                "at": self._book.now(),
                "reserve": self.sequence,
                "back": back.to_list(),
                "because": because,
                "caps": entry.data["caps"],
                "steps": steps,
            }
            store.append(transaction, state, "refund", payload)
        self._cost = self._cost.minus(back)
        self._refunded = True


def take_up(book: Book, name: str, number: int, event: Event, turn: int | Turn) -> Spending:
    """An open reservation of an earlier process; see :meth:`Ledger.resume`."""
    with book.changing(name) as (transaction, state):
        entry = require_open(transaction, name, number, event)
        data, at = entry.data, book.now()
        if isinstance(turn, Turn):
            if data["key"] not in ("", turn.run):
                raise LedgerError(
                    f"reservation {number} of {name!r} is that of run {data['key']!r}, not of "
                    f"{turn.run!r}: go on with the folder that it was made for"
                )
            taken = take_turn(transaction, state, turn, entry, at)
        else:
            taken = _count_turn(transaction, state, entry, turn, at)
        store.load_caps(transaction, state, data["analyst"])
        scopes, nothing = state.scopes(data["analyst"], at), store.nothing(state)
    asked = Request.make(
        event, data["analyst"], data["key"], data["request"], data["label"], data["plan"]
    )
    return Spending(book, asked, name, number, scopes, nothing, turn=taken.sequence)


def require_open(transaction: Transaction, name: str, number: int, event: Event) -> Entry:
    """The reservation of an event that has no end yet.

    Raises:
        LedgerError: if there is no such.
    """
    entry = store.entry_numbered(transaction, name, number)
    wanted = canonical(event.to_dict())
    if entry is None or entry.kind != "reserve" or canonical(entry.data["event"]) != wanted:
        raise LedgerError(
            f"entry {number} of {name!r} is no reservation of this event: open the ledger that "
            "the release began with, or begin a new one"
        )
    if store.entry_marked(transaction, name, f"end:{number}") is not None:
        raise LedgerError(
            f"reservation {number} of {name!r} has ended: what takes it up is an older copy of a "
            "run that went on elsewhere, and its steps would be taken a second time. Begin a new "
            "release"
        )
    return entry


def _count_turn(
    transaction: Transaction, state: State, reservation: Entry, turn: int, at: str
) -> Entry:
    """A turn that has a number alone, within its reservation."""
    name, number = state.terms.dataset, reservation.sequence
    if store.entry_marked(transaction, name, f"resume:{number}:{turn}") is not None:
        raise LedgerError(
            f"reservation {number} of {name!r} was taken up before (turn {turn}): this is a "
            "copy of a run that went on elsewhere. Go on there, or begin a new release"
        )
    require_lots(transaction, reservation)
    return store.append(transaction, state, "resume", {"at": at, "reserve": number, "turn": turn})


def refundable(charged: Vector, taken: Vector) -> Vector:
    """What is given back: nothing where the charge was saturated, and never less than nothing."""
    pairs = zip(charged.orders, taken.orders, strict=True)
    orders = tuple(0 if a >= amounts.SATURATED else max(0, a - b) for a, b in pairs)
    return Vector(orders, max(0, charged.slack - taken.slack))
