"""``sfumato train adaptive-laplace``: every record told once, with noise by relevance."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.options import AsJson
from sfumato.cli.output import print_json, working
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
from sfumato.cli.train_telling import print_facts, print_finished

if TYPE_CHECKING:
    from sfumato.core.guarantee import Guarantee
    from sfumato.data import Dataset
    from sfumato.learning.adaptive_laplace import AdaptiveLaplaceRecipe, AdaptiveLaplaceTrained
    from sfumato.learning.recipes.loading import Run
    from sfumato.learning.relevance import KnownModel

__all__ = ["adaptive_laplace"]

_PRIVACY, _MODEL, _RELEVANCE, _RUN = "Privacy", "Data and model", "Relevance", "Run"
_RECIPE = (
    "epsilon", "relevance_share", "label_share", "pool", "floor", "rule", "labels", "model",
    "epochs", "batch", "rate", "unit", "seed",
)  # fmt: skip
_UNTUNED = {"epsilon", "unit", "seed"}
_SHAPING = ("pool", "model", "model_option", "labels", "relevance_run")
_PUBLIC = (
    "relevance_weights", "relevance_source", "relevance_model", "relevance_option",
    "relevance_classes",
)  # fmt: skip  # of a public network of relevance


def adaptive_laplace(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    unit: Budget.Unit = None,
    relevance_share: Annotated[
        float | None, option(_PRIVACY, "Of epsilon, for relevance; 0.02. 0: equal shares.")
    ] = None,
    label_share: Annotated[
        float | None, option(_PRIVACY, "Of the rest, for labels; by default the best.")
    ] = None,
    labels: Annotated[str | None, option(_PRIVACY, "response (default) or one-hot.")] = None,
    pool: Annotated[
        int | None, option(_MODEL, "Of images: tell means over squares of so many pixels a side.")
    ] = None,
    model: Annotated[
        str | None, option(_MODEL, "centroids (default), or a network (sfumato train models).")
    ] = None,
    model_option: Chosen.ModelOption = None,
    epochs: Annotated[float | None, option(_MODEL, "Of a network; they cost nothing.")] = None,
    batch: Annotated[int | None, option(_MODEL, "Rows of a network's step.")] = None,
    rate: Annotated[float | None, option(_MODEL, "A network's learning rate.")] = None,
    rule: Annotated[
        str | None, option(_RELEVANCE, "epsilon, z, alpha-beta or z-plus (default).")
    ] = None,
    floor: Annotated[float | None, option(_RELEVANCE, "The least share of an input; 0.1.")] = None,
    relevance_weights: Annotated[
        Path | None,
        option(_RELEVANCE, "A public network's weights (safetensors); one is drawn by default."),
    ] = None,
    relevance_source: Annotated[
        str | None, option(_RELEVANCE, "Where they come from, in one line: for the record.")
    ] = None,
    relevance_model: Annotated[
        str | None, option(_RELEVANCE, "The public network's name; mlp.")
    ] = None,
    relevance_option: Annotated[
        list[str] | None, option(_RELEVANCE, "NAME=VALUE for it; may be repeated.")
    ] = None,
    relevance_classes: Annotated[
        int | None, option(_RELEVANCE, "How many scores it has; 10.")
    ] = None,
    relevance_run: Annotated[
        Path | None,
        option(_RELEVANCE, "Or a run of dp-sgd on the same records; its cost comes on top."),
    ] = None,
    seed: Annotated[int | None, option(_RUN, "Public; privacy does not rest on it.")] = None,
    tuned_on: Chosen.TunedOn = None,
    ledger: Annotated[str | None, option(_PRIVACY, "Charge this ledger first.")] = None,
    dataset: Annotated[
        str, option(_PRIVACY, "Whose budget in the ledger: relation replace-one.")
    ] = "",
    analyst: Annotated[str, option(_PRIVACY, "In whose name.")] = "",
    device: Watched.Device = "cpu",
    dry_run: Annotated[
        bool, option(_RUN, "Say what it would cost, charge nothing, and stop.")
    ] = False,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Tells every record once with Laplace noise, less where inputs matter, and learns from that.

    The guarantee is pure, for replacing one record, and nearly all of it local: it needs a large
    epsilon, or few inputs, to learn anything. See docs/adaptive-laplace.md.

    Examples:
    sfumato train adaptive-laplace --data mnist --pool 4 --epsilon 10 --out runs/noisy

    sfumato train adaptive-laplace --data digits --pool 2 --epsilon 10 --dry-run

    sfumato train adaptive-laplace --data digits --epsilon 30 --relevance-run runs/private
    --out runs/noisy
    """
    said = dict(locals())
    found = declaration_at(declared)
    recipe = _recipe(said, None if found is None else found.unit)
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    known = None if relevance_run is None else _of_run(relevance_run, ledger, dataset)
    if dry_run:
        _tell_plan(recipe, loaded, known, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/noisy)")
    from sfumato.learning.adaptive_laplace import train_adaptive_laplace
    from sfumato.learning.recipes.observing import Shown

    begun = time.monotonic()
    stated = None if found is None else found.to_dict()
    source = {"data": data, "declared": stated, "test": test, "rows": rows}
    with working("learning"):
        trained = train_adaptive_laplace(
            recipe, loaded, out=out, known=known, ledger=ledger, dataset=dataset, analyst=analyst,
            device=device_called(device), observer=Shown(False if as_json else progress),
            request={"source": source, "ledger": without_password(ledger)},
        )  # fmt: skip
    _tell(trained, time.monotonic() - begun, as_json)


def _recipe(said: dict[str, Any], unit: str | None) -> AdaptiveLaplaceRecipe:
    from sfumato.learning.adaptive_laplace import AdaptiveLaplaceRecipe
    from sfumato.learning.relevance.rules import RelevanceRule

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 10)")
    given = {name: said[name] for name in _RECIPE if said[name] is not None}
    if unit is not None:
        given.setdefault("unit", unit)
    if "rule" in given:
        given["rule"] = RelevanceRule.named(given["rule"])
    if said["model_option"]:
        given["options"] = named_values("model-option", said["model_option"])
    source = _source(said)
    if source is not None:
        given["source"] = source
    names = (*_RECIPE, *_SHAPING, *_PUBLIC)
    asked = {name for name in names if said[name] is not None} - _UNTUNED
    origin = origin_of(asked, (*_SHAPING, *_PUBLIC), said["tuned_on"])
    if origin is not None:
        given["origin"] = origin
    return AdaptiveLaplaceRecipe(**given)


def _source(said: dict[str, Any]) -> Any:
    """The public network that was asked for; None for the usual one."""
    from sfumato.learning.relevance.sources import PublicSource

    given = [name for name in _PUBLIC if said[name] is not None]
    if not given:
        return None
    if said["relevance_run"] is not None:
        first = given[0].replace("_", "-")
        raise ValueError(
            f"--{first} must be left out with --relevance-run, got {said[given[0]]} and "
            f"{said['relevance_run']}: relevance is computed with the run's network or with a "
            "public one, give one of them"
        )
    weights = said["relevance_weights"]
    return PublicSource(
        said["relevance_model"] or "mlp",
        10 if said["relevance_classes"] is None else said["relevance_classes"],
        "" if weights is None else str(weights), said["relevance_source"] or "",
        named_values("relevance-option", said["relevance_option"]), said["seed"] or 0,
    )  # fmt: skip


def _of_run(path: Path, ledger: str | None, dataset: str) -> KnownModel:
    """A run's network, with what its training released."""
    from sfumato.learning.recipes.loading import load_run
    from sfumato.learning.relevance import KnownModel

    run = load_run(path)
    if not run.record.private:
        raise ValueError(
            f"relevance-run must be a run whose noise was private, got {path}, made with seeded "
            "coins: train again without them"
        )
    if run.claim is None:
        raise ValueError(
            f"relevance-run must be a run that protects whole records, got {path} by "
            f"{run.record.method}: take one by dp-sgd or pate"
        )
    charged = _paid_there(run, ledger, dataset)
    return KnownModel.privately_trained(run.model, run.record.event, charged=charged)


def _paid_there(run: Run, ledger: str | None, dataset: str) -> bool:
    """Whether this ledger was charged for the run, for the same data; no if that is not known."""
    from sfumato.learning.erm.charging import same_ledger

    try:
        before = run.folder.request().get("ledger")
    except ValueError:  # the curator's folder stayed elsewhere
        return False
    paid = run.record.facts.get("ledger", {}).get("dataset")
    if ledger is None or not before or paid != dataset:
        return False
    return same_ledger(str(before), ledger)


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(
    recipe: AdaptiveLaplaceRecipe, data: Dataset, known: KnownModel | None, as_json: bool
) -> None:
    from sfumato.learning.adaptive_laplace.training import planned
    from sfumato.learning.recipes.inputs import input_shape

    guarantee: Guarantee = planned(recipe, data, known)[1]
    classes, inputs = len(data.classes), 1
    for side in recipe.told_shape(input_shape(data.shape)):
        inputs *= side
    parts = recipe.parts(classes)
    scale = inputs / parts.inputs
    if as_json:
        shown = {"inputs": inputs, "noise_scale": scale, "recipe": recipe.to_dict()}
        print_json(guarantee.to_dict() | {"epsilons": parts._asdict()} | shown)
        return
    print_facts(
        "The run would be",
        [
            ("guarantee", str(guarantee)),
            ("local, given shares", str(recipe.local_guarantee(classes))),
            ("epsilons", ", ".join(f"{k} {v:.4g}" for k, v in parts._asdict().items())),
            ("inputs told", f"{inputs}"),
            ("noise on each", f"scale {scale:.4g} at equal shares, for a range of 1"),
        ],
    )


def _tell(trained: AdaptiveLaplaceTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {"epsilons": record.facts["epsilons"]}
        public = {"accuracy": trained.accuracy} if trained.accuracy_is_public else {}
        print_json(shown | public)
        return
    local = record.facts["local_guarantee"]["epsilon"]
    rows = [
        ("local, given shares", f"epsilon {local:.4g}"),
        ("hyper-parameters", record.facts["tuning"]),
    ]
    print_finished(
        record, folder, trained.accuracy, trained.accuracy_is_public, seconds, rows
    )  # fmt: skip
