"""Hyper-parameters that are paid for: the best of a random number of private runs.

    search = Search(candidates, Trials(10), epsilon=3.0, delta=1e-5)
    tuned = tune(search, load_dataset("mnist"), out="runs/tuned")
    tuned.record.guarantee, tuned.recipe

A number of runs is drawn, secretly. Each takes one of the candidates by a fair draw, trains, and is
scored by its accuracy on *public* test rows. The best run is released; the others, how many there
were and their scores stay in ``curator/``.

Formal guarantees
- What is outside of ``curator/`` follows from ``search.event(size)``, the cost of the best of so
  many runs (:mod:`~sfumato.accounting.selected_curve`) whatever candidates they drew: at each order
  the dearest candidate's RDP counts. The one that is drawn is public, and drawn in the same way
  whatever the data are, so the divergence of a run is at most that of the dearest.
- All candidates have one noise multiplier, the least by which the whole meets ``epsilon``.
- A ledger is charged for all of it before a row is read. A search that is cut off begins anew, and
  is charged anew.

Time tells how many runs there were: do not let an observer measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from torch import nn

from sfumato.accounting import Trials, account, calibrate, selected_curve
from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import rdp_vector
from sfumato.core import validation
from sfumato.core.events import Event, RdpCurveEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_sizes, refuse_first_rows
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.training import Trained, check_recipe, train
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.mechanisms.sampling import uniform_integers

__all__ = ["Search", "SearchPlan", "Tuned", "tune"]

_KEPT = "search.json"


@final
@dataclass(frozen=True)
class SearchPlan:
    """What a search costs, before a row is read.

    Attributes:
        noise_multiplier: of every candidate.
        event: everything that is released.
        guarantee: what that amounts to.
    """

    noise_multiplier: float
    event: RdpCurveEvent
    guarantee: Guarantee


@final
@dataclass(frozen=True)
class Search:
    """Candidates, and the law of the number of runs.

    Attributes:
        candidates: recipes that say how long to train (``epochs`` or ``steps``), and neither
            epsilon nor noise, which follow; all for one relation and one unit.
        trials: how many runs; at least one.
        epsilon: of the whole search.
        delta: likewise.
    """

    candidates: tuple[Recipe, ...]
    trials: Trials
    epsilon: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        validation.positive("epsilon", self.epsilon)
        validation.open_probability("delta", self.delta)
        if not self.candidates:
            validation.fail("candidates", "at least one recipe", self.candidates)
        if self.trials.poisson:
            validation.fail("trials", "a law of at least one run, not a Poisson one", self.trials)
        for recipe in self.candidates:
            if recipe.epsilon is not None or recipe.noise_multiplier is not None:
                raise ValueError(
                    "candidates must leave epsilon and noise_multiplier open: the search finds the "
                    "noise by which all of it costs epsilon"
                )
            if recipe.canaries is not None:
                raise ValueError("candidates must have no canaries: audit the recipe that won")
        if len({(r.neighbours, r.unit, r.rows_per_owner) for r in self.candidates}) > 1:
            raise ValueError("candidates must all be for one relation, one unit and one bound")

    def plan(self, public_size: int) -> SearchPlan:
        """The noise, and the guarantee, for so many units, as declared."""
        noise = calibrate(
            lambda multiplier: self.event(public_size, multiplier),
            epsilon=self.epsilon,
            delta=self.delta,
        )
        event = self.event(public_size, noise)
        return SearchPlan(noise, event, account(event, self.delta))

    def event(self, public_size: int, noise_multiplier: float) -> RdpCurveEvent:
        """Everything that a search with so much noise releases."""
        first = self.candidates[0]
        events: list[Event] = []
        for recipe in self.candidates:
            found = self.priced(recipe, noise_multiplier).event(public_size)
            if found not in events:  # most searches vary what costs nothing
                events.append(found)
        curves = [rdp_vector(event, first.neighbours) for event in events]
        if any(curve.slack > 0 for curve in curves):
            raise ValueError("candidates must have an RDP: leave out max_lot, which costs delta")
        worst = np.max([curve.values for curve in curves], axis=0)
        usable = np.isfinite(worst)
        orders = np.asarray(DEFAULT_ORDERS)[usable]
        one = RdpCurveEvent(
            tuple(orders.tolist()), tuple(worst[usable].tolist()), False, first.neighbours,
            first.unit,
        )  # fmt: skip
        return selected_curve(one, self.trials)

    def priced(self, recipe: Recipe, noise_multiplier: float) -> Recipe:
        """A candidate with the noise of the search."""
        return replace(recipe, noise_multiplier=noise_multiplier, delta=self.delta)

    def drawn(self, noise_multiplier: float, coins: Coins) -> Recipe:
        """One of the candidates, by a fair draw."""
        place = int(uniform_integers(len(self.candidates), 1, coins)[0])
        return self.priced(self.candidates[place], noise_multiplier)

    @property
    def said(self) -> str:
        """For a record: where the hyper-parameters come from."""
        return (
            f"chosen on this data and paid for: the best, on public test rows, of a random number "
            f"of runs (mean {self.trials.mean:g}, shape {self.trials.shape:g}) among "
            f"{len(self.candidates)} candidates"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "candidates": [recipe.to_dict() for recipe in self.candidates],
            "trials": {"mean": self.trials.mean, "shape": self.trials.shape},
            "epsilon": self.epsilon,
            "delta": self.delta,
        }


@final
@dataclass(frozen=True)
class Tuned:
    """The best run of a search.

    Attributes:
        model: as of :class:`~sfumato.learning.recipes.training.Trained`.
        record: public: the winner's recipe, the cost of the whole search.
        recipe: the winner's.
        accuracy: on the public test rows by which it was chosen, the best of several: optimistic.
        folder: where it all is.
        trials: how many runs there were: the curator's secret.
    """

    model: nn.Module
    record: Record
    recipe: Recipe
    accuracy: float
    folder: RunFolder
    trials: int


def tune(
    search: Search,
    data: Dataset,
    *,
    out: str | Path,
    public_size: int | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    observer: Observer | None = None,
    watch: Callable[[int, Recipe, float], None] | None = None,
    coins: Coins = SYSTEM,
) -> Tuned:
    """Trains the best of a random number of candidates.

    Args:
        search: which.
        data: on what; its test rows must be public.
        out: the run's folder, new or empty.
        public_size: the declared number of units; by default the data set's.
        ledger: charge this one before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: such as "cuda".
        observer: who is told of each run.
        watch: is told the number, the recipe and the score of each; for the curator.
        coins: of the draws; seeded in tests only.

    Raises:
        ValueError: if test rows are private: each score would be a release.
    """
    if not data.test_is_public or data.test is None or not len(data.test.labels):
        raise ValueError(
            "data must have public test rows to choose by: a score on private rows is a release of "
            "its own. Declare public_test, or choose on other data (tuned_on says which)"
        )
    size = max(check_sizes(recipe, data, public_size) for recipe in search.candidates)
    plan = search.plan(size)
    for recipe in search.candidates:
        check_recipe(search.priced(recipe, plan.noise_multiplier), data, size, device)
    folder = RunFolder(out)
    folder.begin({"tune": search.to_dict()})
    try:
        _charge(search, data, plan, ledger, dataset, analyst, folder)
    except BaseException:
        folder.abandon()
        raise
    return _Searching(search, plan, data, folder, size, device, observer, coins).run(watch)


def _charge(
    search: Search,
    data: Dataset,
    plan: SearchPlan,
    ledger: Ledger | str | Path | None,
    dataset: str,
    analyst: str,
    folder: RunFolder,
) -> None:
    if ledger is None:
        return
    for recipe in search.candidates:
        refuse_first_rows(recipe, data)
    book = ledger if isinstance(ledger, Ledger) else Ledger(ledger, create=False)
    label = f"tuning, {folder.path.name}"
    with book.spend(dataset, plan.event, analyst=analyst, label=label) as spending:
        spending.commit({"search": search.said})  # from here on rows may be read


@final
class _Searching:
    """One search, while it lasts."""

    def __init__(
        self,
        search: Search,
        plan: SearchPlan,
        data: Dataset,
        folder: RunFolder,
        public_size: int,
        device: str,
        observer: Observer | None,
        coins: Coins,
    ) -> None:
        self.search, self.plan, self.data, self.folder = search, plan, data, folder
        self.public_size, self.device, self.coins = public_size, device, coins
        self.observer = Shown(False) if observer is None else observer

    def run(self, watch: Callable[[int, Recipe, float], None] | None) -> Tuned:
        count = self.search.trials.draw(self.coins)
        noise = self.plan.noise_multiplier
        chosen = [self.search.drawn(noise, self.coins) for _ in range(count)]
        best: Trained | None = None
        scores: list[float] = []
        for number, recipe in enumerate(chosen):
            trained = self._trial(number, recipe)
            assert trained.accuracy is not None
            if watch is not None:
                watch(number, self._recipe_of(trained), trained.accuracy)
            if best is None or trained.accuracy > max(scores):  # of equals, the first
                best = trained
            scores.append(trained.accuracy)
        assert best is not None
        self.folder.write_curator(_KEPT, {"accuracies": scores})
        return self._release(best, count)

    def _trial(self, number: int, recipe: Recipe) -> Trained:
        return train(
            recipe, self.data, out=self._place(number), public_size=self.public_size,
            device=self.device, evaluations=0, observer=self.observer, coins=self.coins,
        )  # fmt: skip

    def _place(self, number: int) -> Path:
        return self.folder.curator / "trials" / f"{number:04d}"

    def _recipe_of(self, trained: Trained) -> Recipe:
        return Recipe.from_dict(trained.record.parameters["recipe"])

    def _release(self, trained: Trained, count: int) -> Tuned:
        assert trained.folder is not None
        assert trained.accuracy is not None
        record = trained.record
        record.event, record.guarantee = self.plan.event, self.plan.guarantee
        whole = {"epsilon": self.plan.guarantee.epsilon}  # not that of one run
        record.facts |= {
            "curve": [point | whole for point in record.facts["curve"]],
            "tuning": self.search.said,
            "accuracy_is": "of the best of several runs on these rows: optimistic",
        }
        record.parameters["search"] = {
            "candidates": len(self.search.candidates),
            "trials": self.search.to_dict()["trials"],
        }
        self.folder.write_model(trained.folder.model())
        self.folder.write_record(record.to_dict())
        recipe = self._recipe_of(trained)
        return Tuned(trained.model, record, recipe, trained.accuracy, self.folder, count)
