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
from sfumato.ledger.terms import Terms

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
        if plan.lots.overflow(1) > 0:
            self._check_overflow(plan, terms)

    def _check_overflow(self, plan: TrainingPlan, terms: Terms) -> None:
        """The extra delta of cut lots holds for one relation, up to one epsilon."""
        if plan.neighbours is not terms.neighbours:
            raise LedgerError(
                f"lots with a max_size are accounted for {plan.neighbours.value} neighbours, the "
                f"budget of {self.dataset!r} is for {terms.neighbours.value}: make the plan so"
            )
        claimed = plan.claimed_epsilon or 0.0
        if plan.currency == "steps" and claimed < terms.budget.epsilon:
            raise LedgerError(
                f"lots with a max_size must be accounted up to the budget's epsilon "
                f"{terms.budget.epsilon:g}, got {claimed:g}: make the plan with claimed_epsilon="
                f"{terms.budget.epsilon:g}"
            )

    def make(self, plan: TrainingPlan) -> None:
        """Charges the run, once.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
        """
        if self.ledger is None or self.entry is not None:
            return
        who = {"analyst": self.analyst, "label": self.label}
        declared = None
        if plan.currency == "whole":
            declared = self.ledger.declare(self.dataset, [plan.event], delta=plan.delta, **who)
        self._spending = self.ledger.spend(
            self.dataset, plan.event, request=plan.to_dict(), plan=declared, **who
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

    def resume(self, stored: dict[str, Any], plan: TrainingPlan, turn: int) -> None:
        """Takes up the charge that an earlier process made, if the ledger holds it.

        Raises:
            LedgerError: if it does not, if the run has ended, or if it went on elsewhere: a copied
                folder is not a second run.
        """
        if self.ledger is None:
            if stored.get("entry") is not None:
                raise LedgerError(
                    f"the run was charged to {stored['dataset']!r} in a ledger: make the trainer "
                    "with that ledger to go on with it"
                )
            return
        if stored.get("entry") is None:
            raise LedgerError(
                "the ledger holds no charge for this run, which began without one: go on without a "
                "ledger, or begin a new run"
            )
        if stored["dataset"] != self.dataset:
            raise LedgerError(
                f"the run was charged to {stored['dataset']!r}, not {self.dataset!r}: make the "
                "trainer with dataset= as it was"
            )
        self._spending = self.ledger.resume(self.dataset, stored["entry"], plan.event, turn=turn)
        self.entry = stored["entry"]
