"""``sfumato train label-dp``: inputs are public, labels are private, each is randomised once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json, working
from sfumato.cli.train_label_numbers import (
    NUMBERS,
    check_kind,
    check_options,
    number_recipe,
    tell_number_plan,
    tell_numbers,
)
from sfumato.cli.train_like import recorded
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    declares_numbers,
    loaded_data,
    named_values,
    option,
    without_password,
)
from sfumato.cli.train_telling import Launch, accuracy_of, print_facts, print_finished
from sfumato.core import validation
from sfumato.core.json_files import as_written

if TYPE_CHECKING:
    from sfumato.data import Dataset
    from sfumato.learning.label_dp import LabelRecipe, LabelTrained, NumberRecipe

__all__ = ["label_dp", "resume_label_dp"]

_PRIVACY, _LEARNING, _RUN = "Privacy", "Learning", "Run"
_NUMBERS = "Labels that are numbers"
_RECIPE = (
    "mechanism", "targets", "rounds", "temperature", "network", "epochs", "batch",
    "pretraining_epochs", "seed",
)  # fmt: skip
_CHOICES = (
    "epsilon", "stages", "preset", "first_share", "mixup", "network_option", *_RECIPE, *NUMBERS,
)  # fmt: skip


def label_dp(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    epsilon: Budget.Epsilon = None,
    stages: Annotated[
        int | None, option(_PRIVACY, "1, or 2 (default): the second asks within a prior.")
    ] = None,
    mechanism: Annotated[
        str | None, option(_PRIVACY, "response (default), or alibi, which has one stage.")
    ] = None,
    first_share: Annotated[
        float | None, option(_PRIVACY, "Of the labels, in the first of two stages.")
    ] = None,
    temperature: Annotated[
        float | None, option(_PRIVACY, "Divides the first stage's logits to make the prior.")
    ] = None,
    histogram_share: Annotated[
        float | None,
        option(_NUMBERS, "Of epsilon, for a noisy histogram that bins suit; 0.1, and 0 for none."),
    ] = None,
    points: Annotated[
        int | None, option(_NUMBERS, "From the least label to the greatest, to make bins of; 32.")
    ] = None,
    prior: Annotated[
        Path | None,
        option(
            _NUMBERS,
            "Instead of a histogram: a .json list, how probable each point is by a public guess.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        option(
            _LEARNING,
            "wavelets, resnet18, contrastive (learns from the inputs first; for images at small "
            "epsilon) or table; by default by the shape of the inputs.",
        ),
    ] = None,
    targets: Annotated[
        str | None, option(_LEARNING, "hard, soft or debiased: what networks learn from reports.")
    ] = None,
    rounds: Annotated[
        int | None, option(_LEARNING, "Networks after each other, each on the last one's labels.")
    ] = None,
    network: Annotated[
        str | None,
        option(
            _LEARNING,
            "mlp, small-cnn, resnet18, ...; of numbers none (default), for least squares alone.",
        ),
    ] = None,
    network_option: Annotated[
        list[str] | None, option(_LEARNING, "NAME=VALUE for the network; may be repeated.")
    ] = None,
    epochs: Annotated[float | None, option(_LEARNING, "Of each network's training.")] = None,
    batch: Annotated[int | None, option(_LEARNING, "Rows of a step.")] = None,
    pretraining_epochs: Annotated[
        float | None, option(_LEARNING, "Over the inputs alone, with --preset contrastive.")
    ] = None,
    mixup: Annotated[
        float | None, option(_LEARNING, "Alpha of mixup, in all stages; 0 for none.")
    ] = None,
    seed: Annotated[int | None, option(_RUN, "Public; privacy does not rest on it.")] = None,
    tuned_on: Chosen.TunedOn = None,
    like: Chosen.Like = None,
    ledger: Annotated[
        str | None, option(_PRIVACY, "Charge this ledger, before any label is read.")
    ] = None,
    dataset: Annotated[
        str, option(_PRIVACY, "Whose budget of labels: unit label, relation replace-one.")
    ] = "",
    analyst: Annotated[str, option(_PRIVACY, "In whose name.")] = "",
    device: Watched.Device = "auto",
    half: Annotated[bool, option(_RUN, "Networks compute in bfloat16.")] = False,
    compile: Annotated[
        bool, option(_RUN, "Compile networks; pays for long runs on a GPU.")
    ] = False,
    pretrained: Annotated[
        Path | None,
        option(_RUN, "curator/pretrained.safetensors of a run on the same inputs, to begin with."),
    ] = None,
    minutes: Annotated[
        float | None, option(_RUN, "Stop after so many; sfumato train resume goes on.")
    ] = None,
    dry_run: Annotated[
        bool, option(_RUN, "Say what it would cost, charge nothing, and stop.")
    ] = False,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Trains with private labels and public inputs: each label is randomised once.

    The guarantee is for replacing one label, and says nothing about inputs. Cut off, the run goes
    on by sfumato train resume; no label is randomised twice. Where the declaration has label_bounds
    labels are numbers: each is told through bins, and a regression learns from what was told.

    Examples:
    sfumato train label-dp --data mnist --epsilon 2 --out runs/labels

    sfumato train label-dp --data mnist --epsilon 1 --stages 1 --out runs/one-stage

    sfumato train label-dp --data cifar10 --epsilon 2 --half --compile --minutes 9 --out runs/cifar

    sfumato train label-dp --data cifar10 --epsilon 1 --preset contrastive --half --out runs/views

    sfumato train label-dp --data census2000 --mechanism alibi --epsilon 2 --out runs/census

    sfumato train label-dp --data wages.csv --declared wages.toml --epsilon 3 --out runs/wages

    sfumato train label-dp --data mnist --epsilon 2 --ledger privacy.db --dataset mnist-labels
    --out runs/charged

    sfumato train label-dp --data mnist --epsilon 2 --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    numbers = declares_numbers(found)
    check_options(numbers, said)
    known = None if like is None else _like(like, said)
    rows = rows if known is None else known[1]
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows, numbers=True)
    if known is not None and known[2] != loaded.name:
        validation.fail("like", f"a record about {loaded.name!r}", known[2])
    if known is not None:
        recipe = known[0]
        check_kind(recipe, numbers)
    else:
        recipe = number_recipe(loaded, said) if numbers else _recipe(loaded, said)
    if dry_run:
        from sfumato.learning.label_dp.training import check_data

        check_data(loaded)  # as the run does
        _tell_plan(recipe, loaded, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/labels)")
    declaration = None if found is None else found.to_dict()
    source = {"data": data, "declared": declaration, "test": test, "rows": rows}
    settings = {"dataset": dataset, "analyst": analyst, "half": half, "compile": compile}
    settings["minutes"] = minutes
    if pretrained is not None:
        settings["pretrained"] = str(pretrained.resolve())
    request = {"source": source, "ledger": without_password(ledger), "settings": settings}
    _run(recipe, loaded, Launch(out, request, ledger, device, progress, as_json))


def resume_label_dp(loaded: Dataset, launch: Launch) -> None:
    """Goes on with a run that was cut off."""
    from sfumato.learning.label_dp.number_recipe import read_recipe
    from sfumato.learning.runs import RunFolder

    with as_written(RunFolder(launch.out).request_file):
        recipe = read_recipe(launch.request["label_dp"])
    _run(recipe, loaded, launch)


def _run(recipe: LabelRecipe | NumberRecipe, loaded: Dataset, launch: Launch) -> None:
    from sfumato.learning.label_dp import OutOfTime, train_label_dp

    begun = time.monotonic()
    try:
        trained = train_label_dp(recipe, loaded, **launch.arguments())
    except OutOfTime as stopped:
        _tell_stopped(launch.out, str(stopped), recipe, launch.as_json)
        return
    told = tell_numbers if loaded.target_bounds is not None else _tell
    told(trained, time.monotonic() - begun, launch.as_json)


# --- the recipe -----------------------------------------------------------------------------------


def _recipe(data: Dataset, said: dict[str, Any]) -> LabelRecipe:
    """The preset's recipe with what was said otherwise."""
    from sfumato.learning.label_dp import label_preset
    from sfumato.learning.recipes.recipe import NOT_STATED

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 2)")
    alibi = said["mechanism"] == "alibi"
    stages = said["stages"] or (1 if alibi or said["targets"] == "debiased" else 2)
    changes = {name: said[name] for name in _RECIPE if said[name] is not None}
    changes |= _stage_changes(said, stages)
    base = label_preset(data, said["epsilon"], stages, said["preset"])
    if said["network"] is not None or said["network_option"]:
        own = base.options if said["network"] in (None, base.network) else {}
        changes["options"] = own | named_values("network-option", said["network_option"])
    if changes or said["tuned_on"]:
        given = f", with {', '.join(sorted(changes))} given" if changes else ""
        changes["origin"] = f"{base.origin}{given}: {said['tuned_on'] or NOT_STATED}"
    return label_preset(data, said["epsilon"], stages, said["preset"], **changes)


def _stage_changes(said: dict[str, Any], stages: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    share = said["first_share"]
    if share is not None:
        if stages != 2:
            validation.fail("first-share", "left out unless there are two stages", share)
        validation.open_probability("first-share", share)
        found["shares"] = (share, 1 - share)
    if said["mixup"] is not None:
        found["mixup"] = (said["mixup"],) * stages
    return found


def _like(path: Path, said: dict[str, Any]) -> tuple[LabelRecipe | NumberRecipe, int | None, str]:
    """The recipe on record, how many of the first rows, and the name of the data."""
    from sfumato.learning.label_dp.number_recipe import read_recipe

    for name in (*_CHOICES, "rows", "tuned_on"):
        if said[name] is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be left out with --like, which takes a recipe as is")
    recipe, facts = recorded(path, "label-dp", read_recipe)
    return recipe, facts.get("rows"), facts["name"]


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(recipe: LabelRecipe | NumberRecipe, data: Dataset, as_json: bool) -> None:
    from sfumato.learning.label_dp import LabelRecipe
    from sfumato.mechanisms.randomized_response import RandomizedResponse

    if not isinstance(recipe, LabelRecipe):
        tell_number_plan(recipe, data, as_json)
        return
    keep = RandomizedResponse(recipe.epsilon, len(data.classes)).keep
    if as_json:
        facts = {"keep": keep, "stages": recipe.stages, "recipe": recipe.to_dict()}
        print_json(recipe.guarantee.to_dict() | facts)
        return
    reports = f"true with probability {keep:.4g}, in the first stage"
    if recipe.mechanism == "alibi":
        reports = f"vectors with Laplace noise of scale {2 / recipe.epsilon:.4g}"
    rows = [
        ("guarantee", str(recipe.guarantee)),
        ("inputs", "public: the guarantee says nothing about them"),
        ("reports", reports),
        ("stages", ", ".join(f"{share:.0%} of the labels" for share in recipe.shares)),
        ("learning", f"{recipe.targets} labels, {recipe.network}, {recipe.epochs:g} epochs"),
        ("hyper-parameters", recipe.origin),
    ]
    if recipe.pretraining != "none":
        before = f"{recipe.pretraining}, {recipe.pretraining_epochs:g} epochs on inputs alone"
        rows.insert(4, ("pre-training", before))
    print_facts("The run would be", rows)


def _tell_stopped(
    folder: Path, why: str, recipe: LabelRecipe | NumberRecipe, as_json: bool
) -> None:
    if as_json:
        told = {"out": str(folder), "finished": False, "stopped": why}
        print_json(recipe.guarantee.to_dict() | told)
        return
    console().print(f"{why}. Go on: sfumato train resume {folder}")


def _tell(trained: LabelTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    facts = record.facts
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {"finished": True, "stages": facts["labels_of_each_stage"]}
        print_json(shown | {"accuracy": trained.accuracy})
        return
    stages = ", then ".join(f"{count:,}" for count in facts["labels_of_each_stage"])
    rows = [("labels randomised", stages)]
    if facts["labels_lost"]:
        rows.append(("labels lost", f"{facts['labels_lost']:,}, told when the run was cut off"))
    print_finished(record, folder, *accuracy_of(trained.accuracy, folder), seconds, rows)
