"""The ledger: a durable privacy budget that every release passes through.

    >>> import tempfile, pathlib
    >>> from sfumato.core.events import LaplaceEvent
    >>> ledger = Ledger(pathlib.Path(tempfile.mkdtemp()) / "privacy.db")
    >>> ledger.create("census", Budget(1.0), unit="person")
    >>> with ledger.spend("census", LaplaceEvent(2.0, unit="person")) as spending:
    ...     spending.commit(41.7)  # the noisy answer: written before it is shown
    >>> ledger.status("census").left
    0.5
    >>> ledger.spend("census", LaplaceEvent(1.0, unit="person"))
    Traceback (most recent call last):
    ...
    sfumato.ledger.errors.BudgetExceeded: refused by the dataset of 'census': it would read ...

What is guaranteed is proved in :mod:`~sfumato.ledger.gate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sfumato.accounting.account import as_event
from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.events.composites import ComposedEvent
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import caps, identity, plans, report, store
from sfumato.ledger.book import Book, utc_now
from sfumato.ledger.budget import Budget
from sfumato.ledger.database import Database
from sfumato.ledger.entries import Entry, Head
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.identity import Identity
from sfumato.ledger.plans import Plan
from sfumato.ledger.spending import (
    Request,
    Spending,
    admit,
    cost_of,
    reserve_quickly,
    take_up,
)
from sfumato.ledger.state import State
from sfumato.ledger.status import Preview, Status
from sfumato.ledger.terms import Cap, Terms, checked_name
from sfumato.ledger.transaction import Transaction
from sfumato.ledger.verify import Verification, examine, gather

__all__ = ["Ledger"]


class Ledger:
    """Budgets in a database, for one process or many.

    Args:
        url: a path, ``sqlite:///privacy.db`` or ``postgresql://user@host/name``.
        create: make it if it is not there; False leaves nothing behind where there is none.
        clock: gives the time, for periods and for the record.
        timeout: seconds to wait for other processes.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        create: bool = True,
        clock: Callable[[], datetime] = utc_now,
        timeout: float = 30.0,
    ) -> None:
        self._database = Database(url, create, timeout)
        self._book = Book(self._database, clock)
        self._terms: dict[str, Terms] = {}

    def __repr__(self) -> str:
        return f"Ledger({self._database.place.shown!r})"

    def close(self) -> None:
        """Closes its connections; used again, the ledger opens new ones."""
        self._database.engine.dispose()

    # --- datasets -------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        budget: Budget,
        *,
        unit: str = "record",
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        description: str = "",
        closed: bool = False,
    ) -> None:
        """Opens a dataset's budget; asked again with the same terms, changes and resets nothing.

        Args:
            name: the dataset's.
            budget: the cap on everything ever released from it.
            unit: whose data the budget protects.
            neighbours: the relation it protects them under.
            description: for readers.
            closed: only analysts with a cap (:meth:`grant`) may spend.

        Raises:
            LedgerError: if it exists with other terms.
        """
        terms = Terms.make(name, budget, unit, neighbours, description, closed)
        with self._database.writing() as transaction:
            if not store.lock_name(transaction, name):
                store.open_dataset(transaction, terms, self._book.now())
                return
            found = store.load(transaction, name).terms
        if found != terms:
            raise LedgerError(
                f"dataset {name!r} exists with other terms ({_difference(found, terms)}): a budget "
                "is never reset or changed; spend from it as it is"
            )

    def names(self) -> list[str]:
        """All datasets."""
        with self._database.reading() as transaction:
            return store.names(transaction)

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def terms(self, name: str) -> Terms:
        """A dataset's terms, which never change."""
        if name not in self._terms:
            with self._book.reading(name) as (_, state):
                self._terms[name] = state.terms
        return self._terms[name]

    # --- spending -------------------------------------------------------------------------------

    def spend(
        self,
        name: str,
        event: Event,
        *,
        analyst: str = "",
        key: str = "",
        request: Any = None,
        label: str = "",
        plan: Plan | None = None,
    ) -> Spending:
        """Reserves an event's cost. When this returns, the charge is on disk.

        Args:
            name: the dataset.
            event: what will be released.
            analyst: who asks.
            key: an idempotency key: asked again with it, the stored answer is returned.
            request: what was asked, JSON; a key may not be used again for something else.
            label: for readers.
            plan: draw the event from this plan, which has paid for it.

        Returns:
            The open reservation: a context manager. ``commit`` the answer before it is shown.

        Raises:
            BudgetExceeded: refused. Nothing was written, and a smaller request may pass.
        """
        number = None if plan is None else _number(plan, name)
        who, once = _optional("analyst", analyst), _optional("key", key)
        asked = Request.make(event, who, once, request, str(label), number)
        cost_of(event, self.terms(name))  # worked out and kept before the lock is taken
        quick = None if plan or key else reserve_quickly(self._book, name, asked)
        if quick is not None:
            return quick
        with self._book.changing(name) as (transaction, state):
            answered = self._answered(transaction, state, asked) if key else None
            if answered is not None:
                return answered
            at = self._book.now()
            if plan is None:
                cost = cost_of(event, state.terms)
                numbers, scopes = admit(transaction, state, who, cost, at)
            else:
                cost, numbers = plans.draw(transaction, state, asked, at), []
                scopes = state.scopes(who, at)
            entry = store.append(transaction, state, "reserve", asked.payload(at, cost, numbers))
        return Spending(self._book, asked, name, entry.sequence, scopes, cost)

    def _answered(self, transaction: Transaction, state: State, asked: Request) -> Spending | None:
        """The stored answer to the same key; None if the key is new."""
        name = state.terms.dataset
        entry = store.entry_marked(transaction, name, f"key:{asked.key}")
        if entry is None:
            return None
        if entry.data["digest"] != asked.digest:
            raise LedgerError(
                f"key {asked.key!r} was used for another request (entry {entry.sequence} of "
                f"{name!r}): use a new key"
            )
        end = store.entry_marked(transaction, name, f"end:{entry.sequence}")
        if end is None or end.kind != "commit":
            raise LedgerError(
                f"key {asked.key!r} was charged (entry {entry.sequence} of {name!r}) but has no "
                "answer: it failed, was cut off, or is still running. Use a new key"
            )
        store.load_caps(transaction, state, asked.analyst)
        scopes, nothing = state.scopes(asked.analyst, self._book.now()), store.nothing(state)
        answer = (True, end.data["answer"])
        return Spending(self._book, asked, name, entry.sequence, scopes, nothing, answer)

    def resume(self, name: str, number: int, event: Event, *, turn: int) -> Spending:
        """Takes up a reservation that an earlier process left open, at no further charge.

        For long releases that survive their process, such as a training run with checkpoints. Each
        turn is accepted once, so that a copy of the run cannot be taken up beside it.

        Args:
            name: the dataset.
            number: the reservation's entry.
            event: what was reserved.
            turn: how often it has been taken up now: 1, 2, ...

        Raises:
            LedgerError: if there is no such open reservation, or the turn was taken before.
        """
        return take_up(self._book, name, number, event, validation.count("turn", turn))

    def declare(
        self,
        name: str,
        events: Sequence[Event],
        *,
        delta: float,
        analyst: str = "",
        label: str = "",
    ) -> Plan:
        """Charges a whole list of releases, fixed now, by their exact composition.

        Args:
            name: the dataset.
            events: what will be released, in this order.
            delta: the part of the budget's opaque delta that the plan uses.
            analyst: who will draw from it.
            label: for readers.

        Returns:
            The plan: ``spend(name, event, plan=plan)`` draws its next event at no further charge.

        Raises:
            BudgetExceeded: refused as a whole; nothing was written.
        """
        listed, who = list(_events(events)), _optional("analyst", analyst)
        guarantee = plans.promise(listed, delta, self.terms(name))
        with self._book.changing(name) as (transaction, state):
            at = self._book.now()
            return plans.declare(transaction, state, listed, guarantee, who, str(label), at)

    # --- allocation -----------------------------------------------------------------------------

    def grant(self, name: str, analyst: str, budget: Budget) -> Cap:
        """An analyst's own cap, for good. Another grant replaces it; what was spent stays."""
        who = checked_name("analyst", analyst)
        with self._book.changing(name) as (transaction, state):
            return caps.grant(transaction, state, who, budget, self._book.now())

    def allot(
        self,
        name: str,
        budget: Budget,
        *,
        analyst: str | None = None,
        starts: datetime | None = None,
        ends: datetime | None = None,
        label: str = "",
    ) -> Cap:
        """A cap on what is spent from ``starts`` until before ``ends``, by one or by everyone."""
        who = None if analyst is None else checked_name("analyst", analyst)
        with self._book.changing(name) as (transaction, state):
            now = self._book.now()
            return caps.allot(transaction, state, budget, who, starts, ends, str(label), now)

    def schedule(
        self,
        name: str,
        budget_per_period: Budget,
        *,
        first: datetime,
        every: str | timedelta = "month",
        periods: int,
        carry_over: bool = False,
        analyst: str | None = None,
    ) -> list[Cap]:
        """A cap for each of several periods in a row.

        Args:
            name: the dataset.
            budget_per_period: what one period may spend.
            first: when the first starts; without a time zone, UTC.
            every: "day", "week", "month" or a timedelta.
            periods: how many.
            carry_over: what a period leaves is added to the next.
            analyst: whose; everyone's together by default.
        """
        who = None if analyst is None else checked_name("analyst", analyst)
        starts = caps.period_starts(first, every, periods)
        with self._book.changing(name) as (transaction, state):
            now = self._book.now()
            return caps.schedule(
                transaction, state, budget_per_period, who, starts, carry_over, now
            )

    # --- looking --------------------------------------------------------------------------------

    def preview(self, name: str, events: Event | Sequence[Event], *, analyst: str = "") -> Preview:
        """What events would cost, in order, and whether they would pass. Spends nothing."""
        listed = [events] if isinstance(events, Event) else list(_events(events))
        with self._book.reading(name) as (transaction, state):
            store.load_caps(transaction, state, analyst)
        return report.preview(state, listed, analyst, self._book.now())

    def status(self, name: str, analyst: str = "", *, declared: bool = True) -> Status:
        """Where a budget stands, for everyone or for one analyst.

        Args:
            name: the dataset.
            analyst: whose caps to look at; all of them by default.
            declared: also account all charged events as one, which takes longer.
        """
        with self._book.reading(name) as (transaction, state):
            store.load_caps(transaction, state, analyst or None)
            entries = store.read_entries(transaction, name)
        return report.status(state, entries, analyst, self._book.now(), declared)

    def history(self, name: str) -> list[Entry]:
        """Every entry of a dataset, oldest first."""
        with self._book.reading(name) as (transaction, _):
            return store.read_entries(transaction, name)

    def readings(self, name: str) -> list[report.Reading]:
        """The odometer after every entry that moved it, oldest first."""
        return report.readings(self.terms(name), self.history(name))

    def head(self, name: str) -> Head:
        """The last entry's number and hash: keep it elsewhere, and verify against it later."""
        with self._book.reading(name) as (_, state):
            return Head(name, state.sequence, state.head)

    def verify(self, name: str, head: Head | str | None = None) -> Verification:
        """Recomputes a dataset from its entries, and compares it with a head kept elsewhere.

        Args:
            name: the dataset.
            head: a :class:`Head`, its text, or a hash, kept where this ledger's administrator
                cannot write.
        """
        seen = self._book.seen(name)
        with self._database.reading() as transaction:
            found = gather(transaction, name)
        return examine(found, head, seen)  # afterwards: while one reads a file, no one can commit

    def identify(
        self, name: str, fingerprint: str, source: str, *, same_data_ok: bool = False
    ) -> Identity:
        """Compares the data's fingerprint with those seen before, and remembers it.

        For the curator: what it returns depends on the data. Warns with
        :class:`DataChangedWarning` if the data changed since; the budget goes on.

        Raises:
            LedgerError: if another dataset holds the same data, unless ``same_data_ok``.
        """
        with self._book.changing(name) as (transaction, _):
            found = identity.identify(
                transaction, name, fingerprint, str(source), same_data_ok, self._book.now()
            )
        identity.warn_if_changed(found, str(source))
        return found

    def refuse_copies(
        self, name: str, fingerprint: str, source: str, *, same_data_ok: bool = False
    ) -> None:
        """As :meth:`identify`, before the dataset is opened: a refused copy leaves no trace."""
        with self._book.database.reading() as transaction:
            identity.refuse_copies(transaction, name, fingerprint, str(source), same_data_ok)


def _events(events: Sequence[Event]) -> Sequence[Event]:
    whole = as_event(events)
    assert isinstance(whole, ComposedEvent)
    return whole.events


def _number(plan: Plan, name: str) -> int:
    if plan.dataset != name:
        raise LedgerError(f"the plan is of dataset {plan.dataset!r}, not {name!r}")
    return plan.number


def _optional(argument: str, value: str) -> str:
    return checked_name(argument, value) if value else ""


def _difference(found: Terms, asked: Terms) -> str:
    fields = ("budget", "unit", "neighbours", "description", "closed")
    for field in fields:
        old, new = getattr(found, field), getattr(asked, field)
        if old != new:
            return f"{field} is {old}, not {new}"
    return "another grid of orders"
