"""The ledger's part: the whole run is charged before the first private row is read.

A run is declared as a plan and charged by its exact composition as one opaque release, or, if its
plan counts in RDP, reserved as that many steps. Nothing is given back when a run stops early or is
killed: its weights may have been seen. A resumed run goes on with what was charged and charges
nothing more, because steps that may have run count as taken. With a checkpoint folder each block
of steps is a turn of the run, in its journal and in the ledger, before its lots are read
(:mod:`sfumato.learning.journal`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfumato.learning.charging import RunCharge
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.journal import RunJournal
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError
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
        run: the charge itself, and the run's turns.
    """

    ledger: Ledger | None
    dataset: str
    analyst: str = ""
    label: str = "dp-sgd"
    entry: int | None = None

    def __post_init__(self) -> None:
        self.run = RunCharge(self.ledger, self.dataset, self.analyst, self.label)

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
        if plan.lots.max_size is not None:
            self._check_cut(plan, terms)

    def _check_cut(self, plan: TrainingPlan, terms: Terms) -> None:
        """What cut lots cost holds for one relation, an extra delta up to one epsilon."""
        if plan.neighbours is not terms.neighbours:
            raise LedgerError(
                f"lots with a max_size are accounted for {plan.neighbours.value} neighbours, the "
                f"budget of {self.dataset!r} is for {terms.neighbours.value}: make the plan so"
            )
        claimed = plan.claimed_epsilon or 0.0
        if plan.costs_delta and plan.currency == "steps" and claimed < terms.budget.epsilon:
            raise LedgerError(
                f"lots with a max_size must be accounted up to the budget's epsilon "
                f"{terms.budget.epsilon:g}, got {claimed:g}: make the plan with claimed_epsilon="
                f"{terms.budget.epsilon:g}"
            )

    def make(self, plan: TrainingPlan, journal: RunJournal | None) -> None:
        """Charges the run, once; entered again, sees that no copy went on meanwhile.

        Args:
            plan: the run's.
            journal: that of its folder; None without one.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            LedgerError: if the run went on elsewhere.
        """
        if self.entry is None:
            self._make(plan, journal, None)
        else:
            self.run.go_on(journal)

    def _make(self, plan: TrainingPlan, journal: RunJournal | None, entry: int | None) -> None:
        delta = plan.delta if plan.currency == "whole" else None
        self.run.make(plan.event, plan.to_dict(), journal, entry=entry, delta=delta)
        self.entry = self.run.entry

    def finish(self, record: dict[str, Any]) -> None:
        """Writes the public record beside the charge."""
        self.run.finish(record)

    def to_dict(self) -> dict[str, Any]:
        """For a record."""
        return {"dataset": self.dataset, "entry": self.entry}

    def stored(self) -> dict[str, Any]:
        """For a checkpoint, which may be older than the charge."""
        return self.to_dict() | {"charged": self.ledger is not None}

    def check_stored(self, stored: dict[str, Any]) -> None:
        """Raises unless the run goes on with the budget that it began with."""
        charged = stored.get("charged", stored["entry"] is not None)
        if self.ledger is None:
            if charged:
                raise LedgerError(
                    f"the run was charged to {stored['dataset']!r} in a ledger: make the trainer "
                    "with that ledger to go on with it"
                )
        elif not charged:
            raise LedgerError(
                "the ledger holds no charge for this run, which began without one: go on without a "
                "ledger, or begin a new run"
            )
        elif stored["dataset"] != self.dataset:
            raise LedgerError(
                f"the run was charged to {stored['dataset']!r}, not {self.dataset!r}: make the "
                "trainer with dataset= as it was"
            )

    def resume(self, stored: dict[str, Any], plan: TrainingPlan, journal: RunJournal) -> None:
        """Takes up the charge that an earlier process made, if it made one.

        (It may have been killed before the charge; then the loop makes it, after its rehearsal.)

        Raises:
            LedgerError: if the ledger does not hold it, if the run has ended, or if it went on
                elsewhere: a copied folder is not a second run.
        """
        self.check_stored(stored)
        if self.ledger is None:
            return
        entry = stored["entry"]
        if entry is None and self.ledger.reservation(self.dataset, journal.run) is None:
            return
        self._make(plan, journal, entry)
        if self.run.ended is not None:
            raise LedgerError(
                f"reservation {self.entry} of {self.dataset!r} has ended: what takes it up is an "
                "older copy, whose steps would be taken a second time. Begin a new run"
            )
