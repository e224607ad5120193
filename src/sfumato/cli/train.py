"""``sfumato train``: private models from the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.kept_requests import kept_declaration, kept_request, kept_settings
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.cli.train_adaptive_laplace import adaptive_laplace
from sfumato.cli.train_autoencoder import autoencoder
from sfumato.cli.train_erm import erm
from sfumato.cli.train_functional import functional
from sfumato.cli.train_label_dp import label_dp, resume_label_dp
from sfumato.cli.train_like import read_like
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
from sfumato.cli.train_pate import pate, resume_pate
from sfumato.cli.train_plain import plain
from sfumato.cli.train_recipe import make_recipe
from sfumato.cli.train_telling import Launch, print_facts, print_finished
from sfumato.cli.train_votes import votes
from sfumato.cli.tune import resume_tune
from sfumato.core.json_files import as_written

if TYPE_CHECKING:
    from sfumato.learning.recipes import Recipe, Trained

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Train models privately.")
app.command()(plain)
app.command()(pate)
app.command()(votes)
app.command()(label_dp)
app.command()(erm)
app.command()(functional)
app.command()(adaptive_laplace)
app.command()(autoencoder)

_RUN = "Run"
_SHORT = ("erm", "functional", "adaptive_laplace", "autoencoder")  # begin anew


@app.command("dp-sgd")
def dp_sgd(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    delta: Budget.Delta = None,
    neighbours: Budget.Neighbours = None,
    unit: Budget.Unit = None,
    records: Budget.Records = None,
    preset: Chosen.Preset = None,
    model: Chosen.Model = None,
    model_option: Chosen.ModelOption = None,
    features: Chosen.FeatureName = None,
    feature_option: Chosen.FeatureOption = None,
    noise_multiplier: Chosen.Noise = None,
    epochs: Chosen.Epochs = None,
    steps: Chosen.Steps = None,
    lot_size: Chosen.LotSize = None,
    lots: Chosen.Lots = None,
    max_lot: Chosen.MaxLot = None,
    clip: Chosen.Clip = None,
    clipping: Chosen.ClipKind = None,
    noise_schedule: Chosen.NoiseRamp = None,
    correlation: Chosen.Correlation = None,
    optimizer: Chosen.Optimizer = None,
    learning_rate: Chosen.RateStart = None,
    last_learning_rate: Chosen.RateEnd = None,
    momentum: Chosen.Momentum = None,
    weight_decay: Chosen.WeightDecay = None,
    ema_decay: Chosen.Ema = None,
    augment: Chosen.Augment = None,
    augmentations: Chosen.Augmentations = None,
    batch_size: Chosen.BatchSize = None,
    seed: Chosen.Seed = None,
    start: Chosen.Start = None,
    start_source: Chosen.StartSource = None,
    head_rate: Chosen.HeadRate = None,
    precision: Chosen.Precision = None,
    tuned_on: Chosen.TunedOn = None,
    like: Chosen.Like = None,
    canaries: Chosen.CanaryCount = None,
    canary_kind: Chosen.CanaryKind = "gradient",
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger first.", rich_help_panel="Privacy")
    ] = None,
    dataset: Annotated[
        str, typer.Option(help="Whose budget in the ledger.", rich_help_panel="Privacy")
    ] = "",
    analyst: Annotated[str, typer.Option(help="In whose name.", rich_help_panel="Privacy")] = "",
    device: Watched.Device = "auto",
    compile: Annotated[
        bool, typer.Option(help="Compile the step; pays for long runs.", rich_help_panel=_RUN)
    ] = False,
    evaluations: Annotated[
        int, typer.Option(help="Points of the learning curve.", rich_help_panel=_RUN)
    ] = 20,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            help="Steps between checkpoints; a twentieth of the run.", rich_help_panel=_RUN
        ),
    ] = None,
    small_checkpoints: Annotated[
        bool,
        typer.Option(
            help="Files of 15 MiB at most, averages in half precision.", rich_help_panel=_RUN
        ),
    ] = False,
    minutes: Watched.Minutes = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            help="Say what it would cost, charge nothing, and stop.", rich_help_panel=_RUN
        ),
    ] = False,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Trains a model with DP-SGD.

    Without more than data and epsilon, a recipe is chosen by the data (sfumato train presets).

    Examples:
    sfumato train dp-sgd --data mnist --epsilon 3 --out runs/mnist

    sfumato train dp-sgd --data mnist --preset pca-mlp --epsilon 2 --out runs/pca

    sfumato train dp-sgd --data mnist --epsilon 4 --canaries 5000 --out runs/audited

    sfumato train dp-sgd --data mnist --rows 6000 --epsilon 3 --out runs/small

    sfumato train dp-sgd --data mnist --like runs/a/record.json --out runs/again

    sfumato train dp-sgd --data cifar10 --preset wrn --start random.safetensors --epsilon 8
    --compile --minutes 20 --out runs/cifar

    sfumato train dp-sgd --data patients.parquet --declared patients.toml --test test.parquet
    --epsilon 2 --ledger privacy.db --dataset patients --out runs/patients
    """
    said = dict(locals())
    from sfumato.learning.recipes.preparing import check_sizes, refuse_first_rows

    found = declaration_at(declared)
    known = None if like is None else read_like(like, said)
    if known is not None:
        rows, records = known.rows, known.public_size
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    if known is not None:
        known.check(loaded, found)
    recipe = make_recipe(loaded, found, records, said) if known is None else known.recipe
    size = check_sizes(recipe, loaded, records)
    if ledger is not None:
        refuse_first_rows(recipe, loaded)
    from sfumato.learning.recipes.training import check_recipe, train

    if dry_run:
        check_recipe(recipe, loaded, size)
        _tell_plan(recipe, size, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/a)")
    from sfumato.learning.clock import OutOfTime
    from sfumato.learning.recipes.observing import Shown

    begun = time.monotonic()
    settings = {
        "public_size": size, "dataset": dataset, "analyst": analyst,
        "evaluations": evaluations, "checkpoint_every": checkpoint_every, "compile": compile,
        "small_checkpoints": small_checkpoints,
    }  # fmt: skip
    declaration = None if found is None else found.to_dict()
    source = {"data": data, "declared": declaration, "test": test, "rows": rows}
    try:
        trained = train(
            recipe, loaded, out=out, ledger=ledger, device=device_called(device),
            observer=Shown(False if as_json else progress), minutes=minutes,
            request={"source": source, "ledger": without_password(ledger), "settings": settings},
            **settings,
        )  # fmt: skip
    except OutOfTime as stopped:
        _tell_stopped(out, str(stopped), as_json)
    else:
        _tell(trained, time.monotonic() - begun, as_json)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="Of a run that was cut off.")],
    ledger: Annotated[
        str | None, typer.Option(help="As when it began; needed if its address has a password.")
    ] = None,
    device: Watched.Device = "auto",
    minutes: Watched.Minutes = None,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Goes on with a run that was cut off.

    Steps that may have been taken are not taken again: they were charged, and count.

    Example: sfumato train resume runs/mnist
    """
    from sfumato.learning.clock import OutOfTime
    from sfumato.learning.recipes.observing import Shown
    from sfumato.learning.recipes.recipe import Recipe
    from sfumato.learning.recipes.training import train
    from sfumato.learning.runs import RunFolder

    kept = RunFolder(folder)
    request = kept_request(kept)
    if RunFolder(folder).without_privacy:
        raise ValueError(
            f"the run in {folder} is one without privacy, which is not gone on with: remove the "
            "folder and train again (sfumato train plain)"
        )
    for method in _SHORT:
        if method in request:
            raise ValueError(
                f"the run in {folder} is one of {method.replace('_', '-')}, which is not "
                "gone on with: train again, into another folder. What a ledger was charged for it "
                "stays charged"
            )
    if "tune" in request:
        resume_tune(folder, ledger, device, as_json)
        return
    if "source" not in request:
        raise ValueError(
            f"the run in {folder} was begun in Python: go on there, by train(..., resume=True)"
        )
    source, declared = request["source"], kept_declaration(kept, request)
    with working("reading the data"):
        where = source["data"], declared, source["test"], source.get("rows")
        loaded = loaded_data(*where, numbers="label_dp" in request)
    for method, go_on in (("pate", resume_pate), ("label_dp", resume_label_dp)):
        if method in request:
            charged = ledger or request["ledger"]
            go_on(loaded, Launch(folder, request, charged, device, progress, as_json, resume=True))
            return
    with as_written(kept.request_file):
        recipe = Recipe.from_dict(request["recipe"])
    begun = time.monotonic()
    try:
        trained = train(
            recipe, loaded, out=folder, resume=True,
            ledger=ledger or request["ledger"], device=device_called(device), minutes=minutes,
            observer=Shown(False if as_json else progress), **kept_settings(kept, request),
        )  # fmt: skip
    except OutOfTime as stopped:
        _tell_stopped(folder, str(stopped), as_json)
    else:
        _tell(trained, time.monotonic() - begun, as_json)


@app.command()
def presets(as_json: AsJson = False) -> None:
    """The recipes there are.

    Example: sfumato train presets
    """
    from sfumato.learning.recipes.presets import describe_preset, preset_names

    _list("Recipes", {name: describe_preset(name) for name in preset_names()}, as_json)


@app.command()
def models(as_json: AsJson = False) -> None:
    """The models there are, with their options.

    Example: sfumato train models
    """
    from sfumato.learning.models import describe_model, model_names

    _list("Models", {name: describe_model(name) for name in model_names()}, as_json)


def _list(title: str, described: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json(described)
        return
    table = plain_table(title)
    table.add_column("name", no_wrap=True)
    table.add_column("what")
    for name, text in described.items():
        table.add_row(name, text)
    console().print(table)


# --- what is said -------------------------------------------------------------------------------


def _tell_plan(recipe: Recipe, size: int, as_json: bool) -> None:
    plan = recipe.plan(size)
    facts = {
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.steps,
        "sample_rate": plan.lots.expected_size / plan.lots.population,
        "recipe": recipe.to_dict(),
    }
    if as_json:
        print_json(plan.guarantee.to_dict() | facts)
        return
    rows = [
        ("guarantee", str(plan.guarantee)),
        ("noise multiplier", f"{plan.noise_multiplier:.4g}"),
        ("steps", f"{plan.steps:,}, lots of {plan.lots.expected_size:,.0f} of {size:,}"),
    ]
    if plan.before is not None:
        rows.append(("features cost", f"{plan.epsilon_after([0])[0]:.4g} of epsilon"))
    rows.append(("model", f"{recipe.model} on {recipe.features.kind} features"))
    print_facts("The run would be", [*rows, ("hyper-parameters", recipe.origin)])


def _tell_stopped(folder: Path, why: str, as_json: bool) -> None:
    """The run is not over; what was done is in its folder."""
    if as_json:
        print_json({"out": str(folder), "finished": False, "stopped": why})
        return
    console().print(f"{why}; go on with: sfumato train resume {folder}", highlight=False)


def _tell(trained: Trained, seconds: float, as_json: bool) -> None:
    from sfumato.reports.style import save

    folder = trained.folder
    assert folder is not None
    if trained.points and trained.accuracy_is_public:
        save(_curve(trained), folder.curve)
    elif trained.points:
        save(_curve(trained), folder.curator / folder.curve.name).chmod(0o600)
    record = trained.record
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        plan = record.parameters["plan"]
        shown |= {"noise_multiplier": plan["noise_multiplier"], "steps": plan["steps"]}
        if trained.accuracy_is_public:
            shown["accuracy"] = trained.accuracy
        print_json(shown)
        return
    rows = [("hyper-parameters", record.facts["tuning"])]
    if trained.canaries is not None:
        rows.append(("canaries", f"planted: sfumato audit --run {folder.path}"))
    told = trained.accuracy, trained.accuracy_is_public
    print_finished(record, folder, *told, seconds, rows)


def _curve(trained: Trained) -> Any:
    from sfumato.reports.training_figures import learning_curve_figure

    record, points = trained.record, trained.points
    where = "public test set" if trained.accuracy_is_public else "private rows: for the curator"
    return learning_curve_figure(
        [p.step for p in points],
        [p.accuracy for p in points],
        [p.epsilon for p in points],
        title=f"{record.facts['data']['name']}: {record.parameters['recipe']['model']}, "
        f"{record.guarantee}",
        target=record.guarantee.epsilon,
        tested_on=where,
    )
