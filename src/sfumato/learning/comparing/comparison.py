"""From a data set to a comparison: planned, priced, trained, and put into words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.data import Dataset, Features
from sfumato.learning.comparing.cells import Plan, planned
from sfumato.learning.comparing.costs import Cost, costs_of
from sfumato.learning.comparing.methods import Payer
from sfumato.learning.comparing.running import Told, run_cells
from sfumato.learning.comparing.store import Store
from sfumato.learning.comparing.summary import Row, advice_of, rows_of
from sfumato.learning.comparing.tasks import Task, quick_features
from sfumato.learning.features import FeatureMap
from sfumato.ledger import Ledger

__all__ = ["Comparison", "all_promised", "compare", "may_be_shown", "run_plan", "warnings_of"]

_PUBLIC_DATA = (
    "All of {name} is published, so that nobody is harmed. Compare on public data like yours, then "
    "train the method of your choice once on the private data."
)
_CHOSEN = (
    "Whoever chooses by these accuracies has used every run: the choice costs the whole sum, even "
    "if only one model is published. Compare on public data like yours instead, then train once."
)
_CURATOR = (
    "For your eyes only: accuracies are of private test rows, which no run was charged for. To "
    "choose by them is a release that nobody paid for."
)
_PLAIN = "The line without privacy is read through a model that hides nothing: for your eyes only."


@final
@dataclass(frozen=True, eq=False)
class Comparison:
    """What was found.

    Attributes:
        plan: what was to be trained, what was left out and why.
        rows: of the table; methods in the order of where their noise goes, by epsilon.
        costs: of all runs together, if they are published together or chosen from.
        advice: sentences, from the table alone.
        warnings: what may not be done with it.
        finished: whether all runs are done.
        folder: where they are.
    """

    plan: Plan
    rows: tuple[Row, ...]
    costs: tuple[Cost, ...]
    advice: list[str]
    warnings: list[str]
    finished: bool
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "channel": "public" if may_be_shown(self.plan) else "curator",
            "data": self.plan.task.data.name,
            "rows": [self._told(row) for row in self.rows],
            "left_out": self.plan.left_out,
            "together": [cost.to_dict() for cost in self.costs],
            "advice": self.advice,
            "warnings": self.warnings,
            "finished": self.finished,
            "out": str(self.folder),
        }

    def _told(self, row: Row) -> dict[str, Any]:
        """Without the time it took, unless the number of rows, which it goes by, is published."""
        told = row.to_dict()
        return told if self.plan.task.published else told | {"seconds": None}


def compare(
    data: Dataset,
    epsilons: Sequence[float],
    *,
    out: str | Path,
    methods: Sequence[str] | None = None,
    delta: float = 1e-5,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    unit: str = "record",
    rows_per_owner: int = 1,
    features: FeatureMap | None = None,
    columns: Features | None = None,
    repeats: int = 1,
    ledger: str | Path | None = None,
    dataset: str = "",
    label_dataset: str = "",
    analyst: str = "",
    jobs: int = 1,
    minutes: float | None = None,
    device: str = "cpu",
    told: Told | None = None,
) -> Comparison:
    """Trains the same task by every private method that suits it, and by none.

    **Every run is a release.** What they cost together is in the result's ``costs``, and in
    ``planned(...)`` before anything is trained. Meant for public data that is like the private.

    Args:
        data: on what.
        epsilons: of the runs.
        out: a folder: new, or of a comparison of the same task, whose finished runs are kept.
        methods: names (:func:`~.registry.method_names`); None for all that suit the data.
        delta: of each run; private labels have none.
        neighbours: the relation of the guarantees; a method that has another is marked.
        unit: whom they protect.
        rows_per_owner: with owners, the most rows of one in a lot.
        features: before linear models; None for quick ones, by the shape of the inputs.
        columns: of a table of one's own, as declared.
        repeats: so many runs of each, for a spread; each costs.
        ledger: charged by each run, before it tells anything of a row. A folder belongs to one
            account, or to none.
        dataset: whose budget of records.
        label_dataset: whose budget of labels.
        analyst: in whose name.
        jobs: so many runs at once, in processes of their own. Give more than 1 only in a script
            with ``if __name__ == "__main__"``.
        minutes: begin no run after so many; the same call goes on.
        device: such as "cuda".
        told: who is told how far it is.

    Raises:
        ValueError: for parameters that cannot be, before anything is read or spent.
        BudgetExceeded: if a ledger does not pay for a run; what was done before is kept.
    """
    task = Task(
        data, quick_features(data.shape) if features is None else features, delta,
        Neighbours.parse(neighbours), unit, rows_per_owner, columns,
    )  # fmt: skip
    payer = Payer(None if ledger is None else str(ledger), dataset, label_dataset, analyst)
    plan = planned(task, epsilons, methods, repeats, payer)
    return run_plan(plan, out, jobs=jobs, minutes=minutes, device=device, told=told)


def run_plan(
    plan: Plan,
    out: str | Path,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    device: str = "cpu",
    told: Told | None = None,
    begun: Callable[[Store], object] | None = None,
) -> Comparison:
    """Trains what a plan says.

    Args:
        plan: what.
        out: where, as for :func:`compare`.
        jobs: as there.
        minutes: as there.
        device: as there.
        told: as there.
        begun: called before the first run, with what was done earlier.
    """
    _check_rows(plan)
    _check_accounts(plan.payer)
    jobs = validation.count("jobs", jobs)
    if minutes is not None:
        validation.positive("minutes", minutes)
    store = Store(Path(out), plan.task.to_dict() | {"charged": plan.payer.accounts})
    try:
        if begun is not None:
            begun(store)
        done = run_cells(
            plan.task, plan.cells, store, plan.payer,
            jobs=jobs, minutes=minutes, device=device, told=told,
        )  # fmt: skip
        return _compared(plan, store, done)
    finally:
        store.close()


def _check_rows(plan: Plan) -> None:
    task = plan.task
    first = task.data.rows is not None and task.neighbours is Neighbours.ADD_REMOVE
    if plan.payer.ledger is not None and first:
        raise ValueError(
            "rows must be left out with a ledger, unless neighbours is replace-one: adding or "
            "removing one record of the whole moves another into the first rows"
        )


def _check_accounts(payer: Payer) -> None:
    """Raises if there is no such ledger or account, before a folder is made."""
    if payer.ledger is None:
        return
    with contextlib.closing(Ledger(payer.ledger, create=False)) as book:
        for account in filter(None, (payer.dataset, payer.labels)):
            book.status(account)


def _compared(plan: Plan, store: Store, done: bool) -> Comparison:
    task = plan.task
    results = [store.results[cell] for cell in plan.cells if cell in store.results]
    rows = rows_of(results)
    tested = len(task.data.test.labels) if task.data.test_is_public else None
    return Comparison(
        plan, rows, costs_of(all_promised(plan, store)), advice_of(rows, task.neighbours, tested),
        warnings_of(plan), done, store.path,
    )  # fmt: skip


def all_promised(plan: Plan, store: Store) -> list[Guarantee]:
    """Of all that a choice depends on: the plan's runs, and what is in the folder besides."""
    besides = [one.guarantee for cell, one in store.results.items() if cell not in plan.promised]
    return [*plan.promised.values(), *besides]


def may_be_shown(plan: Plan) -> bool:
    """Whether the table tells no more than was paid for, or is about published data."""
    plain = any(cell.epsilon is None for cell in plan.cells)
    return plan.task.published or (plan.task.data.test_is_public and not plain)


def warnings_of(plan: Plan) -> list[str]:
    """What may not be done with the table, from public facts alone."""
    data = plan.task.data
    if plan.task.published:
        return [_PUBLIC_DATA.format(name=data.name)]
    found = [_CHOSEN if data.test_is_public else _CURATOR]
    if any(cell.epsilon is None for cell in plan.cells):
        found.append(_PLAIN)
    return found
