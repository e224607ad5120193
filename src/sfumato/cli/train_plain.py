"""``sfumato train plain``: what a private model would have been, for the curator."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.cli.train_options import (
    Chosen,
    Source,
    Watched,
    declaration_at,
    device_called,
    loaded_data,
)
from sfumato.cli.train_recipe import make_recipe

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.ensembles import Schedule
    from sfumato.learning.recipes import Recipe, Trained

__all__ = ["plain"]

_TRAINING = "Training"
_TAKEN = ("preset", "model", "model_option", "features", "feature_option", "seed")
"""Of what may be said of a private run, what a run without privacy takes."""
_EPSILON = 8.0  # of the private run whose recipe is taken; only noise of private features depends


def plain(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    preset: Chosen.Preset = None,
    model: Chosen.Model = None,
    model_option: Chosen.ModelOption = None,
    features: Chosen.FeatureName = None,
    feature_option: Chosen.FeatureOption = None,
    epochs: Annotated[
        int, typer.Option(help="Passes over the data; many overfit.", rich_help_panel=_TRAINING)
    ] = 20,
    batch_size: Annotated[
        int, typer.Option(help="Records of one step.", rich_help_panel=_TRAINING)
    ] = 128,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            help="At its highest, from which it falls to 0; 0.05 if left out.",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    seed: Chosen.Seed = None,
    device: Watched.Device = "auto",
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Trains the same model WITHOUT privacy, to compare a private one with.

    The network, the features and the records of a private run, and with the same --seed its initial
    weights; no clipping and no noise. It promises nothing: the model and all that is said of it are
    for the curator alone, no ledger pays for it, and only the owner may open the folder.

    Examples:
    sfumato train plain --data mnist --out runs/plain

    sfumato train plain --data mnist --rows 6000 --model mlp --features none --epochs 100
    --seed 1 --out runs/overfit

    sfumato attack membership --run runs/overfit
    """
    said = dict(locals())
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/plain)")
    from sfumato.learning.runs import RunFolder

    RunFolder(out).require_new()
    found = declaration_at(declared)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    recipe = _recipe(loaded, found, said)
    from sfumato.learning.recipes.observing import Shown
    from sfumato.learning.recipes.plain import plain_schedule, train_plain

    schedule = plain_schedule(
        recipe, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate
    )
    known = None if found is None else found.to_dict()
    source = {"data": data, "declared": known, "test": test, "rows": rows}
    begun = time.monotonic()
    trained = train_plain(
        recipe, loaded, out=out, schedule=schedule, device=device_called(device),
        observer=Shown(False if as_json else progress), request={"source": source},
    )  # fmt: skip
    _tell(trained, schedule, time.monotonic() - begun, as_json)


def _recipe(data: Dataset, declared: Declaration | None, said: Mapping[str, Any]) -> Recipe:
    """A private run's recipe, of which model, features and seed are taken."""
    taken = {name: said[name] for name in _TAKEN} | {"epsilon": _EPSILON}
    everything = defaultdict[str, Any](lambda: None, taken)
    recipe = make_recipe(data, declared, data.public_size, everything)
    return recipe.changed(origin="sfumato's schedule for training without privacy")


def _tell(trained: Trained, schedule: Schedule, seconds: float, as_json: bool) -> None:
    """Results are the curator's: they are shown to whoever trains, and in no record."""
    folder, record = trained.folder, trained.record
    assert folder is not None
    warning = record.to_dict()["warning"]
    own = record.curator_view()["accuracy_on_own"]
    if as_json:
        shown = record.guarantee.to_dict() | {
            "out": str(folder.path), "private": False, "warning": warning, "channel": "curator",
            "accuracy": trained.accuracy, "accuracy_on_own": own,
        }  # fmt: skip
        print_json(shown)
        return
    table = plain_table(f"Trained WITHOUT privacy in {seconds:.0f} s")
    table.title_style = "bold red"
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("NOT PRIVATE", warning.partition(": ")[2], style="bold red")
    table.add_row("guarantee", f"none: {record.guarantee}")
    recipe = record.parameters["recipe"]
    table.add_row("model", f"{recipe['model']} on {recipe['features']['kind']} features")
    table.add_row("training", f"{schedule.epochs} epochs, batches of {schedule.batch_size}")
    if trained.accuracy is not None:
        table.add_row("test accuracy", f"{100 * trained.accuracy:.2f} % (for your eyes only)")
    table.add_row("on its own records", f"{100 * own:.2f} % (for your eyes only)")
    table.add_row("for you alone", f"{folder.path}, all of it")
    table.add_row("next", f"sfumato attack membership --run {folder.path}")
    console().print(table)
