"""``sfumato tune``: hyper-parameters chosen on the private data and paid for, or on public data."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.kept_requests import kept_declaration, kept_request, kept_settings
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json, working
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    device_called,
    loaded_data,
    without_password,
)
from sfumato.cli.train_recipe import make_recipe
from sfumato.cli.train_telling import print_facts, print_finished
from sfumato.cli.tune_public import OnPublic, choose_and_train

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.recipes.recipe import Recipe
    from sfumato.learning.recipes.tuning import Search, SearchPlan, Tuned

__all__ = ["resume_tune", "tune"]

_PRIVACY, _SEARCH, _RUN = "Privacy", "Search", "Run"
_KINDS: dict[str, Callable[[str], Any]] = {
    "learning_rate": float, "last_learning_rate": float, "lot_size": int, "clip": float,
    "epochs": float, "steps": int, "momentum": float, "weight_decay": float, "ema_decay": float,
    "optimizer": str, "model": str, "clipping": str, "augmentations": int,
}  # fmt: skip
_OTHERS = (
    "model_option", "features", "feature_option", "noise_multiplier", "lots", "max_lot",
    "noise_schedule", "correlation", "augment", "batch_size", "seed", "tuned_on", "canaries",
    "start", "start_source", "head_rate", "precision",
)  # fmt: skip


def tune(
    data: Annotated[
        str | None,
        typer.Option(help="As of sfumato train dp-sgd.", rich_help_panel="Data and model"),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Of the whole search.", rich_help_panel=_PRIVACY)
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help=f"OPTION=VALUE,VALUE,...; may be repeated. Of "
            f"{', '.join(name.replace('_', '-') for name in _KINDS)}.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    out: Watched.Out = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Go on with the search in this folder.", rich_help_panel=_RUN),
    ] = None,
    trials: Annotated[float, typer.Option(help="Runs on average.", rich_help_panel=_SEARCH)] = 10.0,
    shape: Annotated[
        float,
        typer.Option(
            help="Of their law: 1 geometric; 0 cheaper, less regular.", rich_help_panel=_SEARCH
        ),
    ] = 1.0,
    on: Annotated[
        str | None,
        typer.Option(
            help="Choose on this data set instead, which you declare public: free. Every candidate "
            "is tried there; the best is trained on --data, at the whole epsilon.",
            rich_help_panel=_SEARCH,
        ),
    ] = None,
    on_declared: Annotated[
        Path | None,
        typer.Option(help="What is declared about it, if it is yours.", rich_help_panel=_SEARCH),
    ] = None,
    on_test: Annotated[
        str | None, typer.Option(help="Where its test set is.", rich_help_panel=_SEARCH)
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Runs of each candidate on it.", rich_help_panel=_SEARCH)
    ] = 1,
    delta: Budget.Delta = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    neighbours: Budget.Neighbours = None,
    unit: Budget.Unit = None,
    records: Budget.Records = None,
    preset: Chosen.Preset = None,
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger first.", rich_help_panel=_PRIVACY)
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Whose budget in the ledger.", rich_help_panel=_PRIVACY)
    ] = "",
    device: Watched.Device = "auto",
    dry_run: Annotated[
        bool, typer.Option(help="Say what it would cost, and stop.", rich_help_panel=_RUN)
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Trains the best of a random number of recipes, and pays for the choice.

    Each run takes one candidate by a fair draw, and is scored on public test rows. The best is
    released; how many there were and how they did is for you alone.

    Examples:
    sfumato tune --data digits --epsilon 3 --vary learning-rate=0.3,1,3 --dry-run

    sfumato tune --data mnist --epsilon 2 --vary learning-rate=4,8,16 --vary clip=0.05,0.1
    --trials 5 --out runs/tuned

    sfumato tune --resume runs/tuned

    sfumato tune --data mnist --epsilon 2 --vary learning-rate=4,8,16 --on fashion-mnist
    --out runs/chosen
    """
    said = dict(locals())
    if resume is not None:
        for name in ("data", "epsilon", "vary", "out", "on"):
            if said[name] is not None:
                raise ValueError(f"--{name} must be left out with --resume: the folder says it")
        resume_tune(resume, ledger, device, as_json)
        return
    if data is None or epsilon is None or not vary:
        raise ValueError("--data, --epsilon and --vary must be given, or --resume FOLDER")
    if dataset and ledger is None:
        raise ValueError(f"--dataset {dataset} needs --ledger: nothing would be charged")
    found = declaration_at(declared)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    size = loaded.public_size if records is None else records
    if size is None:
        raise ValueError("records must be declared: --records 5000, or in the declaration")
    candidates = _candidates(loaded, found, said)
    source = {
        "data": data, "declared": None if found is None else found.to_dict(), "test": test,
        "rows": rows,
    }  # fmt: skip
    request = {"source": source, "ledger": without_password(ledger)}
    if on is not None:
        public = OnPublic(on, on_declared, on_test, repeats)
        told = {"ledger": ledger, "dataset": dataset, "device": device, "as_json": as_json}
        choose_and_train(candidates, public, loaded, size, out, request, dry_run=dry_run, **told)
        return
    search = _search(candidates, said)
    if dry_run:
        from sfumato.learning.recipes.training import check_recipe

        plan = search.plan(size)
        for recipe in search.candidates:
            check_recipe(search.priced(recipe, plan.noise_multiplier), loaded, size)
        _tell_plan(search, plan, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/tuned)")
    request |= {"settings": {"dataset": dataset}}
    _run(
        as_json, search, loaded, out=out, public_size=size, ledger=ledger, dataset=dataset,
        device=device_called(device), request=request,
    )  # fmt: skip


def resume_tune(folder: Path, ledger: str | None, device: str, as_json: bool) -> None:
    """Goes on with a search that was cut off."""
    from sfumato.learning.runs import RunFolder

    kept = RunFolder(folder)
    request = kept_request(kept)
    if "tune" not in request:
        raise ValueError(
            f"{folder} must hold a search, but holds a run: go on with it by sfumato train resume "
            f"{folder}"
        )
    if "source" not in request:
        raise ValueError(
            f"the search in {folder} was begun in Python: go on there, by tune(..., resume=True)"
        )
    source, known = request["source"], kept_declaration(kept, request)
    with working("reading the data"):
        loaded = loaded_data(source["data"], known, source["test"], source.get("rows"))
    _run(
        as_json, None, loaded, out=folder, resume=True, ledger=ledger or request["ledger"],
        device=device_called(device), **kept_settings(kept, request),
    )  # fmt: skip


def _candidates(
    loaded: Dataset, found: Declaration | None, said: dict[str, Any]
) -> tuple[Recipe, ...]:
    """One for each combination of values, each with the epsilon of all."""
    varied = _varied(said["vary"])
    known: dict[str, Any] = said | dict.fromkeys([*_KINDS, *_OTHERS])
    chosen = [dict(zip(varied, each, strict=True)) for each in itertools.product(*varied.values())]
    return tuple(make_recipe(loaded, found, said["records"], known | each) for each in chosen)


def _search(candidates: tuple[Recipe, ...], said: dict[str, Any]) -> Search:
    from sfumato.accounting import Trials
    from sfumato.learning.recipes.tuning import Search

    delta = candidates[0].delta if said["delta"] is None else said["delta"]
    opened = tuple(replace(each, epsilon=None, noise_multiplier=None) for each in candidates)
    return Search(opened, Trials(said["trials"], said["shape"]), said["epsilon"], delta)


def _varied(texts: Sequence[str]) -> dict[str, list[Any]]:
    """What is varied, with its values."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        key = name.strip().replace("-", "_")
        if not equals or key not in _KINDS:
            known = ", ".join(each.replace("_", "-") for each in _KINDS)
            raise ValueError(f"vary must be OPTION=VALUE,..., OPTION one of {known}, got {text!r}")
        if key in found:
            raise ValueError(f"vary must name {name} once, with all its values, got {text!r}")
        try:
            found[key] = [_KINDS[key](value) for value in values.split(",")]
        except ValueError:
            raise ValueError(f"vary must have numbers for {name}, got {values!r}") from None
    return found


def _run(as_json: bool, search: Search | None, loaded: Dataset, **settings: Any) -> None:
    from sfumato.learning.recipes.tuning import tune as tuned_on

    begun, screen = time.monotonic(), console(stderr=True)

    def told(number: int, recipe: Recipe, accuracy: float) -> None:
        if not as_json:
            screen.print(f"run {number + 1}: {accuracy:.2%} (for your eyes only)", markup=False)

    with working("searching"):
        tuned = tuned_on(search, loaded, watch=told, **settings)
    _tell(tuned, time.monotonic() - begun, as_json)


def _tell_plan(search: Search, plan: SearchPlan, as_json: bool) -> None:
    facts = {
        "noise_multiplier": plan.noise_multiplier,
        "candidates": len(search.candidates),
        "trials": search.to_dict()["trials"],
    }
    if as_json:
        print_json(plan.guarantee.to_dict() | facts)
        return
    rows = [
        ("guarantee", str(plan.guarantee)),
        ("noise multiplier", f"{plan.noise_multiplier:.4g}, of every candidate"),
        ("candidates", f"{len(search.candidates)}"),
        ("runs", f"{search.trials.mean:g} on average, shape {search.trials.shape:g}"),
    ]
    print_facts("The search would be", rows)


def _tell(tuned: Tuned, seconds: float, as_json: bool) -> None:
    record, folder = tuned.record, tuned.folder
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        print_json(shown | {"accuracy": tuned.accuracy, "recipe": tuned.recipe.to_dict()})
        return
    rows = [
        ("hyper-parameters", record.facts["tuning"]),
        ("chosen", _described(tuned.recipe)),
    ]
    print_finished(record, folder, tuned.accuracy, True, seconds, rows)


def _described(recipe: Recipe) -> str:
    return (
        f"{recipe.model}, learning rate {recipe.rate.start:g}, lots of {recipe.lot_size}, "
        f"{recipe.optimizer}"
    )
