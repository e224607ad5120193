"""The ledger's part: a fit is charged before a row is looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.places import Place
from sfumato.ledger.spending import Spending

__all__ = ["Charge", "same_ledger"]


def same_ledger(left: Ledger | str | Path, right: Ledger | str | Path) -> bool:
    """Whether two ledgers, or addresses, are one."""
    one, other = (
        x._database.place if isinstance(x, Ledger) else Place.parse(x, 0.0) for x in (left, right)
    )
    if one.sqlite and other.sqlite:
        return one.file.resolve() == other.file.resolve()
    return one.url == other.url


@final
@dataclass
class Charge:
    """One release's place in a ledger.

    A fit is one release, known as a whole beforehand: it is declared and charged by what it
    promises at its delta. Nothing is given back for one that was cut off.

    Attributes:
        ledger: or its address; None charges nobody.
        dataset: whose budget.
        analyst: in whose name.
        label: for readers of the history.
    """

    ledger: Ledger | str | Path | None
    dataset: str
    analyst: str = ""
    label: str = "erm"
    _spending: Spending | None = field(default=None, repr=False)

    def make(self, event: Event, delta: float, request: dict[str, Any]) -> None:
        """Charges the release.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            LedgerError: if the budget protects someone else.
        """
        if self.ledger is None:
            return
        book = self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger, create=False)
        terms = book.terms(self.dataset)
        unit = terms.unit
        if unit != event.unit_name:
            raise LedgerError(
                f"the budget of {self.dataset!r} protects one {unit}, the fit one "
                f"{event.unit_name}: fit with unit={unit!r} if each row is one {unit}"
            )
        if terms.neighbours is Neighbours.ZERO_OUT:
            raise LedgerError(
                f"the budget of {self.dataset!r} protects {unit}s from being blanked out, and a "
                "blank row is not an absent one here: it counts as a row at the declared defaults. "
                "Open the budget with neighbours='replace-one', and fit with the same"
            )
        analyst, label = self.analyst, self.label
        plan = None
        if delta:
            plan = book.declare(self.dataset, [event], delta=delta, analyst=analyst, label=label)
        self._spending = book.spend(
            self.dataset, event, analyst=analyst, label=label, request=request, plan=plan
        )

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge, before it is shown."""
        if self._spending is not None:
            self._spending.commit(record)
            self._spending = None

    @property
    def facts(self) -> dict[str, Any]:
        """For the record."""
        if self._spending is None:
            return {}
        return {"ledger": {"dataset": self.dataset, "entry": self._spending.sequence}}
