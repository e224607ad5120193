"""``sfumato train autoencoder``: private codes, reconstructions, and a classifier of codes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    device_called,
    loaded_data,
    option,
    without_password,
)
from sfumato.cli.train_origins import origin_of

if TYPE_CHECKING:
    from sfumato.data import Declaration
    from sfumato.learning.autoencoder import AutoEncoderRecipe, AutoEncoderTrained, RunPlan

__all__ = ["autoencoder"]

_PRIVACY, _MODEL, _TRAINING, _RUN = "Privacy", "Data and model", "Training", "Run"
_TUNED = ("head_share", "rounds", "gain", "random_gain", "epochs", "lot_size", "clip", "rate")
_CHANGES = ("epsilon", "delta", "neighbours", "unit", "way", "head", "seed", *_TUNED)
_SHAPING = ("widths", "way", "head")


def autoencoder(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    delta: Annotated[
        float | None, option(_PRIVACY, "1e-5; 0 for a pure guarantee, at a high price.")
    ] = None,
    neighbours: Annotated[
        str | None, option(_PRIVACY, "add-remove (default) or replace-one.")
    ] = None,
    unit: Budget.Unit = None,
    way: Annotated[
        str | None,
        option(_PRIVACY, "functional (default): noise on coefficients; or dp-sgd: on gradients."),
    ] = None,
    widths: Annotated[
        str | None, option(_MODEL, "How many codes each layer has, such as 25 or 50,20; 25.")
    ] = None,
    head: Annotated[
        str | None,
        option(_MODEL, "How classes are learnt of codes: objective (default), functional, none."),
    ] = None,
    head_share: Annotated[
        float | None, option(_PRIVACY, "Which part of the budget the classifier has; 0.3.")
    ] = None,
    rounds: Annotated[
        int | None, option(_TRAINING, "Of functional: how many releases a layer makes; 2.")
    ] = None,
    gain: Annotated[
        float | None, option(_TRAINING, "Of functional: how steep a tied encoder is; 14.")
    ] = None,
    random_gain: Annotated[
        float | None, option(_TRAINING, "Of functional: how steep a random encoder is; 56.")
    ] = None,
    epochs: Annotated[
        float | None, option(_TRAINING, "Of dp-sgd: passes over the data; 5.")
    ] = None,
    lot_size: Annotated[
        int | None, option(_TRAINING, "Of dp-sgd: expected number of records in a lot; 1024.")
    ] = None,
    clip: Annotated[float | None, option(_TRAINING, "Of dp-sgd: the clip norm; 1.")] = None,
    rate: Annotated[
        float | None, option(_TRAINING, "Of dp-sgd: Adam's; 0.03.", "--learning-rate")
    ] = None,
    seed: Chosen.Seed = None,
    tuned_on: Chosen.TunedOn = None,
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
    """Learns an auto-encoder and a classifier of its codes privately, by one account.

    Examples:
    sfumato train autoencoder --data mnist --epsilon 2 --out runs/codes

    sfumato train autoencoder --data mnist --epsilon 2 --way dp-sgd --out runs/descent

    sfumato train autoencoder --data digits --epsilon 4 --widths 16 --head none --out runs/digits

    sfumato train autoencoder --data mnist --epsilon 1 --delta 0 --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    recipe = _recipe(found, said)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows, numbers=True)
    from sfumato.learning.autoencoder import plan_of, train_autoencoder
    from sfumato.learning.recipes.observing import Shown

    if dry_run:
        _tell_plan(plan_of(recipe, loaded, charged=ledger is not None), recipe, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/codes)")
    begun = time.monotonic()
    known = None if found is None else found.to_dict()
    source = {"data": data, "declared": known, "test": test, "rows": rows}
    shown = Shown(False if as_json else progress)
    with working("learning"):
        trained = train_autoencoder(
            recipe, loaded, out=out, ledger=ledger, dataset=dataset, analyst=analyst,
            device=device_called(device), observer=shown,
            request={"source": source, "ledger": without_password(ledger)},
        )  # fmt: skip
    _tell(trained, time.monotonic() - begun, as_json)


def _recipe(declared: Declaration | None, said: dict[str, Any]) -> AutoEncoderRecipe:
    from sfumato.learning.autoencoder import AutoEncoderRecipe

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 2)")
    given = {name: said[name] for name in _CHANGES if said[name] is not None}
    if declared is not None:
        given.setdefault("unit", declared.unit)
    if said["widths"] is not None:
        given["widths"] = _widths(said["widths"])
    asked = [name for name in (*_TUNED, *_SHAPING) if said[name] is not None]
    origin = origin_of(asked, _SHAPING, said["tuned_on"])
    if origin is not None:
        given["origin"] = origin
    return AutoEncoderRecipe(**given)


def _widths(text: str) -> tuple[int, ...]:
    from sfumato.core import validation

    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        validation.fail("widths", "whole numbers, such as 25 or 50,20", text)


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(plan: RunPlan, recipe: AutoEncoderRecipe, as_json: bool) -> None:
    facts = plan.facts(recipe.widths[-1])
    if as_json:
        print_json(plan.guarantee.to_dict() | facts | {"recipe": recipe.to_dict()})
        return
    table = plain_table("The run would be")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(plan.guarantee))
    for number, release in enumerate(facts.get("releases", ()), start=1):
        size = f"{release['inputs']} inputs, {release['codes']} codes"
        noise = f"sensitivity {release['sensitivity']:.4g}, {release['noise']} noise"
        table.add_row(f"release {number}", f"{size}: {noise} of scale {release['noise_scale']:.4g}")
    if plan.descent is not None:
        multiplier = f"noise multiplier {plan.descent.noise_multiplier:.4g}"
        table.add_row("descent", f"{plan.descent.steps} steps, {multiplier}")
    if plan.head is not None:
        part = f"epsilon {plan.head.epsilon:.4g}, delta {plan.head.delta:.2g} by itself"
        table.add_row("classifier", f"{plan.head.way}, {part}")
    console().print(table)


def _results(trained: AutoEncoderTrained) -> dict[str, Any]:
    found: dict[str, Any] = {} if trained.errors is None else dict(trained.errors.to_dict())
    return found if trained.accuracy is None else found | {"accuracy": trained.accuracy}


def _tell(trained: AutoEncoderTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        print_json(shown | (_results(trained) if trained.results_are_public else {}))
        return
    table = plain_table(f"Learnt in {seconds:.1f} s")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(record.guarantee))
    eyes = "" if trained.results_are_public else " (on private rows: for your eyes only)"
    if trained.errors is not None:
        mean = f"always their mean: {trained.errors.of_the_mean:.4f}"
        table.add_row("squared error", f"{trained.errors.mean_squared:.4f}, {mean}{eyes}")
    if trained.accuracy is not None:
        table.add_row("test accuracy", f"{100 * trained.accuracy:.2f} %{eyes}")
    table.add_row("hyper-parameters", record.facts["tuning"])
    table.add_row("public", f"{folder.record_file}, {folder.model_file.name}")
    table.add_row("for you alone", str(folder.curator))
    console().print(table)
