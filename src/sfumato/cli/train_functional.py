"""``sfumato train functional``: small networks by noisy quadratic expansions, pure epsilon."""

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
    device_called,
    loaded_data,
    named_values,
    option,
    without_password,
)
from sfumato.cli.train_origins import origin_of

if TYPE_CHECKING:
    from sfumato.data import Declaration
    from sfumato.learning.features import FeatureMap
    from sfumato.learning.functional.plan import FunctionalPlan
    from sfumato.learning.functional.recipe import FunctionalRecipe
    from sfumato.learning.functional.training import FunctionalTrained

__all__ = ["functional"]

_PRIVACY, _MODEL, _TRAINING, _RUN = "Privacy", "Data and model", "Training", "Run"
_CHANGES = (
    "epsilon", "delta", "neighbours", "unit", "activation", "loss", "curvature", "clip", "kappa",
    "rounds", "sample_rate", "rate", "damping", "reach", "memory", "seed",
)  # fmt: skip
_UNTUNED = {"epsilon", "delta", "neighbours", "unit", "seed"}
_SHAPING = ("hidden", "pool", "features", "feature_option")
_FAINT = 3.0  # a headroom below which noise is most of what is released


def functional(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    delta: Annotated[
        float | None, option(_PRIVACY, "0 (default) for a pure guarantee by Laplace noise.")
    ] = None,
    neighbours: Annotated[
        str | None, option(_PRIVACY, "add-remove (default) or replace-one.")
    ] = None,
    unit: Budget.Unit = None,
    sample_rate: Annotated[
        float | None, option(_PRIVACY, "Each record enters a round by its own coin; 1.")
    ] = None,
    hidden: Annotated[
        str | None, option(_MODEL, "Units of hidden layers, such as 8 or 8,4; none by default.")
    ] = None,
    activation: Annotated[str | None, option(_MODEL, "sigmoid, tanh (default) or relu.")] = None,
    loss: Annotated[str | None, option(_MODEL, "cross-entropy (default) or squares.")] = None,
    pool: Annotated[
        int | None,
        option(_MODEL, "Of images, means over squares of so many pixels: fewer weights."),
    ] = None,
    features: Annotated[
        str | None, option(_MODEL, "none (default), scattering or network; public ones only.")
    ] = None,
    feature_option: Chosen.FeatureOption = None,
    curvature: Annotated[
        str | None, option(_TRAINING, "gauss-newton (default), lecun or none.")
    ] = None,
    clip: Annotated[
        float | None, option(_TRAINING, "What one record's slopes and curvatures add up to.")
    ] = None,
    kappa: Annotated[float | None, option(_TRAINING, "Weight of curvatures in that.")] = None,
    rounds: Annotated[
        int | None, option(_TRAINING, "Expansions, each paid for; by default from public facts.")
    ] = None,
    rate: Annotated[float | None, option(_TRAINING, "Share of a step that is taken.")] = None,
    damping: Annotated[
        float | None, option(_TRAINING, "Added to each record's curvature, lambda.")
    ] = None,
    reach: Annotated[
        float | None, option(_TRAINING, "The farthest a weight moves in a round.")
    ] = None,
    memory: Annotated[
        float | None, option(_TRAINING, "Share of earlier releases in a step.")
    ] = None,
    seed: Chosen.Seed = None,
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
    """Trains a small network by noisy second-order expansions: a pure guarantee, few weights.

    Of use only where records times epsilon are far above twice the weights times rounds; the
    headroom of a dry run says so before anything is charged.

    Examples:
    sfumato train functional --data digits --pool 2 --epsilon 8 --out runs/functional

    sfumato train functional --data mnist --pool 4 --hidden 8 --epsilon 4 --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    recipe, rows = (_recipe(found, said), rows) if like is None else _like(like, said)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    from sfumato.learning.functional.training import planned, train_functional

    if dry_run:
        _tell_plan(planned(recipe, loaded, charged=ledger is not None), as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/functional)")
    from sfumato.learning.recipes.observing import Shown

    begun = time.monotonic()
    known = None if found is None else found.to_dict()
    source = {"data": data, "declared": known, "test": test, "rows": rows}
    with working("learning"):
        trained = train_functional(
            recipe, loaded, out=out, ledger=ledger, dataset=dataset, analyst=analyst,
            device=device_called(device), observer=Shown(False if as_json else progress),
            request={"source": source, "ledger": without_password(ledger)},
        )  # fmt: skip
    _tell(trained, time.monotonic() - begun, as_json)


def _recipe(declared: Declaration | None, said: dict[str, Any]) -> FunctionalRecipe:
    from sfumato.learning.functional.recipe import FunctionalRecipe

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 8)")
    given = {name: said[name] for name in _CHANGES if said[name] is not None}
    if declared is not None:
        given.setdefault("unit", declared.unit)
    if said["hidden"] is not None:
        given["hidden"] = _widths(said["hidden"])
    if (features := _features(said)) is not None:
        given["features"] = features
        given["centred"] = features.kind in ("none", "mean-pool")
    asked = {name for name in (*_CHANGES, *_SHAPING) if said[name] is not None}
    origin = origin_of(asked - _UNTUNED, _SHAPING, said["tuned_on"])
    if origin is not None:
        given["origin"] = origin
    return FunctionalRecipe(**given)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"hidden must be whole numbers, such as 8 or 8,4, got {text!r}") from None


def _features(said: dict[str, Any]) -> FeatureMap | None:
    from sfumato.learning.features import FeatureMap, MeanPool

    if said["pool"] is not None:
        if said["features"] is not None:
            raise ValueError(
                f"pool must be left out with features, got {said['pool']!r} and "
                f"{said['features']!r}: choose one of them"
            )
        return MeanPool(said["pool"])
    if said["features"] is None:
        return None
    options = named_values("feature-option", said["feature_option"])
    try:
        return FeatureMap.from_dict({"kind": said["features"]} | options)
    except TypeError as error:
        raise ValueError(f"--feature-option must suit {said['features']!r}: {error}") from None


def _like(path: Path, said: dict[str, Any]) -> tuple[FunctionalRecipe, int | None]:
    """The recipe on record, and of how many first rows."""
    from sfumato.learning.functional.recipe import FunctionalRecipe

    others = ("hidden", "pool", "features", "feature_option", "rows", "tuned_on")
    for name in (*_CHANGES, *others):
        if said[name] is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be left out with --like, which takes a recipe as is")
    recipe, facts = recorded(path, "functional", FunctionalRecipe.from_dict)
    return recipe, facts.get("rows")


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(plan: FunctionalPlan, as_json: bool) -> None:
    facts = plan.facts | {"weights": plan.topology.parameters}
    if as_json:
        print_json(plan.guarantee.to_dict() | facts | {"recipe": plan.recipe.to_dict()})
        return
    table = plain_table("The run would be")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(plan.guarantee))
    shown = ("steps", "records", "weights", "sensitivity", "noise", "noise_scale", "noise_on")
    for name in shown:
        value = facts[name]
        text = f"{value:.4g}" if isinstance(value, float) else f"{value}"
        table.add_row("rounds" if name == "steps" else name.replace("_", " "), text)
    table.add_row("headroom", _headroom(plan.headroom))
    console().print(table)


def _headroom(value: float) -> str:
    faint = ": the noise drowns what is learnt" if value < _FAINT else ""
    return f"{value:.3g} (the most signal over the noise){faint}"


def _tell(trained: FunctionalTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    plan = record.parameters["plan"]
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {"headroom": plan["headroom"], "weights": record.facts["parameters"]}
        if trained.accuracy_is_public:
            shown["accuracy"] = trained.accuracy
        print_json(shown)
        return
    table = plain_table(f"Learnt in {seconds:.1f} s")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(record.guarantee))
    if trained.accuracy is not None:
        eyes = "" if trained.accuracy_is_public else " (on private rows: for your eyes only)"
        table.add_row("test accuracy", f"{100 * trained.accuracy:.2f} %{eyes}")
    table.add_row("weights", str(record.facts["parameters"]))
    table.add_row("headroom", _headroom(plan["headroom"]))
    table.add_row("hyper-parameters", record.facts["tuning"])
    table.add_row("public", f"{folder.record_file}, {folder.model_file.name}")
    table.add_row("for you alone", str(folder.curator))
    console().print(table)
