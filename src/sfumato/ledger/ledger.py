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
from typing import Any, Self

from sfumato.accounting.account import as_event
from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.events.composites import ComposedEvent
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import caps, identity, plans, report, store, tables
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
    require_open,
    reserve_quickly,
    take_up,
)
from sfumato.ledger.state import State
from sfumato.ledger.status import Preview, Status
from sfumato.ledger.tables import DatasetTable
from sfumato.ledger.terms import Cap, Terms, checked_name
from sfumato.ledger.transaction import Transaction
from sfumato.ledger.turns import Turn, held_turn, take_turn, went_on_elsewhere
from sfumato.ledger.verify import Verification, examine, gather

__all__ = ["Ledger"]


class Ledger:
    """Budgets in a database, for one process or many.

    Copied, as scikit-learn's ``clone`` does with an estimator's parameters, it is the same one: a
    budget has no second copy. Pickled, it is its address, which is opened again.

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

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        place = self._database.place
        if place.url.password:
            raise TypeError(
                f"{self!r} has a password and cannot be pickled: keep the password in ~/.pgpass, "
                "and open the ledger without it"
            )
        if self._book.clock is not utc_now:
            raise TypeError(f"{self!r} has a clock of its own and cannot be pickled: leave it out")
        return _reopened, (place.address, place.timeout)

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

    # --- tables ---------------------------------------------------------------------------------

    def open_table(
        self, name: str, unit_column: str | None, *, table: str = "", called: str = ""
    ) -> DatasetTable:
        """Presents the column by which a table's units are told apart; the first time, pins it.

        Whatever reads a table and charges this dataset for it calls this first. Presented again,
        the same column writes nothing.

        Args:
            name: the dataset.
            unit_column: whose values are the units; None if each row is one.
            table: which table of the dataset; needed if it holds several.
            called: what the data is called, such as a file's name without its ending: where no
                ``table`` is given, the table of that name if there is one.

        Raises:
            LedgerError: for another column than the pinned one, or a table that was not added.
        """
        column = tables.checked_column(unit_column)
        with self._book.reading(name) as (transaction, state):
            found = tables.load(transaction, name)
            which = tables.resolve(found, name, table, called)
            if which in found:
                tables.require_same(name, state.terms.unit, found[which], column)
                return found[which]
        with self._book.changing(name) as (transaction, state):
            found = tables.load(transaction, name)
            which = tables.resolve(found, name, table, called)
            return tables.pin(transaction, state, found, which, column, self._book.now())

    def add_table(self, name: str, table: str, unit_column: str | None) -> DatasetTable:
        """Adds a table to a dataset whose units are the same, told apart by a column of its own.

        For the curator, who states that a value of ``unit_column`` names the unit that it names in
        the dataset's other tables. Before anything was charged, it also corrects a column.

        Raises:
            LedgerError: if the table is there with another column, and something was charged.
        """
        which, column = checked_name("table", table), tables.checked_column(unit_column)
        with self._book.changing(name) as (transaction, state):
            return tables.add_table(transaction, state, which, column, self._book.now())

    def tables(self, name: str) -> list[DatasetTable]:
        """The tables of a dataset, with the unit column of each."""
        with self._book.reading(name) as (transaction, _):
            return list(tables.load(transaction, name).values())

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
        turn: Turn | None = None,
    ) -> Spending:
        """Reserves an event's cost. When this returns, the charge is on disk.

        The event speaks of a unit, and no table is looked at: the caller vouches that the release
        protects the units that the dataset's tables have (:meth:`tables`), told apart by the same
        columns. Queries and training present theirs by :meth:`open_table`.

        Args:
            name: the dataset.
            event: what will be released.
            analyst: who asks.
            key: an idempotency key: asked again with it, the stored answer is returned.
            request: what was asked, JSON; a key may not be used again for something else.
            label: for readers.
            plan: draw the event from this plan, which has paid for it.
            turn: of the run that the release is a part of: taken together with the charge, or
                neither is.

        Returns:
            The open reservation: a context manager. ``commit`` the answer before it is shown.

        Raises:
            BudgetExceeded: refused. Nothing was written, and a smaller request may pass.
            WentOnElsewhere: if the turn is another one's. Nothing was written.
        """
        number = None if plan is None else _number(plan, name)
        who, once = _optional("analyst", analyst), _optional("key", key)
        asked = Request.make(event, who, once, request, str(label), number)
        cost_of(event, self.terms(name))  # worked out and kept before the lock is taken
        quick = None if plan or key or turn else reserve_quickly(self._book, name, asked)
        if quick is not None:
            return quick
        with self._book.changing(name) as (transaction, state):
            answered = self._answered(transaction, state, asked) if key else None
            if answered is not None:
                if turn is not None:  # who takes a new turn wants a new release
                    raise went_on_elsewhere(name, turn.run, turn.number)
                return answered
            at = self._book.now()
            if plan is None:
                cost = cost_of(event, state.terms)
                numbers, scopes = admit(transaction, state, who, cost, at)
            else:
                cost, numbers = plans.draw(transaction, state, asked, at), []
                scopes = state.scopes(who, at)
            entry = store.append(transaction, state, "reserve", asked.payload(at, cost, numbers))
            taken = None
            if turn is not None:
                taken = take_turn(transaction, state, turn, entry, at, charged=True)
        last = 0 if taken is None else taken.sequence
        return Spending(self._book, asked, name, entry.sequence, scopes, cost, turn=last)

    def _answered(self, transaction: Transaction, state: State, asked: Request) -> Spending | None:
        """The stored answer to the same key; None if the key is new."""
        name = state.terms.dataset
        entry = store.entry_marked(transaction, name, f"key:{asked.key}")
        if entry is None:
            return None
        if entry.data["digest"] != asked.digest and not asked.is_alike(entry.data):
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

    def resume(self, name: str, number: int, event: Event, *, turn: int | Turn) -> Spending:
        """Takes a run's next turn within an open reservation, at no further charge.

        For long releases that survive their process, such as a training run with checkpoints. Each
        turn is accepted once, so that a copy of the run cannot be taken up beside it.

        Args:
            name: the dataset.
            number: the reservation's entry.
            event: what was reserved.
            turn: the next one of the run (:mod:`~sfumato.ledger.turns`). A number alone, 1, 2, ...,
                is accepted once as well; but who counts by himself must see to it that a copy of
                his counter, refused once, does not count on: compare with :meth:`history` first.

        Raises:
            WentOnElsewhere: if the turn is another one's.
            LedgerError: if there is no such open reservation, or it does not pay for the turn's
                lots.
        """
        if not isinstance(turn, Turn):
            turn = validation.count("turn", turn)
        return take_up(self._book, name, number, event, turn)

    def turn(self, name: str, run: str, number: int) -> Turn | None:
        """A turn of a run, if it was taken."""
        with self._book.reading(name) as (transaction, _):
            return held_turn(transaction, name, run, number)

    def require_open(self, name: str, number: int, event: Event) -> None:
        """Raises unless entry ``number`` is a reservation of ``event`` that has no end yet."""
        with self._book.reading(name) as (transaction, _):
            require_open(transaction, name, number, event)

    def end(self, name: str, number: int) -> Entry | None:
        """The entry by which a reservation ended, if it did."""
        with self._book.reading(name) as (transaction, _):
            return store.entry_marked(transaction, name, f"end:{number}")

    def reservation(self, name: str, key: str) -> Entry | None:
        """The reservation that was made with this key, if there is one."""
        with self._book.reading(name) as (transaction, _):
            return store.entry_marked(transaction, name, f"key:{key}")

    def declare(
        self,
        name: str,
        events: Sequence[Event],
        *,
        delta: float,
        analyst: str = "",
        key: str = "",
        label: str = "",
    ) -> Plan:
        """Charges a whole list of releases, fixed now, by their exact composition.

        Args:
            name: the dataset.
            events: what will be released, in this order.
            delta: the part of the budget's opaque delta that the plan uses.
            analyst: who will draw from it.
            key: an idempotency key: declared again with it, the plan is the first one, and nothing
                more is charged.
            label: for readers.

        Returns:
            The plan: ``spend(name, event, plan=plan)`` draws its next event at no further charge.

        Raises:
            BudgetExceeded: refused as a whole; nothing was written.
        """
        listed, who = list(_events(events)), _optional("analyst", analyst)
        once = _optional("key", key)
        guarantee = plans.promise(listed, delta, self.terms(name))
        with self._book.changing(name) as (transaction, state):
            at = self._book.now()
            return plans.declare(transaction, state, listed, guarantee, who, once, str(label), at)

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
        """A cap on what is reserved from ``starts`` until before ``ends``, by one or by everyone.

        A release counts when it is reserved: one that was reserved before ``starts`` and goes on
        afterwards does not.
        """
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
            budget_per_period: what may be reserved in one period.
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
        with store.readable(name):
            return report.status(state, entries, analyst, self._book.now(), declared)

    def history(self, name: str) -> list[Entry]:
        """Every entry of a dataset, oldest first."""
        with self._book.reading(name) as (transaction, _):
            return store.read_entries(transaction, name)

    def readings(self, name: str) -> list[report.Reading]:
        """The odometer after every entry that moved it, oldest first."""
        terms, entries = self.terms(name), self.history(name)
        with store.readable(name):
            return report.readings(terms, entries)

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
        self,
        name: str,
        fingerprint: str,
        source: str,
        *,
        same_data_ok: bool = False,
        table: str = "",
    ) -> Identity:
        """Compares the data's fingerprint with those seen before, and remembers it.

        Each table of a dataset is compared with itself; without ``table`` it is the first one.

        For the curator: what it returns depends on the data. Warns with
        :class:`DataChangedWarning` if the data changed since; the budget goes on.

        Raises:
            LedgerError: if another dataset holds the same data, unless ``same_data_ok``.
        """
        with self._book.changing(name) as (transaction, _):
            held = tables.load(transaction, name)
            which = "" if table in [*held][:1] else table
            found = identity.identify(
                transaction, name, fingerprint, str(source), same_data_ok, self._book.now(), which
            )
        identity.warn_if_changed(found, str(source))
        return found

    def refuse_copies(
        self, name: str, fingerprint: str, source: str, *, same_data_ok: bool = False
    ) -> None:
        """As :meth:`identify`, before the dataset is opened: a refused copy leaves no trace."""
        with self._book.database.reading() as transaction:
            identity.refuse_copies(transaction, name, fingerprint, str(source), same_data_ok)


def _reopened(address: str, timeout: float) -> Ledger:
    """One that was pickled; it must be there."""
    return Ledger(address, create=False, timeout=timeout)


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
