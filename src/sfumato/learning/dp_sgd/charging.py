"""The ledger's part: the whole run is charged before the first private row is read.

A run is declared as a plan and charged by its exact composition as one opaque release, or, if its
plan counts in RDP, reserved as that many steps. Nothing is given back when a run stops early or is
killed: its weights may have been seen. A resumed run goes on with what was charged and charges
nothing more, because steps that may have run count as taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.spending import Spending

__all__ = ["Charge"]


@dataclass
class Charge:
    """One run's place in a ledger.

    Attributes:
        ledger: where to; None charges nobody.
        dataset: whose budget.
        analyst: who asks.
        label: for readers of the history.
        entry: the number of the charge's entry, once it is made.
    """

    ledger: Ledger | None
    dataset: str
    analyst: str = ""
    label: str = "dp-sgd"
    entry: int | None = None
    _spending: Spending | None = field(default=None, repr=False)
    _ended: bool = field(default=False, repr=False)

    def check(self, plan: TrainingPlan) -> None:
        """Raises if the budget protects someone else; whether it has room is asked by :meth:`make`.

        (A run that goes on was charged already, and perhaps there is room for no other.)
        """
        if self.ledger is None:
            return
        terms = self.ledger.terms(self.dataset)
        if terms.unit != plan.protected_unit:
            raise LedgerError(
                f"the budget of {self.dataset!r} protects one {terms.unit}, the run one "
                f"{plan.protected_unit}: train with unit={terms.unit!r}, or state how many records "
                f"one {terms.unit} holds (records_per_unit, group_unit)"
            )

    def make(self, plan: TrainingPlan) -> None:
        """Charges the run, once.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            LedgerError: if it goes on with a charge whose run has ended.
        """
        if self._ended:
            raise LedgerError(
                f"the run that entry {self.entry} of {self.dataset!r} paid for has ended: the "
                "checkpoints are an older copy of it, whose steps would be taken a second time. "
                "Begin a new run"
            )
        if self.ledger is None or self.entry is not None:
            return
        request = plan.to_dict()
        if plan.currency == "whole":
            declared = self.ledger.declare(
                self.dataset, [plan.event], delta=plan.delta, analyst=self.analyst, label=self.label
            )
            self._spending = self.ledger.spend(
                self.dataset, plan.event, analyst=self.analyst, request=request, label=self.label,
                plan=declared,
            )  # fmt: skip
        else:
            self._spending = self.ledger.spend(
                self.dataset, plan.event, analyst=self.analyst, request=request, label=self.label
            )
        self.entry = self._spending.sequence

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge."""
        if self._spending is not None:
            self._spending.commit(record)
            self._spending = None

    def to_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"dataset": self.dataset, "entry": self.entry}

    def resume(self, stored: dict[str, Any], plan: TrainingPlan) -> None:
        """Takes up a charge that an earlier process made, if the ledger holds it.

        Raises:
            LedgerError: if it does not.
        """
        if self.ledger is None:
            return
        number = stored.get("entry")
        history = self.ledger.history(self.dataset)
        entries = [e for e in history if e.sequence == number]
        if not entries or entries[0].data.get("event") != plan.event.to_dict():
            raise LedgerError(
                f"the ledger holds no charge for this run (entry {number} of {self.dataset!r}): "
                "open the ledger that the run began with, or begin a new run"
            )
        self.entry = number
        ends = (e for e in history if e.kind in ("commit", "failed"))
        self._ended = any(e.data.get("reserve") == number for e in ends)
