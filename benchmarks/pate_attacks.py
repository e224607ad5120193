"""PATE attacked and audited: a student beside the teachers it is kept from, labels beside a claim.

    python benchmarks/pate_attacks.py audits
    python benchmarks/pate_attacks.py members --kinds linear cnn-small --folder runs/attacked

"members" trains 250 teachers of each kind on the first 50,000 training images of MNIST, and a
student at epsilon 2, unless the folder holds them already. Then an attacker with all weights in
hand tells members from images that nobody was trained on (the last 10,000 of the training set, so
that both sides are alike). Half of the members and half of the others are known to the attacker,
and the other half counts. "audits" plays games with votes near a tie, one of which the adversary
moves in every question.

Tables for RESULTS.md go to standard output. Single thread: OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

import torch

from sfumato.cli.attacked import attacked
from sfumato.cli.audit_pate import (
    audit_answers,
    audit_law,
    audit_pate_run,
    audit_student,
    telling_votes,
    worst_votes,
)
from sfumato.cli.main import main as sfumato
from sfumato.cli.teachers import attack_suspects, student_and_teachers
from sfumato.learning.pate import AnswerPlan
from sfumato.learning.pate.named import aggregator_called
from sfumato.learning.pate.privacy import least_noise
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
    """Labels by law and as played, and the student, beside the claim."""
    print("| aggregator | answers | claimed | labels, by law | labels, played | student |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, epsilon, answers in PLANS:
        plan = plan_of(name, epsilon, answers)
        tables = telling_votes(plan, TEACHERS)
        law = audit_law(plan, worst_votes(plan, TEACHERS))
        games = max(400, given.draws // answers)
        played = audit_answers(plan, tables, games=games)
        taught = audit_student(plan, tables, games=given.students) if epsilon > 4 else None
        shown = [f"{one.epsilon:.2f}" if one else "" for one in (law, played, taught)]
        assert not any(one and one.refuted for one in (law, played, taught))
        cells = [name, f"{answers}", f"{plan.guarantee.epsilon:.2f}", *shown]
        print("| " + " | ".join(cells) + " |", flush=True)


def trained(kind: str, folder: Path) -> Path:
    """A finished run, made if there is none."""
    out = folder / kind
    if not RunFolder(out).finished:
        command = f"train pate --data mnist --rows {ROWS} --kind {kind} --epsilon 2 --out {out}"
        with contextlib.suppress(SystemExit):
            sfumato(command.split())
    return out


def members(given: argparse.Namespace) -> None:
    """Attacks on students and teachers, and audits of the runs' own answers."""
    print("| attacked | attack | AUC | 95 % | found at 1 % false alarms | members |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in given.kinds:
        out, began = trained(kind, given.folder), time.monotonic()
        what = attacked(out, None, None, None, None, False)
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
        found = audit_pate_run(RunFolder(out), given.games, 0.95, None)
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
    parser.add_argument("--rows", type=int, default=4000, help="members of the student")
    parser.add_argument("--others", type=int, default=2000)
    parser.add_argument("--games", type=int, default=400, help="with a run's own votes")
    parser.add_argument("--draws", type=int, default=100_000, help="answers of all games")
    parser.add_argument("--students", type=int, default=400, help="trained for one audit")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    {"audits": audits, "members": members}[given.what](given)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """The module's text as it is."""


if __name__ == "__main__":
    main()
