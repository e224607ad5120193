"""``sfumato train erm``: linear models of tables, by one private fit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.cli.train_like import recorded
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    declares_numbers,
    device_called,
    loaded_data,
    named_values,
    option,
    without_password,
)
from sfumato.cli.train_telling import error_rows

if TYPE_CHECKING:
    from sfumato.data import Declaration, Features
    from sfumato.learning.erm.recipe import ErmRecipe
    from sfumato.learning.erm.tasks import Way
    from sfumato.learning.erm.training import ErmTrained

__all__ = ["erm"]

_PRIVACY, _MODEL, _RUN = "Privacy", "Data and model", "Run"
_CHANGES = (
    "epsilon", "delta", "way", "model", "neighbours", "unit", "regularisation", "norm", "width",
    "alpha", "threshold",
)  # fmt: skip
_TUNED = {"regularisation", "norm", "width", "features", "alpha", "threshold"}
_DEFAULTS = (
    "sfumato's defaults, chosen on public data",
    "sfumato's defaults, which follow from public facts",
)  # of classes, and of numbers


def erm(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    delta: Annotated[
        float | None, option(_PRIVACY, "1e-5; 0 for a pure guarantee, at a price.")
    ] = None,
    neighbours: Annotated[
        str | None, option(_PRIVACY, "add-remove (default) or replace-one.")
    ] = None,
    unit: Budget.Unit = None,
    way: Annotated[
        str | None,
        option(
            _PRIVACY,
            "objective (default for classes), functional (for numbers), output, sgd or input.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        option(
            _MODEL,
            "logistic (default) or svc; where labels are numbers, regression (default) or ridge.",
        ),
    ] = None,
    features: Annotated[
        str | None, option(_MODEL, "none (default), scattering or network; public ones only.")
    ] = None,
    feature_option: Chosen.FeatureOption = None,
    regularisation: Annotated[
        float | None, option(_MODEL, "lambda; by default a function of public facts.")
    ] = None,
    norm: Annotated[
        float | None, option(_MODEL, "Rows of this length become 1 long; 1: all of them do.")
    ] = None,
    width: Annotated[float | None, option(_MODEL, "Of svc's rounded hinge; 0.5.")] = None,
    alpha: Annotated[float | None, option(_MODEL, "The penalty of ridge; 1.")] = None,
    threshold: Annotated[
        float | None,
        option(
            _MODEL,
            "Of numbers, by ways other than functional and input: beyond so many halves of the "
            "labels' range an error counts linearly; 1.",
        ),
    ] = None,
    tuned_on: Chosen.TunedOn = None,
    like: Chosen.Like = None,
    ledger: Annotated[str | None, option(_PRIVACY, "Charge this ledger first.")] = None,
    dataset: Annotated[str, option(_PRIVACY, "Whose budget in the ledger.")] = "",
    analyst: Annotated[str, option(_PRIVACY, "In whose name.")] = "",
    device: Watched.Device = "cpu",
    dry_run: Annotated[
        bool, option(_RUN, "Say what it would cost, charge nothing, and stop.")
    ] = False,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Learns a linear model by one private release: the first thing to try on a table.

    Examples:
    sfumato train erm --data labsup --epsilon 1 --out runs/erm

    sfumato train erm --data patients.csv --declared patients.toml --epsilon 1
    --ledger privacy.db --dataset patients --out runs/patients

    sfumato train erm --data wages.csv --declared wages.toml --epsilon 1 --model regression
    --out runs/wages

    sfumato train erm --data mnist --rows 6000 --epsilon 3 --features scattering --out runs/pictures

    sfumato train erm --data labsup --epsilon 0.5 --delta 0 --way output --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    recipe, rows = (_recipe(found, said), rows) if like is None else _like(like, said)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows, numbers=True)
    columns = _columns(found)
    if dry_run:
        from sfumato.learning.erm.training import planned

        cost = planned(recipe, loaded, columns, charged=ledger is not None)
        _tell_plan(cost, recipe, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/erm)")
    from sfumato.learning.erm.training import train_erm
    from sfumato.learning.recipes.observing import Shown

    begun = time.monotonic()
    known = None if found is None else found.to_dict()
    source = {"data": data, "declared": known, "test": test, "rows": rows}
    with working("learning"):
        trained = train_erm(
            recipe, loaded, out=out, declared=columns, ledger=ledger, dataset=dataset,
            analyst=analyst, device=device_called(device),
            observer=Shown(False if as_json else progress),
            request={"source": source, "ledger": without_password(ledger)},
        )  # fmt: skip
    _tell(trained, time.monotonic() - begun, as_json)


def _columns(declared: Declaration | None) -> Features | None:
    from sfumato.data import Features

    found = None if declared is None else declared.declared
    return found if isinstance(found, Features) else None


def _recipe(declared: Declaration | None, said: dict[str, Any]) -> ErmRecipe:
    from sfumato.learning.erm.recipe import REGRESSIONS, ErmRecipe
    from sfumato.learning.features import FeatureMap

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 1)")
    given = {name: said[name] for name in _CHANGES if said[name] is not None}
    if declared is not None:
        given.setdefault("unit", declared.unit)
    if declares_numbers(declared):
        given.setdefault("model", "regression")
    if said["features"] is not None:
        options = named_values("feature-option", said["feature_option"])
        try:
            given["features"] = FeatureMap.from_dict({"kind": said["features"]} | options)
        except TypeError as error:
            raise ValueError(f"--feature-option must suit {said['features']!r}: {error}") from None
    if said["tuned_on"] is not None:
        given["origin"] = said["tuned_on"]
    elif not _TUNED & set(given):
        given["origin"] = _DEFAULTS[given.get("model") in REGRESSIONS]
    return ErmRecipe(**given)


def _like(path: Path, said: dict[str, Any]) -> tuple[ErmRecipe, int | None]:
    """The recipe on record, and of how many first rows."""
    from sfumato.learning.erm.recipe import ErmRecipe

    for name in (*_CHANGES, "features", "feature_option", "rows", "tuned_on"):
        if said[name] is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be left out with --like, which takes a recipe as is")
    recipe, facts = recorded(path, "erm", ErmRecipe.from_dict)
    return recipe, facts.get("rows")


# --- what is said ---------------------------------------------------------------------------------


def _facts(way: Way) -> dict[str, Any]:
    shown = ("sensitivity", "noise", "noise_scale", "noise_on")
    return {"regularisation": way.regularisation} | {
        name: way.facts[name] for name in shown if name in way.facts
    }


def _tell_plan(way: Way, recipe: ErmRecipe, as_json: bool) -> None:
    facts = _facts(way) | {"records": way.task.records, "weights": way.task.dimension}
    if as_json:
        print_json(way.guarantee.to_dict() | facts | {"recipe": recipe.to_dict()})
        return
    table = plain_table("The run would be")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(way.guarantee))
    table.add_row("way", f"{way.name}: {way.says}")
    for name, value in facts.items():
        text = f"{value:.4g}" if isinstance(value, float) else f"{value}"
        table.add_row(name.replace("_", " "), text)
    console().print(table)


def _results(trained: ErmTrained) -> dict[str, Any]:
    """What was measured on the test set: accuracy, or errors of numbers."""
    if trained.record.facts["data"].get("target_bounds") is None:
        return {"accuracy": trained.accuracy}
    return {} if trained.errors is None else trained.errors.to_dict()


def _tell(trained: ErmTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    plan = record.parameters["plan"]
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {"way": plan["way"], "regularisation": plan["regularisation"]}
        if trained.accuracy_is_public:
            shown |= _results(trained)
        print_json(shown)
        return
    table = plain_table(f"Learnt in {seconds:.1f} s")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(record.guarantee))
    eyes = "" if trained.accuracy_is_public else " (on private rows: for your eyes only)"
    if trained.accuracy is not None:
        table.add_row("test accuracy", f"{100 * trained.accuracy:.2f} %{eyes}")
    if trained.errors is not None:
        for row in error_rows(trained.errors.to_dict(), trained.accuracy_is_public):
            table.add_row(*row)
    table.add_row("way", plan["way"])
    table.add_row("hyper-parameters", record.facts["tuning"])
    table.add_row("public", f"{folder.record_file}, {folder.model_file.name}")
    table.add_row("for you alone", str(folder.curator))
    console().print(table)
