"""A run that is charged once, as a whole, before its first lot is read, and then takes turns.

The charge is made under the run's name, which is in its journal first: whoever goes on finds it,
also after a crash between the charge and everything else. Nothing is given back when a run stops
early or is killed, for what it released may have been seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from sfumato.core.events import Event
from sfumato.learning.journal import RunJournal
from sfumato.ledger import Entry, Ledger, LedgerError, Plan, Spending, Turn
from sfumato.ledger.entries import plain

__all__ = ["RunCharge"]


@final
class RunCharge:
    """One run's place in a ledger.

    Attributes:
        entry: the number of the charge's entry, once there is one.
        ended: the entry that ended the charge in an earlier process: nothing is read any more.

    Args:
        ledger: where to; None charges nobody, and turns are the journal's alone.
        dataset: whose budget.
        analyst: in whose name.
        label: for readers of the history.
    """

    def __init__(self, ledger: Ledger | None, dataset: str, analyst: str, label: str) -> None:
        self.ledger, self.dataset = ledger, dataset
        self._analyst, self._label = analyst, label
        self.entry: int | None = None
        self.ended: Entry | None = None
        self._spending: Spending | None = None
        self._journal: RunJournal | None = None

    def make(
        self, event: Event, request: Any, journal: RunJournal | None, *,
        entry: int | None = None, delta: float | None = None,
    ) -> None:  # fmt: skip
        """Charges the run, or takes up the charge that it made before it was cut off.

        Args:
            event: everything that it releases.
            request: what was asked, JSON.
            journal: the run's; None for one that nobody goes on with.
            entry: of the charge, where it was not made under the run's name (first version).
            delta: charges the event by its exact composition, as a plan that uses so much.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            WentOnElsewhere: if the folder is a copy of one that went on.
            LedgerError: if the ledger is not the one that paid.
        """
        self._open(journal)
        if self.ledger is None:
            return
        if journal is not None:
            made = self.ledger.reservation(self.dataset, journal.run)
            if made is not None:
                self._take_up(event, journal, made.sequence)
                return
            if entry is not None:
                self._take_up(event, journal, entry, old=True)
                return
            if journal.lots or journal.number:
                raise LedgerError(
                    f"the ledger holds no charge for this run to {self.dataset!r}: go on with the "
                    "ledger that it was charged to"
                )
        plan: Plan | None = None
        key = "" if journal is None else journal.run
        if delta is not None:  # by the run's name, too: it may die before the plan is drawn
            plan = self.ledger.declare(
                self.dataset, [event], delta=delta, analyst=self._analyst, key=key,
                label=self._label,
            )  # fmt: skip
        self._spending = self.ledger.spend(
            self.dataset, event, analyst=self._analyst, key=key, request=request,
            label=self._label, plan=plan,
        )  # fmt: skip
        self.entry = self._spending.sequence

    def go_on(self, journal: RunJournal | None) -> None:
        """In the process that charged it or took it up, by a journal that was opened again.

        Raises:
            WentOnElsewhere: if a copy of the run went on.
        """
        self._open(journal)
        if journal is not None:
            journal.agree()

    def _open(self, journal: RunJournal | None) -> None:
        self._journal = journal
        if self.ledger is not None and journal is not None:
            journal.charge_to(self.ledger, self.dataset)

    def _take_up(self, event: Event, journal: RunJournal, entry: int, old: bool = False) -> None:
        assert self.ledger is not None
        self.entry, self.ended = entry, self.ledger.end(self.dataset, entry)
        if self.ended is not None:
            return
        self.ledger.require_open(self.dataset, entry, event)  # or nothing is written anywhere
        if old and not journal.number:
            journal.require_old_turns(entry)
        self._spending = journal.take(journal.lots, lambda turn: self._resumed(event, turn))

    def take(self, lots: int, what: Mapping[str, Any] | None = None) -> None:
        """The run's next turn: in its journal, and in the ledger.

        Args:
            lots: how many count as taken from now on.
            what: what the run notes in the same line.

        Raises:
            WentOnElsewhere: if a copy of the run went on.
            LedgerError: if the charge has ended.
        """
        assert self._journal is not None
        if self.ledger is None:
            self._journal.take(lots, lambda turn: None, what)
            return
        if self._spending is None:
            raise LedgerError(
                f"the charge of this run to {self.dataset!r} has ended: it went on elsewhere, and "
                "this folder is an older copy, whose lots would be read a second time. Begin a new "
                "run with a charge of its own"
            )
        event = self._spending.event
        self._spending = self._journal.take(lots, lambda turn: self._resumed(event, turn), what)

    def _resumed(self, event: Event, turn: Turn) -> Spending:
        assert self.ledger is not None
        assert self.entry is not None
        return self.ledger.resume(self.dataset, self.entry, event, turn=turn)

    def finish(self, answer: Any) -> None:
        """Writes what came of it beside the charge; nothing of it may be shown before.

        Raises:
            LedgerError: if the charge has ended with something else.
        """
        if self._spending is not None:
            self._spending.commit(answer)
            self._spending = None
        elif self.ended is not None and self.ended.data.get("answer") != plain(answer):
            raise LedgerError(
                f"the charge of this run to {self.dataset!r} has ended with another record: this "
                "folder is a copy, or an older state of it"
            )
