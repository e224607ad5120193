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
- A ledger is charged for all of it before a row is read, once, however often it is cut off, and
  whoever copies its folder (:mod:`~sfumato.learning.recipes.search_journal`).

After a crash (``resume=True``) the draws are the first ones
(:mod:`~sfumato.learning.recipes.search_journal`), runs that came to their end stay as they are, and
*the run that was cut off is begun anew*, with fresh coins. It is not gone on with: a run with lost
steps costs no more than a whole one, but it is another run, and the theorem is for runs of one law.
(With geometric K and runs that are pure epsilon-DP, the best of runs of one law is 3 epsilon-DP;
if one of them has another law it may take 4: a test has the example.) What was thrown away was
never released, as the runs that lose never are; so if *when* a process dies does not depend on the
rows, what is released has exactly the law of a search that was never cut off. Whoever stops a
search because of what he saw in ``curator/``, and a row that brings a process down, are not
covered: the first makes a choice that nobody paid for, the second is a side channel as timing is
(docs/threat-model.md).

Time tells how many runs there were: do not let an observer measure it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import nn

from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset
from sfumato.learning.charging import RunCharge
from sfumato.learning.dp_sgd.arguments import open_ledger
from sfumato.learning.recipes.loading import load_run
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_sizes, refuse_first_rows
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.search import Search, SearchPlan
from sfumato.learning.recipes.search_journal import SearchJournal
from sfumato.learning.recipes.training import check_recipe, train
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError

__all__ = ["Search", "SearchPlan", "Tuned", "tune"]

_KEPT, _JOURNAL = "search.json", "search.jsonl"
_ASKED = "tune"

_Watch = Callable[[int, Recipe, float], None]


@final
@dataclass(frozen=True)
class Tuned:
    """The best run of a search.

    Attributes:
        model: as of :class:`~sfumato.learning.recipes.training.Trained`, on the CPU.
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
    search: Search | None,
    data: Dataset,
    *,
    out: str | Path,
    resume: bool = False,
    public_size: int | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    observer: Observer | None = None,
    watch: _Watch | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> Tuned:
    """Trains the best of a random number of candidates.

    Args:
        search: which; None takes that of the search that is gone on with.
        data: on what; its test rows must be public.
        out: the run's folder, new or empty.
        resume: go on with the search in ``out``.
        public_size: the declared number of units; by default the data set's.
        ledger: charge this one before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: such as "cuda".
        observer: who is told of each run.
        watch: is told the number, the recipe and the score of each; for the curator.
        request: what was asked for, kept in the curator's folder for whoever goes on.
        coins: of the draws; seeded in tests only.

    Raises:
        ValueError: if test rows are private: each score would be a release.
    """
    if not data.test_is_public or data.test is None or not len(data.test.labels):
        raise ValueError(
            "data must have public test rows to choose by: a score on private rows is a release of "
            "its own. Declare public_test, or choose on other data (tuned_on says which)"
        )
    folder = RunFolder(out)
    asked: dict[str, Any] = {}
    if resume:
        asked = _asked(folder, search, ledger, dataset)
        search, public_size = Search.from_dict(asked[_ASKED]), asked["public_size"]
    if search is None:
        raise ValueError("search must be given: candidates, the law of their number, and epsilon")
    size = max(check_sizes(recipe, data, public_size) for recipe in search.candidates)
    plan = search.plan(size)
    for recipe in search.candidates:
        check_recipe(search.priced(recipe, plan.noise_multiplier), data, size, device)
        if ledger is not None:
            refuse_first_rows(recipe, data)
    if not resume:
        asked = {
            _ASKED: search.to_dict(), "key": secrets.token_hex(16), "public_size": size,
            "dataset": dataset,
        }  # fmt: skip
        folder.begin(asked | dict(request or {}))
    journal = SearchJournal(folder.curator / _JOURNAL, coins, asked["key"])
    charge = RunCharge(open_ledger(ledger), dataset, analyst, f"tuning, {folder.path.name}")
    return _Searching(
        search, plan, data, folder, size, device, observer, coins, journal, charge
    ).run(watch, new=not resume)


def _asked(
    folder: RunFolder, search: Search | None, ledger: object, dataset: str
) -> dict[str, Any]:
    """What the search in a folder was asked for, if this is a way to go on with it."""
    asked = folder.request()
    if folder.finished:
        raise ValueError(f"the search in {folder.path} came to its end: there is nothing to resume")
    if _ASKED not in asked:
        raise ValueError(f"{folder.path} must hold a search, but holds a run of another kind")
    if search is not None and search.to_dict() != asked[_ASKED]:
        raise ValueError(
            f"search must be the one in {folder.path}, got another: leave it out (None) to go on, "
            "or give another folder to begin"
        )
    if asked["dataset"] != dataset or (ledger is None) != (not dataset):
        to = repr(asked["dataset"]) if asked["dataset"] else "no ledger"
        raise LedgerError(
            f"the search in {folder.path} was charged to {to}: go on with ledger and dataset as "
            "they were"
        )
    return asked


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
        journal: SearchJournal,
        charge: RunCharge,
    ) -> None:
        self.search, self.plan, self.data, self.folder = search, plan, data, folder
        self.public_size, self.device, self.coins = public_size, device, coins
        self.observer = Shown(False) if observer is None else observer
        self.journal, self.charge = journal, charge

    def run(self, watch: _Watch | None, *, new: bool) -> Tuned:
        """The charge, every run, and the release of the best."""
        try:
            self._charge(abandon=new)
            scores = self._scores(watch)
            self.folder.write_curator(_KEPT, {"accuracies": scores})
            self.journal.end(self.search, self.charge)
            self.charge.finish(self._said)  # of copies of a search, one comes past
            return self._release(scores)
        finally:
            self.journal.close()

    @property
    def _said(self) -> dict[str, str]:
        return {"search": self.search.said}

    def _charge(self, abandon: bool) -> None:
        try:
            self.charge.make(self.plan.event, self._said, self.journal.run)
        except Exception:  # of the ledger: nothing was read, and where it refused nothing spent
            if abandon:
                self.journal.close()
                self.folder.abandon()
            raise

    def _scores(self, watch: _Watch | None) -> list[float]:
        """Of each run, those included that ended before a crash."""
        scores: list[float] = []
        for number, place in enumerate(self.journal.draws(self.search)):
            held = RunFolder(self._place(number))
            if not held.finished:
                self._train(number, self.search.candidates[place])
            facts = held.record()
            scores.append(float(facts["facts"]["accuracy"]))
            if watch is not None:
                watch(number, Recipe.from_dict(facts["parameters"]["recipe"]), scores[-1])
        return scores

    def _train(self, number: int, candidate: Recipe) -> None:
        place = self._place(number)
        self.journal.begin(number, self.search, self.charge)
        if place.exists():  # cut off: begun anew, not gone on with, as said above
            shutil.rmtree(place)
        train(
            self.search.priced(candidate, self.plan.noise_multiplier), self.data, out=place,
            public_size=self.public_size, device=self.device, evaluations=0,
            observer=self.observer, coins=self.coins,
        )  # fmt: skip
        try:
            self.journal.run.agree(again=True)
        except LedgerError:  # a copy has begun this run anew
            shutil.rmtree(place)
            raise

    def _place(self, number: int) -> Path:
        return self.folder.curator / "trials" / f"{number:04d}"

    def _release(self, scores: list[float]) -> Tuned:
        best = scores.index(max(scores))  # of equals, the first
        run = load_run(self._place(best), run_code=True)  # made by this search
        record = run.record
        record.event, record.guarantee = self.plan.event, self.plan.guarantee
        record.private = record.private and self.journal.private
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
        self.folder.write_model(run.folder.model())
        self.folder.write_record(record.to_dict())
        recipe = Recipe.from_dict(record.parameters["recipe"])
        return Tuned(run.model, record, recipe, scores[best], self.folder, len(scores))
