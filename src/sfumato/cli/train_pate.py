"""``sfumato train pate``: teachers on private parts, a student on their noisy answers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.cli.train_options import (
    Budget,
    Source,
    Watched,
    declaration_at,
    device_called,
    loaded_data,
)

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.pate import AnswerPlan
    from sfumato.learning.pate.aggregators import Aggregator
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.pate.training import PateTrained

__all__ = ["pate", "resume_pate"]

_PRIVACY, _TEACHERS, _STUDENT, _RUN = "Privacy", "Teachers", "Student", "Run"
_CHECK_RATIO = 4.0  # a check's noise over an answer's, where it is not said
_SHARE = 0.6  # of the teachers who must agree, where it is not said


def _option(panel: str, text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def pate(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    unlabelled: Annotated[
        Path | None,
        _option(_STUDENT, "Public inputs for the student (.npy), instead of the public test set."),
    ] = None,
    epsilon: Budget.Epsilon = None,
    delta: Annotated[float, _option(_PRIVACY, "Of the guarantee.")] = 1e-5,
    unit: Budget.Unit = None,
    aggregator: Annotated[
        str, _option(_PRIVACY, "lnmax, gnmax, confident or interactive.")
    ] = "gnmax",
    answers: Annotated[int, _option(_PRIVACY, "At most so many answers.")] = 250,
    questions: Annotated[
        int | None,
        _option(_PRIVACY, "At most so many questions; as many as answers, or twice with checks."),
    ] = None,
    sigma: Annotated[
        float | None, _option(_PRIVACY, "Noise of answers; by default what --epsilon needs.")
    ] = None,
    gamma: Annotated[float | None, _option(_PRIVACY, "Of lnmax: noise Lap(1/gamma).")] = None,
    threshold: Annotated[
        float | None, _option(_PRIVACY, "Votes it takes to pass a check; 60 % of the teachers.")
    ] = None,
    sigma_check: Annotated[
        float | None, _option(_PRIVACY, "Noise of checks; 4 times that of answers.")
    ] = None,
    publish_cost: Annotated[
        bool,
        _option(_PRIVACY, "Also publish what answers cost for these data, with noise of its own."),
    ] = False,
    teachers: Annotated[int, _option(_TEACHERS, "How many.")] = 250,
    kind: Annotated[
        str, _option(_TEACHERS, "linear (on public wavelets), cnn-small or pate-cnn.")
    ] = "linear",
    student: Annotated[str, _option(_STUDENT, "fixmatch, gan or supervised.")] = "fixmatch",
    steps: Annotated[int | None, _option(_STUDENT, "Of the student's training.")] = None,
    rule: Annotated[
        str, _option(_STUDENT, "How questions are chosen: random, spread or centres.")
    ] = "spread",
    rounds: Annotated[int, _option(_STUDENT, "Of an interactive aggregator's questions.")] = 1,
    test_rows: Annotated[
        int, _option(_STUDENT, "Kept of the public test set to test on; the last ones.")
    ] = 1000,
    seed: Annotated[int, _option(_RUN, "Public; privacy does not rest on it.")] = 0,
    ledger: Annotated[
        str | None, _option(_PRIVACY, "Charge this ledger before each check and each answer.")
    ] = None,
    dataset: Annotated[str, _option(_PRIVACY, "Whose budget in the ledger.")] = "",
    analyst: Annotated[str, _option(_PRIVACY, "In whose name.")] = "",
    device: Watched.Device = "auto",
    half: Annotated[bool, _option(_RUN, "Teachers compute in bfloat16.")] = False,
    dry_run: Annotated[
        bool, _option(_RUN, "Say what it would cost, charge nothing, and stop.")
    ] = False,
    progress: Watched.Progress = None,
    as_json: AsJson = False,
) -> None:
    """Trains teachers on disjoint parts of private data, and a student on their noisy answers.

    The student may be shown to anybody and asked as often as one likes. Its guarantee is that of
    the answers it learnt from. Cut off, the run goes on by sfumato train resume.

    Examples:
    sfumato train pate --data mnist --epsilon 2 --out runs/pate

    sfumato train pate --data mnist --aggregator confident --sigma 40 --sigma-check 150
    --threshold 200 --answers 286 --questions 640 --out runs/published

    sfumato train pate --data mnist --aggregator lnmax --gamma 0.05 --answers 100 --student gan
    --kind cnn-small --out runs/first-paper

    sfumato train pate --data mnist --epsilon 1 --answers 100 --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    if dry_run:
        _tell_plan(_plan(said, _unit(found, unit)), teachers, as_json)
        return
    if out is None:
        raise ValueError("out must be given: a new folder for the run (--out runs/pate)")
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    recipe = _recipe(loaded, found, said)
    declaration = None if found is None else found.to_dict()
    source = {
        "data": data, "declared": declaration, "test": test, "rows": rows,
        "unlabelled": None if unlabelled is None else str(unlabelled),
    }  # fmt: skip
    settings = {"dataset": dataset, "analyst": analyst, "half": half}
    request = {"source": source, "ledger": ledger, "settings": settings}
    _run(recipe, loaded, out, request, device, progress, as_json, resume=False)


def resume_pate(
    request: dict[str, Any],
    loaded: Dataset,
    folder: Path,
    device: str,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Goes on with a run that was cut off."""
    from sfumato.learning.pate.recipe import PateRecipe

    recipe = PateRecipe.from_dict(request["pate"])
    _run(recipe, loaded, folder, request, device, progress, as_json, resume=True)


def _run(
    recipe: PateRecipe,
    loaded: Dataset,
    out: Path,
    request: dict[str, Any],
    device: str,
    progress: bool | None,
    as_json: bool,
    resume: bool,
) -> None:
    from sfumato.learning.pate.training import train_pate
    from sfumato.learning.recipes.observing import Shown

    begun = time.monotonic()
    trained = train_pate(
        recipe, loaded, out=out, resume=resume, ledger=request["ledger"],
        unlabelled=_unlabelled(request["source"]["unlabelled"]), device=device_called(device),
        observer=Shown(False if as_json else progress), request=request, **request["settings"],
    )  # fmt: skip
    _tell(trained, time.monotonic() - begun, as_json)


def _unlabelled(path: str | None) -> Any:
    if path is None:
        return None
    import numpy as np

    return np.load(path, allow_pickle=False)


# --- the recipe -----------------------------------------------------------------------------------


def _unit(declared: Declaration | None, unit: str | None) -> str:
    return unit or ("record" if declared is None else declared.unit)


def _recipe(data: Dataset, declared: Declaration | None, said: dict[str, Any]) -> PateRecipe:
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.pate.students import make_student

    options = {} if said["steps"] is None else {"steps": said["steps"]}
    return PateRecipe(
        _plan(said, _unit(declared, said["unit"]), len(data.classes)),
        make_student(said["student"], classes=len(data.classes), **options),
        teachers=said["teachers"], kind=said["kind"], rule=said["rule"], rounds=said["rounds"],
        test_rows=said["test_rows"], seed=said["seed"],
    )  # fmt: skip


def _plan(said: dict[str, Any], unit: str, classes: int = 10) -> AnswerPlan:
    from sfumato.learning.pate import AnswerPlan

    name, answers = said["aggregator"], said["answers"]
    checked = name in ("confident", "interactive")
    questions = said["questions"] or (2 * answers if checked else answers)
    noise = said["gamma"] if name == "lnmax" else said["sigma"]
    if noise is None:
        noise = _noise_for(said, questions)
    plan = AnswerPlan(_aggregator(said, noise), answers, questions, said["delta"], unit)
    return _publishing(plan, said, classes) if said["publish_cost"] else plan


def _publishing(plan: AnswerPlan, said: dict[str, Any], classes: int) -> AnswerPlan:
    """The same plan with its cost published, and with more noise where epsilon asks for it."""
    from sfumato.accounting import calibrate
    from sfumato.learning.pate.publishing import sanitiser_for

    chosen = sanitiser_for(
        plan.aggregator, plan.answers, plan.most_questions, said["teachers"], classes, plan.delta
    )
    plan = replace(plan, sanitiser=chosen)
    if said["epsilon"] is None or said["sigma"] is not None:
        return plan
    sigma = calibrate(
        lambda x: replace(plan, aggregator=_aggregator(said, x)).event, said["epsilon"], plan.delta
    )
    return replace(plan, aggregator=_aggregator(said, sigma))


def _noise_for(said: dict[str, Any], questions: int) -> float:
    """The least sigma, or the largest gamma, for epsilon."""
    from sfumato.learning.pate.privacy import least_noise

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 2), or the noise (--sigma, --gamma)")
    laplace = said["aggregator"] == "lnmax"
    found = least_noise(
        lambda x: _aggregator(said, 1 / x if laplace else x),
        said["answers"], said["epsilon"], said["delta"], questions=questions,
    )  # fmt: skip
    return 1 / found if laplace else found


def _aggregator(said: dict[str, Any], noise: float) -> Aggregator:
    from sfumato.learning.pate import ConfidentMax, GaussianMax, InteractiveMax, LaplaceMax

    name, number = said["aggregator"], said["teachers"]
    if name == "lnmax":
        return LaplaceMax(noise)
    if name == "gnmax":
        return GaussianMax(noise)
    threshold = _SHARE * number if said["threshold"] is None else said["threshold"]
    check = _CHECK_RATIO * noise if said["sigma_check"] is None else said["sigma_check"]
    if name == "confident":
        return ConfidentMax(noise, threshold, check)
    if name == "interactive":
        return InteractiveMax(noise, threshold, check, number)
    raise ValueError(
        f"aggregator must be one of lnmax, gnmax, confident, interactive, got {name!r}"
    )


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(plan: AnswerPlan, teachers: int, as_json: bool) -> None:
    if as_json:
        print_json(plan.guarantee.to_dict() | {"plan": plan.to_dict(), "teachers": teachers})
        return
    table = plain_table("The run would be")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(plan.guarantee))
    for name, value in plan.aggregator.to_dict().items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        table.add_row("aggregator" if name == "kind" else name.replace("_", " "), shown)
    table.add_row("answers", f"at most {plan.answers:,} of {plan.most_questions:,} questions")
    table.add_row("teachers", f"{teachers:,}")
    console().print(table)


def _tell(trained: PateTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    facts = record.facts
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {name: facts[name] for name in ("questions", "answers", "confirmed", "teachers")}
        print_json(shown | {"accuracy": trained.accuracy})
        return
    table = plain_table(f"Trained in {seconds / 60:.0f} min {seconds % 60:.0f} s")
    table.add_column("", no_wrap=True)
    table.add_column("")
    table.add_row("guarantee", str(record.guarantee))
    if trained.accuracy is not None:
        table.add_row("test accuracy", f"{100 * trained.accuracy:.2f} %")
    table.add_row("answers", f"{facts['answers']:,} of {facts['questions']:,} questions")
    if "data_dependent" in facts:
        told = facts["data_dependent"]
        words = f"epsilon {told['epsilon']:.4g}, {told['confidence']:.1%} sure, published"
        table.add_row("for these data", words)
    if facts["stopped_by_the_ledger"]:
        table.add_row("ledger", "refused further questions: the student learnt from fewer")
    table.add_row("public", f"{folder.record_file}, {folder.model_file.name}")
    table.add_row("for you alone", str(folder.curator))
    console().print(table)
