"""The ledger's part: a budget of labels, charged once before the first label is read.

A budget of labels is another account than one of records: its unit is "label" and its relation
replace-one. A run on a budget of another unit is refused. Nothing is given back when a run is cut
off; gone on with, it takes up the charge that it made.

One charge pays for one report of each label. A copied folder, or a backup that was put back, would
report labels a second time, so every piece of labels is a turn of the reservation (see
:mod:`~sfumato.learning.label_dp.journal`): its number is in the journal first and then in the
ledger. A run whose journal lacks a number that the ledger holds is a copy of one that went further,
and is refused. Two that go on at once both look after they wrote, so that one of them at most finds
no other. The record is committed in the ledger before it, or the model, is in the folder: of a
run and its copies one is published.
"""

from __future__ import annotations

from typing import Any, final

from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.top_k import LABEL
from sfumato.ledger import Ledger
from sfumato.ledger.entries import plain
from sfumato.ledger.errors import BudgetExceeded, LedgerError
from sfumato.ledger.spending import Spending

__all__ = ["LabelCharge"]


@final
class LabelCharge:
    """One run's place in a ledger; the guard of its journal.

    Args:
        ledger: where to; None charges nobody.
        dataset: whose budget of labels.
        analyst: in whose name.

    Raises:
        LedgerError: if the budget protects anything else than one label that is replaced.
    """

    def __init__(self, ledger: Ledger | None, dataset: str, analyst: str) -> None:
        self._ledger, self.dataset, self._analyst = ledger, dataset, analyst
        self._entry = 0
        self._spending: Spending | None = None
        self._stored: Any = None  # the record, if it was committed before
        if ledger is not None:
            _check_terms(ledger, dataset)

    @property
    def charged(self) -> str | None:
        """Whose budget; None for nobody's."""
        return None if self._ledger is None else self.dataset

    def check_room(self, event: Event) -> None:
        """Says early what would be refused later. Nothing is spent.

        Raises:
            BudgetExceeded: if the budget has no room for the run.
        """
        if self._ledger is None:
            return
        if not self._ledger.preview(self.dataset, event, analyst=self._analyst).passes:
            raise BudgetExceeded(
                f"the budget of {self.dataset!r} has no room for this run. Nothing was spent; "
                "train with a smaller epsilon, or open a larger budget",
                self.dataset,
                "the dataset",
            )

    def make(self, event: Event, recipe: dict[str, Any], journal: LabelJournal) -> None:
        """Charges the run, or takes up the charge that it made before it was cut off.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            LedgerError: if the run is a copy of one that went on elsewhere.
        """
        if self._ledger is None:
            return
        journal.guard = self
        if journal.entry is None:
            self._spending = self._ledger.spend(
                self.dataset, event, analyst=self._analyst, request=recipe, label="label-dp"
            )
            self._entry = self._spending.sequence
            journal.charged(self._entry)
            return
        self._entry = journal.entry
        self.check(journal.turns)
        self._stored = self._committed()
        if self._stored is None:
            turn = journal.new_turn({})
            self._spending = self._ledger.resume(self.dataset, self._entry, event, turn=turn)
            self.check(journal.turns)

    def check(self, turns: set[int]) -> None:
        """Raises if the ledger holds a turn of this charge that is none of ``turns``.

        Raises:
            LedgerError: if it does.
        """
        assert self._ledger is not None
        for entry in self._ledger.history(self.dataset):
            if entry.kind != "resume":
                continue
            data = entry.data
            if data["reserve"] == self._entry and data["turn"] not in turns:
                raise LedgerError(
                    f"reservation {self._entry} of {self.dataset!r} went on elsewhere: this run's "
                    "folder is a copy, or an older state of it, and would tell labels a second "
                    "time. Go on there, or begin a new run with a charge of its own"
                )

    def take(self, turn: int, turns: set[int]) -> None:
        """Writes a turn into the ledger, and looks whether it is alone with it.

        Raises:
            LedgerError: if it is not, or the charge has ended.
        """
        assert self._ledger is not None
        if self._spending is None:
            raise LedgerError(
                f"the charge of this run ({self.dataset!r}) has ended: its labels were told, and "
                "none is read again. Begin a new run with a charge of its own"
            )
        self._ledger.resume(self.dataset, self._entry, self._spending.event, turn=turn)
        self.check(turns)

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge; nothing of it may be shown before.

        Raises:
            LedgerError: if the charge ended with another record.
        """
        if self._spending is not None:
            self._spending.commit(record)
            self._spending = None
        elif self._stored is not None and self._stored != plain(record):
            raise LedgerError(
                f"the charge of this run ({self.dataset!r}) has ended with another record: this "
                "folder is a copy, or an older state of it"
            )

    def _committed(self) -> Any:
        """The record that the charge ended with; None if it is open, or ended without one."""
        assert self._ledger is not None
        for entry in self._ledger.history(self.dataset):
            if entry.kind == "commit" and entry.data["reserve"] == self._entry:
                return entry.data["answer"]
        return None


def _check_terms(ledger: Ledger, dataset: str) -> None:
    terms = ledger.terms(dataset)
    if terms.unit != LABEL or terms.neighbours is not Neighbours.REPLACE_ONE:
        raise LedgerError(
            f"the budget of {dataset!r} protects {terms.neighbours.describe(terms.unit)}, the run "
            f"{Neighbours.REPLACE_ONE.describe(LABEL)}: open an account for labels of its own "
            f"(sfumato ledger create {dataset}-labels --unit {LABEL} --neighbours replace-one "
            "--epsilon 4)"
        )
