"""``sfumato attack teachers``: the student of a PATE run beside the teachers it is kept from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Seed, Test
from sfumato.cli.attacked_options import Run as RunPath
from sfumato.cli.options import AsJson
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.core import validation

if TYPE_CHECKING:
    from torch import nn

    from sfumato.attacks.candidates import Candidates
    from sfumato.attacks.membership.reports import MembershipReport

__all__ = ["Suspect", "attack_suspects", "student_and_teachers", "teachers"]

_RESULT = "teachers-attacked.json"
_ATTACKS = ("loss", "learned from gradients", "whitened weights", "all of it, learned")
_POPULATION = 1000  # examples of the attacker's own, whose gradients are held at once
_ALONG = (0.0, 0.5, 1.0)  # of the way from first weights to last, where gradients are taken


def teachers(
    run: RunPath = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    number: Annotated[int, typer.Option(help="Teachers that are attacked, one by one.")] = 10,
    rows: Annotated[int, typer.Option(help="Members of the student that are tried.")] = 1000,
    others: Annotated[int, typer.Option(help="Others that are tried on each.")] = 1000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Attacks a PATE run's student with its weights in hand, and single teachers likewise.

    Members are private rows: of a teacher those it learnt from, of the student those of all
    teachers. Others are rows of other teachers, or rows that nobody saw. Half of all are known to
    the attacker, who learns from these. It reads the curator's folder: results are for you alone.

    Example: sfumato attack teachers --run runs/pate
    """
    if run is None:
        raise ValueError("run must be given: the folder of a finished run of PATE (--run runs/a)")
    validation.count("number", number)
    with working("attacking"):
        what = attacked(run, None, data, declared, test, False)
        if not what.taught:
            raise ValueError(f"{run} must hold a run of PATE, with teachers in its folder")
        student, some = student_and_teachers(what, number, rows, others, seed)
        found = {
            "student": attack_suspects([student], seed),
            f"{len(some)} single teachers": attack_suspects(some, seed),
        }
    results = {who: _kept(reports) for who, reports in found.items()}
    kept = what.keep(_RESULT, {"channel": "curator", "attacked": results})
    table = plain_table(f"Who was trained on? {run}, with the weights in hand")
    table.add_column("attacked")
    table.add_column("attack", no_wrap=True)
    for name in ("AUC", "limits", "at 1 %", "members"):
        table.add_column(name, no_wrap=True, justify="right")
    for who, reports in found.items():
        for name, report in reports.items():
            low, high = report.auc_interval
            power = report.power[0]
            table.add_row(
                who, name, f"{report.auc:.3f}", f"{low:.3f}-{high:.3f}",
                f"{power.found:.1%}" if power.measurable else "-", f"{report.roc.members:,}",
            )  # fmt: skip
    notes = [CURATOR, f"Kept in {kept}"]
    show(Group(table, *below(*notes)), {"attacked": results}, as_json, {})


def _kept(reports: dict[str, MembershipReport]) -> list[dict[str, Any]]:
    return [report.to_dict() | {"attack": name} for name, report in reports.items()]


@dataclass(frozen=True, eq=False)
class Suspect:
    """A model, those who may have taught it, and the attacker's own examples.

    Attributes:
        model: as it was trained.
        first: as its training began.
        candidates: members and others, as the model takes them.
        population: others that nobody asks about.
    """

    model: nn.Module
    first: nn.Module
    candidates: Candidates
    population: tuple[NDArray[Any], NDArray[np.int64]]


def student_and_teachers(
    what: Attacked, number: int, rows: int, others: int, seed: int
) -> tuple[Suspect, list[Suspect]]:
    """The student of a run, and so many of its teachers, chosen at random.

    Others are, for a teacher, rows of other teachers: a keyed hash decides, so that both sides are
    alike. For the student they are rows that nobody saw, which may differ from the members by
    more than membership.

    Args:
        what: a run of PATE.
        number: of teachers.
        rows: how many members of the student are tried.
        others: how many others are tried on each; some more are the attacker's own.
        seed: of all choices.
    """
    from sfumato.attacks.candidates import Candidates
    from sfumato.learning.pate.run_students import first_student
    from sfumato.learning.pate.run_teachers import read_run_teachers

    assert what.folder is not None
    held, generator = what.data, np.random.default_rng(seed)
    ins, labels = held.train
    outside, own = _two_sets(what, others, generator)
    read = read_run_teachers(what.folder.path, held)
    chosen = generator.permutation(len(read.parts))[:number].tolist()
    picked = np.sort(generator.permutation(len(labels))[: validation.count("rows", rows)])
    student = Suspect(
        what.target.module, first_student(what.recipe, tuple(held.shape)),
        Candidates.of(
            (what.inputs(ins[picked]), labels[picked]), (what.inputs(outside[0]), outside[1])
        ),
        (what.inputs(own[0]), own[1]),
    )  # fmt: skip
    own = read.features(own[0]), own[1]
    found: list[Suspect] = []
    for teacher in chosen:
        mine, taught = read.parts.rows_of(teacher), read.parts.teacher_of
        theirs = generator.permutation(np.flatnonzero((taught >= 0) & (taught != teacher)))[:others]
        sides = [(read.features(ins[some]), labels[some]) for some in (mine, theirs)]
        model, first = read.ensemble.module(teacher), read.beginning(teacher)
        found.append(Suspect(model, first, Candidates.of(sides[0], sides[1]), own))
    return student, found


def _two_sets(what: Attacked, others: int, generator: np.random.Generator) -> Any:
    """Rows that nobody was trained on: some to be tried, and some for the attacker."""
    from sfumato.attacks.candidates import shared_rows

    (ins, _), (outs, labels) = what.data.train, what.data.test
    fresh = np.flatnonzero(~shared_rows(outs, ins))
    size = min(validation.count("others", others), len(fresh) // 2)
    if size < 2:
        raise ValueError("a test set must be given: examples that were not trained on (--test)")
    order = generator.permutation(fresh)
    parts = order[:size], order[size : size + min(size, _POPULATION)]
    return [(outs[some], labels[some]) for some in parts]


def attack_suspects(suspects: list[Suspect], seed: int) -> dict[str, MembershipReport]:
    """Each attack on each model by itself; one report an attack, over all models.

    Half of each model's candidates are known to the attacker; the other half counts.
    """
    from sfumato.attacks.membership.reports import MembershipReport

    generator = np.random.default_rng(seed)
    each = [_attacked_alone(suspect, generator) for suspect in suspects]
    found: dict[str, MembershipReport] = {}
    for name in _ATTACKS:
        reports = [one[name] for one in each]
        found[name] = MembershipReport.from_scores(
            np.concatenate([report.scores for report in reports]),
            np.concatenate([report.members for report in reports]),
            attack=name, generator=generator,
        )  # fmt: skip
    return found


def _attacked_alone(
    suspect: Suspect, generator: np.random.Generator
) -> dict[str, MembershipReport]:
    from sfumato.attacks.membership.learned_gradients import (
        known_and_asked,
        learned_gradient_attack,
    )
    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.attacks.membership.thresholds import loss_attack
    from sfumato.attacks.targets import Target

    target = Target.of_module(suspect.model)
    known, asked = known_and_asked(suspect.candidates, generator)
    inputs = np.concatenate([asked.inputs, known.inputs])
    scores = _whitened(suspect, inputs, np.concatenate([asked.labels, known.labels]))
    columns = scores[: len(asked)], scores[len(asked) :]
    return {
        "loss": loss_attack(target, asked),
        "learned from gradients": learned_gradient_attack(target, asked, known),
        "whitened weights": MembershipReport.from_scores(columns[0][:, 0], asked.members),
        "all of it, learned": learned_gradient_attack(target, asked, known, further=columns),
    }


def _whitened(
    suspect: Suspect, inputs: NDArray[Any], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Scores by gradients at the first weights, half-way and at the last: a column each."""
    from sfumato.attacks.membership.white_box import weight_change
    from sfumato.attacks.membership.whitened import whitened_scores
    from sfumato.attacks.targets import Target

    first, last = (Target.of_module(model) for model in (suspect.first, suspect.model))
    update = weight_change(first, last)
    scores = [
        whitened_scores(
            Target.of_module(_between(suspect.first, suspect.model, share)),
            inputs, labels, update, suspect.population,
        )
        for share in _ALONG
    ]  # fmt: skip
    return np.stack(scores, axis=1)


def _between(first: nn.Module, last: nn.Module, share: float) -> nn.Module:
    """So far on the straight way from one model's weights to the other's."""
    from copy import deepcopy

    found, start = deepcopy(last), first.state_dict()
    mixed = {
        name: start[name].lerp(value, share) if value.is_floating_point() else value
        for name, value in last.state_dict().items()
    }
    found.load_state_dict(mixed)
    return found.eval()
