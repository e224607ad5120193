"""PATE attacked and audited: a student beside the teachers it is kept from, labels beside a claim.

    python benchmarks/pate_attacks.py audits
    python benchmarks/pate_attacks.py members --kinds linear cnn-small --folder runs/attacked

"members" trains 250 teachers of each kind on 50,000 training images of MNIST, and a student at
epsilon 2, unless the folder holds them already. Then an attacker with all weights in hand tells
members from others. Of a teacher, others are rows of other teachers, by a keyed hash; of the
student, the 10,000 training images that were left out. These are chosen at random: the last 10,000
are a little easier than the rest, and an attack of some power takes that for membership. Half of
the members and half of the others are known to the attacker, and the other half counts.
"audits" plays games with votes near a tie, one of which the adversary moves in every question, and
games that test each noise with many votes moved.

Tables for RESULTS.md go to standard output. Single thread: OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sfumato.attacks.targets import Target
from sfumato.cli.attacked import Attacked
from sfumato.cli.audit_pate import (
    audit_answers,
    audit_law,
    audit_pate_run,
    audit_student,
    telling_votes,
    worst_votes,
)
from sfumato.cli.audit_pate_noise import audit_noise
from sfumato.cli.teachers import attack_suspects, student_and_teachers
from sfumato.data import Dataset, Examples, load_dataset
from sfumato.data.first_rows import first_rows
from sfumato.learning.pate import AnswerPlan
from sfumato.learning.pate.named import aggregator_called
from sfumato.learning.pate.privacy import least_noise
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.students import make_student
from sfumato.learning.pate.training import train_pate
from sfumato.learning.recipes.loading import load_run
from sfumato.learning.runs import RunFolder

ROWS, TEACHERS, DELTA = 50_000, 250, 1e-5
PLANS = (  # aggregator, epsilon, answers
    ("gnmax", 2.0, 1), ("gnmax", 2.0, 10), ("gnmax", 2.0, 250), ("gnmax", 8.0, 10),
    ("lnmax", 2.0, 10), ("confident", 2.0, 10), ("interactive", 2.0, 10),
)  # fmt: skip


def plan_of(name: str, epsilon: float, answers: int) -> AnswerPlan:
    """With the least noise."""
    noise = least_noise(
        lambda x: aggregator_called(name, x, TEACHERS), answers, epsilon, DELTA, questions=answers
    )
    return AnswerPlan(aggregator_called(name, noise, TEACHERS), answers, answers, DELTA)


def audits(given: argparse.Namespace) -> None:
    """Labels by law and as played, the student and the noise, beside the claim."""
    print(
        "| aggregator | answers | claimed | labels, by law | labels, played | student | "
        "noise found below | noise, as of epsilon |"
    )
    print("| --- " * 8 + "|")
    for name, epsilon, answers in PLANS:
        plan = plan_of(name, epsilon, answers)
        tables = telling_votes(plan, TEACHERS)
        law = audit_law(plan, worst_votes(plan, TEACHERS))
        games = max(400, given.draws // answers)
        played = audit_answers(plan, tables, games=games)
        taught = audit_student(plan, tables, games=given.students) if epsilon > 4 else None
        noise = audit_noise(plan, games=given.noise_games).values()
        shown = [f"{one.epsilon:.2f}" if one else "" for one in (law, played, taught)]
        assert not any(one and one.refuted for one in (law, played, taught, *noise))
        below = ", ".join(f"{one.game.refutes_below:.0%} ({one.game.name})" for one in noise)
        as_of = ", ".join(f"{one.as_of_epsilon:.2f}" for one in noise)
        cells = [name, f"{answers}", f"{plan.guarantee.epsilon:.2f}", *shown, below, as_of]
        print("| " + " | ".join(cells) + " |", flush=True)


def shuffled() -> Dataset:
    """MNIST, its training rows in random order."""
    data = load_dataset("mnist")
    order = np.random.default_rng(0).permutation(len(data.train.labels))
    return replace(data, train=Examples(*(part[order] for part in data.train)))


def trained(kind: str, folder: Path) -> Attacked:
    """A finished run, made if there is none, and those who were left out."""
    whole, out = shuffled(), folder / kind
    data = first_rows(whole, ROWS)
    if not RunFolder(out).finished:
        recipe = PateRecipe(plan_of("gnmax", 2.0, 250), make_student("fixmatch"), TEACHERS, kind)
        train_pate(recipe, data, out=out, resume=RunFolder(out).begun)
    run = load_run(out)
    others = Examples(*(part[ROWS:] for part in whole.train))
    target = Target.of_module(run.model, str(out))
    return Attacked(target, replace(data, test=others), run.claim, run.folder, run.recipe)


def members(given: argparse.Namespace) -> None:
    """Attacks on students and teachers, and audits of the runs' own answers."""
    print("| attacked | attack | AUC | 95 % | found at 1 % false alarms | members |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in given.kinds:
        what, began = trained(kind, given.folder), time.monotonic()
        student, some = student_and_teachers(
            what, given.teachers, given.rows, given.others, given.seed
        )
        for who, suspects in ((f"student of {kind}", [student]), (f"one {kind} teacher", some)):
            for name, report in attack_suspects(suspects, given.seed).items():
                low, high = report.auc_interval
                power = f"{report.power[0].found:.1%}" if report.power[0].measurable else "-"
                cells = [
                    who, name, f"{report.auc:.3f}", f"{low:.3f} to {high:.3f}", power,
                    f"{report.roc.members:,}",
                ]  # fmt: skip
                print("| " + " | ".join(cells) + " |", flush=True)
        found = audit_pate_run(RunFolder(given.folder / kind), given.games, 0.95, None)
        print(
            f"\n{kind}: the run's own answers show at least epsilon {found.epsilon:.3f} "
            f"(by law {found.facts['epsilon_by_law']:.3f}) of {found.claim}; "
            f"{time.monotonic() - began:.0f} s\n",
            flush=True,
        )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Plain)
    parser.add_argument("what", choices=("audits", "members"))
    parser.add_argument("--kinds", nargs="+", default=["linear", "cnn-small"])
    parser.add_argument("--folder", type=Path, default=Path("runs/attacked"))
    parser.add_argument("--teachers", type=int, default=10, help="attacked, one by one")
    parser.add_argument("--rows", type=int, default=8000, help="members of the student")
    parser.add_argument("--others", type=int, default=4000)
    parser.add_argument("--games", type=int, default=400, help="with a run's own votes")
    parser.add_argument("--draws", type=int, default=100_000, help="answers of all games")
    parser.add_argument("--noise-games", type=int, default=10_000, help="for each noise")
    parser.add_argument("--students", type=int, default=400, help="trained for one audit")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    {"audits": audits, "members": members}[given.what](given)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The module's text as it is."""


if __name__ == "__main__":
    main()
