"""The ledger's part: a budget of labels, charged once before the first label is read.

A budget of labels is another account than one of records: its unit is "label" and its relation
replace-one. A run on a budget of another unit is refused. Nothing is given back when a run is cut
off; gone on with, it takes up the charge that it made.
"""

from __future__ import annotations

from typing import Any, final

from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError
from sfumato.ledger.spending import Spending

__all__ = ["LabelCharge"]

_FILE = "charge.json"


@final
class LabelCharge:
    """One run's place in a ledger.

    Args:
        ledger: where to; None charges nobody.
        dataset: whose budget of labels.
        analyst: in whose name.
        unit: of the run.
    """

    def __init__(self, ledger: Ledger | None, dataset: str, analyst: str, unit: str) -> None:
        self._ledger, self.dataset, self._analyst = ledger, dataset, analyst
        self._spending: Spending | None = None
        if ledger is not None:
            _check_terms(ledger, dataset, unit)

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

    def make(self, event: Event, recipe: dict[str, Any], folder: RunFolder) -> None:
        """Charges the run, or takes up the charge that it made before it was cut off.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
        """
        if self._ledger is None:
            return
        if not (folder.curator / _FILE).exists():
            self._spending = self._ledger.spend(
                self.dataset, event, analyst=self._analyst, request=recipe, label="label-dp"
            )
            folder.write_curator(_FILE, {"entry": self._spending.sequence, "turn": 0})
            return
        kept = folder.read_curator(_FILE)
        turn = kept["turn"] + 1
        folder.write_curator(_FILE, kept | {"turn": turn})
        self._spending = self._ledger.resume(self.dataset, kept["entry"], event, turn=turn)

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge."""
        if self._spending is not None:
            self._spending.commit(record)
            self._spending = None


def _check_terms(ledger: Ledger, dataset: str, unit: str) -> None:
    terms = ledger.terms(dataset)
    if terms.unit != unit or terms.neighbours is not Neighbours.REPLACE_ONE:
        raise LedgerError(
            f"the budget of {dataset!r} protects {terms.neighbours.describe(terms.unit)}, the run "
            f"{Neighbours.REPLACE_ONE.describe(unit)}: open an account for labels of its own "
            f"(sfumato ledger create {dataset}-labels --unit {unit} --neighbours replace-one "
            "--epsilon 4)"
        )
