"""The ledger's part: a budget of labels, charged once before the first label is read.

A budget of labels is another account than one of records: its unit is "label" and its relation
replace-one. A run on a budget of another unit is refused. Nothing is given back when a run is cut
off; gone on with, it takes up the charge that it made.

One charge pays for one report of each label. A copied folder, or a backup that was put back, would
report labels a second time, so every piece of labels is a turn of the run
(:mod:`sfumato.learning.journal`). The record is committed in the ledger before it, or the model, is
in the folder: of a run and its copies one is published.
"""

from __future__ import annotations

from typing import Any, final

from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.learning.charging import RunCharge
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.top_k import LABEL
from sfumato.ledger import Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError

__all__ = ["LabelCharge"]


@final
class LabelCharge:
    """One run's place in a ledger.

    Args:
        ledger: where to; None charges nobody.
        dataset: whose budget of labels.
        analyst: in whose name.

    Raises:
        LedgerError: if the budget protects anything else than one label that is replaced.
    """

    def __init__(self, ledger: Ledger | None, dataset: str, analyst: str) -> None:
        self._ledger, self.dataset, self._analyst = ledger, dataset, analyst
        self._run = RunCharge(ledger, dataset, analyst, "label-dp")
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
        self._run.make(event, recipe, journal.run, entry=journal.entry)
        journal.charge = self._run

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge; nothing of it may be shown before.

        Raises:
            LedgerError: if the charge ended with another record.
        """
        self._run.finish(record)


def _check_terms(ledger: Ledger, dataset: str) -> None:
    terms = ledger.terms(dataset)
    if terms.unit != LABEL or terms.neighbours is not Neighbours.REPLACE_ONE:
        raise LedgerError(
            f"the budget of {dataset!r} protects {terms.neighbours.describe(terms.unit)}, the run "
            f"{Neighbours.REPLACE_ONE.describe(LABEL)}: open an account for labels of its own "
            f"(sfumato ledger create {dataset}-labels --unit {LABEL} --neighbours replace-one "
            "--epsilon 4)"
        )
