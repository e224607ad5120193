"""``sfumato train pate``: teachers on private parts, a student on their noisy answers."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.options import AsJson
from sfumato.cli.output import print_json, working
from sfumato.cli.train_like import read_pate_like
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    loaded_data,
    named_values,
    option,
    without_password,
)
from sfumato.cli.train_telling import Launch, accuracy_of, print_facts, print_finished
from sfumato.core.json_files import as_written

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.data import Dataset, Declaration
    from sfumato.learning.pate import AnswerPlan
    from sfumato.learning.pate.aggregators import Aggregator
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.pate.training import PateTrained

__all__ = ["pate", "resume_pate"]

_PRIVACY, _TEACHERS, _STUDENT, _RUN = "Privacy", "Teachers", "Student", "Run"
_DEFAULTS = {
    "delta": 1e-5, "aggregator": "gnmax", "answers": 250, "publish_cost": False, "kind": "linear",
    "rule": "spread", "rounds": 1, "test_rows": 1000, "seed": 0,
}  # fmt: skip
_TEACHERS_AT_FIRST = 250
_STUDENTS = {3: "fixmatch", 1: "supervised"}  # by the dimensions of an input


def pate(
    data: Source.Data,
    out: Watched.Out = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    unlabelled: Annotated[
        Path | None,
        option(
            _STUDENT,
            "Public inputs for the student, instead of the public test set: .npy, or a table "
            "(.csv, .parquet, .npz) with the declared columns.",
        ),
    ] = None,
    epsilon: Budget.Epsilon = None,
    delta: Annotated[float | None, option(_PRIVACY, "Of the guarantee; 1e-5.")] = None,
    unit: Budget.Unit = None,
    aggregator: Annotated[
        str | None, option(_PRIVACY, "lnmax, gnmax (default), confident or interactive.")
    ] = None,
    answers: Annotated[int | None, option(_PRIVACY, "At most so many answers; 250.")] = None,
    questions: Annotated[
        int | None,
        option(_PRIVACY, "At most so many questions; as many as answers, or twice with checks."),
    ] = None,
    sigma: Annotated[
        float | None, option(_PRIVACY, "Noise of answers; by default what --epsilon needs.")
    ] = None,
    gamma: Annotated[float | None, option(_PRIVACY, "Of lnmax: noise Lap(1/gamma).")] = None,
    threshold: Annotated[
        float | None, option(_PRIVACY, "Votes it takes to pass a check; 60 % of the teachers.")
    ] = None,
    sigma_check: Annotated[
        float | None, option(_PRIVACY, "Noise of checks; 4 times that of answers.")
    ] = None,
    publish_cost: Annotated[
        bool | None,
        option(_PRIVACY, "Also publish what answers cost for these data, with noise of its own."),
    ] = None,
    teachers: Annotated[
        int | None, option(_TEACHERS, "How many; 250, or as many as voted in --teacher-labels.")
    ] = None,
    kind: Annotated[
        str | None,
        option(_TEACHERS, "linear (default; on public wavelets of images), cnn-small, pate-cnn."),
    ] = None,
    teacher_labels: Annotated[
        Path | None,
        option(
            _TEACHERS,
            "Teachers of your own: their labels (.npy, .csv), a row for each public input, a "
            "column for each teacher. That a unit touches one of them only is your promise.",
        ),
    ] = None,
    teacher_votes: Annotated[
        Path | None,
        option(_TEACHERS, "The same as counts of votes, a column for each class; --teachers N."),
    ] = None,
    student: Annotated[
        str | None,
        option(_STUDENT, "fixmatch (default for images), gan, supervised (default for tables)."),
    ] = None,
    student_option: Annotated[
        list[str] | None,
        option(_STUDENT, "NAME=VALUE for the student, such as hidden=32; may be repeated."),
    ] = None,
    steps: Annotated[int | None, option(_STUDENT, "Of the student's training.")] = None,
    rule: Annotated[
        str | None,
        option(_STUDENT, "How questions are chosen: random, spread (default) or centres."),
    ] = None,
    rounds: Annotated[
        int | None, option(_STUDENT, "Of an interactive aggregator's questions; 1.")
    ] = None,
    test_rows: Annotated[
        int | None,
        option(_STUDENT, "Kept of the public test set to test on, the last ones; 1000."),
    ] = None,
    seed: Annotated[int | None, option(_RUN, "Public; privacy does not rest on it; 0.")] = None,
    tuned_on: Chosen.TunedOn = None,
    like: Chosen.Like = None,
    ledger: Annotated[
        str | None, option(_PRIVACY, "Charge this ledger before each check and each answer.")
    ] = None,
    dataset: Annotated[str, option(_PRIVACY, "Whose budget in the ledger.")] = "",
    analyst: Annotated[str, option(_PRIVACY, "In whose name.")] = "",
    device: Watched.Device = "auto",
    half: Annotated[bool, option(_RUN, "Teachers compute in bfloat16.")] = False,
    dry_run: Annotated[
        bool, option(_RUN, "Say what it would cost, charge nothing, and stop.")
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

    sfumato train pate --data patients.csv --declared patients.toml --unlabelled public.csv
    --epsilon 2 --answers 100 --teachers 100 --out runs/patients

    sfumato train pate --data mnist --teacher-labels labels.npy --epsilon 2 --out runs/own

    sfumato train pate --data mnist --like runs/pate/record.json --out runs/again

    sfumato train pate --data mnist --epsilon 1 --answers 100 --dry-run
    """
    said = dict(locals())
    found = declaration_at(declared)
    known = None if like is None else read_pate_like(like, said)
    said = _with_defaults(said) if known is None else said
    if out is None and not dry_run:
        raise ValueError("out must be given: a new folder for the run (--out runs/pate)")
    rows = rows if known is None else known.rows
    with working("reading the data"):
        loaded = loaded_data(data, found, test, rows)
    if known is not None:
        known.check(loaded, found)
    recipe = _recipe(loaded, found, said) if known is None else known.recipe
    if dry_run:
        from sfumato.learning.pate.training import check_data

        check_data(recipe, loaded, charged=ledger is not None)  # as the run does
        _tell_plan(recipe.plan, recipe.teachers, as_json)
        return
    assert out is not None
    declaration = None if found is None else found.to_dict()
    files = {name: said[name] for name in ("unlabelled", "teacher_labels", "teacher_votes")}
    source = {"data": data, "declared": declaration, "test": test, "rows": rows}
    source |= {name: None if path is None else str(path) for name, path in files.items()}
    settings = {"dataset": dataset, "analyst": analyst, "half": half}
    request = {"source": source, "ledger": without_password(ledger), "settings": settings}
    _run(recipe, loaded, Launch(out, request, ledger, device, progress, as_json))


def resume_pate(loaded: Dataset, launch: Launch) -> None:
    """Goes on with a run that was cut off."""
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.runs import RunFolder

    with as_written(RunFolder(launch.out).request_file):
        recipe = PateRecipe.from_dict(launch.request["pate"])
    _run(recipe, loaded, launch)


def _run(recipe: PateRecipe, loaded: Dataset, launch: Launch) -> None:
    from sfumato.learning.pate.training import train_pate

    begun, source = time.monotonic(), launch.request["source"]
    trained = train_pate(
        recipe, loaded, unlabelled=_unlabelled(source),
        votes=_votes(source, recipe, len(loaded.classes)), **launch.arguments(),
    )  # fmt: skip
    _tell(trained, time.monotonic() - begun, launch.as_json)


def _unlabelled(source: dict[str, Any]) -> NDArray[Any] | None:
    """Public inputs, from a file."""
    if source["unlabelled"] is None:
        return None
    from sfumato.data import Declaration, load_inputs

    said = source["declared"]
    return load_inputs(source["unlabelled"], None if said is None else Declaration.from_dict(said))


def _votes(source: dict[str, Any], recipe: PateRecipe, classes: int) -> NDArray[Any] | None:
    """Of teachers of one's own, from a file."""
    from sfumato.learning.pate.teachers import read_labels, read_votes, votes_from_labels

    if source.get("teacher_votes") is not None:
        return read_votes(source["teacher_votes"], recipe.teachers, classes=classes)
    if source.get("teacher_labels") is None:
        return None
    labels = read_labels(source["teacher_labels"], classes, teachers=recipe.teachers)
    return votes_from_labels(labels, classes)


# --- the recipe -----------------------------------------------------------------------------------


def _with_defaults(said: dict[str, Any]) -> dict[str, Any]:
    """What was said, and what is usual where nothing was."""
    usual = {name: value for name, value in _DEFAULTS.items() if said[name] is None}
    own = [name for name in ("teacher_labels", "teacher_votes") if said[name] is not None]
    if own:
        usual |= _own_teachers(own, said)
    elif said["teachers"] is None:
        usual["teachers"] = _TEACHERS_AT_FIRST
    return said | usual


def _own_teachers(given: list[str], said: dict[str, Any]) -> dict[str, Any]:
    """The kind and the number of teachers that are brought along."""
    from sfumato.learning.pate.recipe import OWN
    from sfumato.learning.pate.teachers import teachers_in

    for name in ("kind", "rows", *given[1:]):
        if said[name] is not None:
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be left out with --{given[0].replace('_', '-')}")
    number = said["teachers"]
    if number is None and "teacher_labels" not in given:
        raise ValueError("teachers must be given with --teacher-votes: how many voted")
    return {"kind": OWN, "teachers": number or teachers_in(said["teacher_labels"])}


def _unit(declared: Declaration | None, unit: str | None) -> str:
    return unit or ("record" if declared is None else declared.unit)


def _recipe(data: Dataset, declared: Declaration | None, said: dict[str, Any]) -> PateRecipe:
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.pate.students import make_student

    options = named_values("student-option", said["student_option"])
    options |= {} if said["steps"] is None else {"steps": said["steps"]}
    options |= {"classes": len(data.classes)}
    name = said["student"] or _STUDENTS.get(len(data.shape), "supervised")
    origin = {} if said["tuned_on"] is None else {"origin": said["tuned_on"]}
    return PateRecipe(
        _plan(said, _unit(declared, said["unit"]), len(data.classes)),
        make_student(name, **options),
        teachers=said["teachers"], kind=said["kind"], rule=said["rule"], rounds=said["rounds"],
        test_rows=said["test_rows"], seed=said["seed"], **origin,
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
    from sfumato.learning.pate import LaplaceMax
    from sfumato.learning.pate.named import aggregator_called

    if said["aggregator"] == "lnmax":
        return LaplaceMax(noise)
    checks = {name: said[name] for name in ("threshold", "sigma_check")}
    return aggregator_called(said["aggregator"], noise, said["teachers"], **checks)


# --- what is said ---------------------------------------------------------------------------------


def _tell_plan(plan: AnswerPlan, teachers: int, as_json: bool) -> None:
    if as_json:
        print_json(plan.guarantee.to_dict() | {"plan": plan.to_dict(), "teachers": teachers})
        return
    rows = [("guarantee", str(plan.guarantee))]
    for name, value in plan.aggregator.to_dict().items():
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        rows.append(("aggregator" if name == "kind" else name.replace("_", " "), shown))
    rows.append(("answers", f"at most {plan.answers:,} of {plan.most_questions:,} questions"))
    print_facts("The run would be", [*rows, ("teachers", f"{teachers:,}")])


def _tell(trained: PateTrained, seconds: float, as_json: bool) -> None:
    record, folder = trained.record, trained.folder
    facts = record.facts
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {name: facts[name] for name in ("questions", "answers", "confirmed", "teachers")}
        print_json(shown | {"accuracy": trained.accuracy})
        return
    rows = [("answers", f"{facts['answers']:,} of {facts['questions']:,} questions")]
    if "data_dependent" in facts:
        told = facts["data_dependent"]
        words = f"epsilon {told['epsilon']:.4g}, {told['confidence']:.1%} sure, published"
        rows.append(("for these data" + (", this run" if told["checked"] else ""), words))
    if facts["stopped_by_the_ledger"]:
        rows.append(("ledger", "refused further questions: the student learnt from fewer"))
    print_finished(record, folder, *accuracy_of(trained.accuracy, folder), seconds, rows)
