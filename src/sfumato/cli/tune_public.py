"""``sfumato tune --on``: hyper-parameters chosen on data that the operator declares public."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import console, print_json, working
from sfumato.cli.train_options import declaration_at, device_called, loaded_data
from sfumato.cli.train_telling import print_facts, print_finished

if TYPE_CHECKING:
    from sfumato.data import Dataset
    from sfumato.learning.recipes import Trained
    from sfumato.learning.recipes.choosing import Choice
    from sfumato.learning.recipes.recipe import Recipe

__all__ = ["OnPublic", "choose_and_train"]


@dataclass(frozen=True)
class OnPublic:
    """Where the public data is.

    Attributes:
        source: as on the command line.
        declared: what is declared about it, where it is the operator's own.
        test: where its test set is, likewise.
        repeats: how often each candidate is tried on it.
    """

    source: str
    declared: Path | None
    test: str | None
    repeats: int

    def load(self, private: str) -> Dataset:
        """The data, unless they are those that are to be protected."""
        if self.source == private or Path(self.source).resolve() == Path(private).resolve():
            raise ValueError(
                f"on must be other data than the private ones, got {self.source!r} for both: to "
                "choose on the private data costs, so leave --on out"
            )
        return loaded_data(self.source, declaration_at(self.declared), self.test, None)


def choose_and_train(
    candidates: tuple[Recipe, ...],
    public: OnPublic,
    loaded: Dataset,
    size: int,
    out: Path | None,
    request: dict[str, Any],
    *,
    ledger: str | None,
    dataset: str,
    device: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Tries every candidate on the public data, then trains the best on the private, once."""
    from sfumato.learning.recipes.choosing import choose
    from sfumato.learning.recipes.observing import Shown
    from sfumato.learning.recipes.preparing import refuse_first_rows
    from sfumato.learning.recipes.training import check_recipe, train
    from sfumato.learning.runs import RunFolder

    where = device_called(device)
    with working("reading the public data"):
        open_data = public.load(request["source"]["data"])
    for recipe in candidates:
        check_recipe(recipe, loaded, size, where)
        if ledger is not None:
            refuse_first_rows(recipe, loaded)
    if dry_run:
        _tell_plan(candidates, open_data, public.repeats, size, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/chosen)")
    RunFolder(out).require_new()  # now, not after hours of trying
    begun, screen = time.monotonic(), console(stderr=True)

    def told(number: int, recipe: Recipe, accuracy: float) -> None:
        if not as_json:
            name = f"candidate {number + 1} of {len(candidates)} on {open_data.name}"
            screen.print(f"{name}: {accuracy:.2%}", markup=False)

    with working(f"choosing on {open_data.name}"):
        choice = choose(
            candidates, open_data, public_size=size, repeats=public.repeats, device=where,
            watch=told,
        )  # fmt: skip
    settings = {
        "public_size": size, "dataset": dataset, "analyst": "", "evaluations": 20,
        "checkpoint_every": None, "compile": False,
    }  # fmt: skip
    trained = train(
        choice.recipe, loaded, out=out, ledger=ledger, device=where, observer=Shown(False),
        request=request | {"settings": settings}, **settings,
    )  # fmt: skip
    _tell(trained, choice, time.monotonic() - begun, as_json)


def _tell_plan(
    candidates: tuple[Recipe, ...], public: Dataset, repeats: int, size: int, as_json: bool
) -> None:
    guarantees = [recipe.plan(size).guarantee for recipe in candidates]
    dearest = max(guarantees, key=lambda each: each.epsilon)
    facts = {"candidates": len(candidates), "chosen_on": public.name, "repeats": repeats}
    if as_json:
        print_json(dearest.to_dict() | facts)
        return
    rows = [
        ("guarantee", f"{dearest}, of the one run on the private data"),
        ("candidates", f"{len(candidates)}"),
        ("chosen on", f"{public.name}, declared public: nothing is charged for it"),
    ]
    print_facts("The run would be", rows)


def _tell(trained: Trained, choice: Choice, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    assert folder is not None
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        if trained.accuracy_is_public:
            shown["accuracy"] = trained.accuracy
        told = {"chosen_on": choice.chosen_on, "scores_there": choice.scores}
        print_json(shown | told | {"recipe": choice.recipe.to_dict()})
        return
    rows = [("hyper-parameters", record.facts["tuning"])]
    print_finished(record, folder, trained.accuracy, trained.accuracy_is_public, seconds, rows)
