"""PATE end to end on public images: three epsilons and a student's accuracy, row by row.

    python benchmarks/pate.py --data mnist --kind linear --folder /tmp/pate
    python benchmarks/pate.py --data mnist --kind pate-cnn --device cuda --half --folder /tmp/pate
    python benchmarks/pate.py --folder /tmp/pate --only "gnmax 100, fixmatch" --seeds 0 1 2
    python benchmarks/pate.py --folder /tmp/pate --table

Teachers are trained once and vote on all public inputs, the first 9,000 test images; both are kept
in the folder, and a run that was cut off goes on. Each row then draws its answers and trains its
student. Rows can be run side by side, on the same folder.

Accuracy is measured twice: on the last 1,000 test images, as in Papernot et al., arXiv:1610.05755,
on which our students' settings were chosen; and on the last training images (``--held-back``), of
which no teacher learnt and on which nothing was chosen.

Epsilons, at delta 1e-5: *for all data*, by PLD, which is what a ledger charges; *raw*, data-
dependent, by RDP, which must stay with the curator (these data are public); *published*, the data-
dependent one with noise from smooth sensitivity, its own cost included, at 99.9 % confidence. Noise
is seeded, so that rows can be had again: these are measurements, not releases.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, load_images
from sfumato.learning.pate import (
    Answering,
    AnswerPlan,
    Ballots,
    ConfidentMax,
    GaussianMax,
    LaplaceMax,
)
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.privacy import curator_view
from sfumato.learning.pate.publishing import sanitiser_for
from sfumato.learning.pate.students import accuracy_of, choose, make_student
from sfumato.learning.pate.students.spreading import public_features
from sfumato.learning.pate.teachers import (
    assign_records,
    new_salt,
    plurality,
    teacher_labels,
    teacher_recipe,
    train_teachers,
    votes_from_labels,
)
from sfumato.learning.recipes.inputs import input_shape, inputs_of

PUBLIC, DELTA = 9000, 1e-5


@dataclass(frozen=True)
class Row:
    """How answers are drawn, and who learns from them."""

    aggregator: Aggregator
    answers: int
    questions: int
    student: str
    options: dict[str, Any] = field(default_factory=dict)
    rule: str = "spread"


LONG = {"steps": 54_000, "average": 0.9999}
WIDE = {"steps": 3000, "width": 32}
ROWS = {
    "lnmax 100, gan": Row(LaplaceMax(0.05), 100, 100, "gan", LONG, "random"),
    "lnmax 1000, gan": Row(LaplaceMax(0.05), 1000, 1000, "gan", LONG, "random"),
    "confident 286, gan": Row(ConfidentMax(40, 200, 150), 286, 640, "gan", LONG, "random"),
    "gnmax 250, gan": Row(GaussianMax(40), 250, 250, "gan", LONG),
    "gnmax 50, fixmatch": Row(GaussianMax(40), 50, 50, "fixmatch"),
    "gnmax 100, fixmatch": Row(GaussianMax(40), 100, 100, "fixmatch"),
    "gnmax 250, fixmatch": Row(GaussianMax(40), 250, 250, "fixmatch"),
    "gnmax 250, wide fixmatch": Row(GaussianMax(40), 250, 250, "fixmatch", WIDE),
    "gnmax 400, wide fixmatch": Row(GaussianMax(40), 400, 400, "fixmatch", WIDE),
    "lnmax 1000, fixmatch": Row(LaplaceMax(0.05), 1000, 1000, "fixmatch"),
    "gnmax 1000, fixmatch": Row(GaussianMax(40), 1000, 1000, "fixmatch"),
    "confident 250, fixmatch": Row(ConfidentMax(60, 200, 60), 250, 400, "fixmatch"),
    "gnmax 250, supervised": Row(GaussianMax(40), 250, 250, "supervised"),
    "gnmax 1000, supervised": Row(GaussianMax(40), 1000, 1000, "supervised"),
}


@dataclass(frozen=True)
class Ground:
    """Public inputs and what stands beside them; the votes are what teachers left."""

    data: Dataset
    pool: torch.Tensor
    votes: np.ndarray
    teachers: int
    tests: dict[str, tuple[torch.Tensor, np.ndarray]]
    device: str
    folder: Path


def grounds(given: argparse.Namespace) -> Ground:
    """Trains teachers, or reads what they said."""
    said = json.loads((given.folder / "said.json").read_text()) if given.data is None else None
    if said is not None:
        given.data, given.held_back = said["data"], said["held_back"]
    data = load_images(given.data)
    kept = len(data.train.labels) - given.held_back
    public = inputs_of(data.test.inputs, data.bounds)
    tests = {"chosen on": (public[PUBLIC:], data.test.labels[PUBLIC:])}
    if given.held_back:
        fresh = inputs_of(data.train.inputs[kept:], data.bounds)
        tests["held back"] = fresh, data.train.labels[kept:]
    file = given.folder / "labels.npy"
    if not file.exists():
        taught(given, data, kept, public, file)
    labels = np.load(file)
    votes = votes_from_labels(labels[:PUBLIC], len(data.classes))
    return Ground(data, public[:PUBLIC], votes, labels.shape[1], tests, given.device, given.folder)


def taught(given, data: Dataset, kept: int, public: torch.Tensor, file: Path) -> None:
    """Teachers, and the class that each gives to each public input."""
    inputs = inputs_of(data.train.inputs[:kept], data.bounds)
    recipe = teacher_recipe(given.kind, input_shape(data.shape), len(data.classes))
    if given.steps:
        recipe = replace(recipe, schedule=replace(recipe.schedule, steps=given.steps))
    parts = assign_records(inputs.numpy(), given.teachers, new_salt(SeededCoins(0)))
    began = time.monotonic()

    def progress(done: int, total: int) -> None:
        print(f"  step {done} of {total}, {time.monotonic() - began:.0f} s", flush=True)

    teachers = train_teachers(
        recipe, inputs, data.train.labels[:kept], parts, device=given.device, half=given.half,
        together=given.together, engine=given.engine, folder=given.folder / "teachers",
        progress=progress,
    )  # fmt: skip
    trained = time.monotonic() - began
    labels = teacher_labels(teachers, public, len(data.classes))
    answered = time.monotonic() - began - trained
    right = (labels == data.test.labels[:, None]).mean(axis=0)
    votes = votes_from_labels(labels, len(data.classes))
    noisy = votes + np.random.default_rng(0).laplace(scale=20, size=votes.shape)
    said = {
        "data": given.data, "kind": given.kind, "teachers": given.teachers,
        "held_back": given.held_back, "training_s": round(trained, 1),
        "answering_s": round(answered, 1), "mean_teacher": float(right.mean()),
        "least_teacher": float(right.min()),
        "plurality": float((plurality(votes) == data.test.labels).mean()),
        "with_lap_20": float((noisy.argmax(1) == data.test.labels).mean()),
    }  # fmt: skip
    (given.folder / "said.json").write_text(json.dumps(said))
    np.save(file, labels.astype(np.uint8))
    print(json.dumps(said), flush=True)


def one(ground: Ground, name: str, seed: int) -> dict[str, Any]:
    """One row: answers, epsilons, a student."""
    row, classes = ROWS[name], len(ground.data.classes)
    plan = AnswerPlan(row.aggregator, row.answers, row.questions, DELTA)
    plain = plan.guarantee.epsilon
    if row.aggregator.kind != "lnmax":
        chosen = sanitiser_for(
            row.aggregator, row.answers, row.questions, ground.teachers, classes, DELTA
        )
        plan = replace(plan, sanitiser=chosen)
    seen = ground.pool if row.rule == "random" else public_features(ground.pool)
    asked = choose(row.rule, row.questions, seen, seed=seed)
    answering = Answering(Ballots(ground.votes), plan, coins=SeededCoins(seed))
    told = [a for a in answering.ask_all(asked.tolist()) if a.by == "teachers"]
    published = answering.publish_cost(ground.teachers)
    view = curator_view(
        answering.curator_votes(), row.aggregator, DELTA,
        answered=[a.by == "teachers" for a in answering.answers],
    )  # fmt: skip
    places = np.array([a.question for a in told])
    labels = np.array([a.label for a in told])
    right = ground.data.test.labels[places]
    student = make_student(row.student, classes=classes, **row.options)
    began = time.monotonic()
    network = student.fit(
        ground.pool, ground.pool[torch.from_numpy(places)], labels, device=ground.device,
        seed=seed, folder=ground.folder / "students" / f"{name}, {seed}",
    )  # fmt: skip
    found = {
        "row": name, "seed": seed, "answers": len(told), "questions": answering.asked,
        "for all": plain, "raw": view.curve.dependent[-1],
        "published": None if published is None else published.epsilon(DELTA),
        "right": float((labels == right).mean()), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    scores = {n: accuracy_of(network.cpu(), *test) for n, test in ground.tests.items()}
    return found | {"accuracy": scores}


def print_table(file: Path) -> None:
    """Means over seeds, and the least and most accuracy."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    print("| answers and student | answers, questions | for all data | raw | published |"
          " answers right | student, last 1,000 | student, held back | s |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for name in [n for n in ROWS if any(f["row"] == n for f in found)]:
        rows = list({f["seed"]: f for f in found if f["row"] == name}.values())
        mean = {k: statistics.mean(f[k] for f in rows) for k in ("for all", "raw", "right")}
        out = [f["published"] for f in rows if f["published"] is not None]
        published = f"{statistics.mean(out):.2f}" if out else ""
        shown = [
            accuracies([f["accuracy"].get(k) for f in rows]) for k in ("chosen on", "held back")
        ]
        asked = f"{rows[0]['answers']}, {rows[0]['questions']}"
        print(f"| {name} | {asked} | {mean['for all']:.2f} | {mean['raw']:.2f} | {published} |"
              f" {100 * mean['right']:.1f} % | {shown[0]} | {shown[1]} |"
              f" {statistics.mean(f['seconds'] for f in rows):.0f} |")  # fmt: skip


def accuracies(given: list[float | None]) -> str:
    """A mean, and the range of several."""
    known = [100 * value for value in given if value is not None]
    if not known:
        return ""
    spread = f" ({min(known):.2f} to {max(known):.2f})" if len(known) > 1 else ""
    return f"{statistics.mean(known):.2f} %{spread}"


def main() -> None:
    """Teachers if there are none yet, then rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", help="trains teachers; without it they are in the folder")
    parser.add_argument("--kind", default="linear")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--steps", type=int, help="of teachers, for a rehearsal")
    parser.add_argument("--together", type=int)
    parser.add_argument("--engine", help="of the teachers' ensemble")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--held-back", type=int, default=5000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", nargs="+", default=list(ROWS), help="names of rows", choices=ROWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--teachers-only", action="store_true")
    parser.add_argument("--table", action="store_true", help="only print what the folder holds")
    given = parser.parse_args()
    results = given.folder / "results.jsonl"
    if not given.table:
        given.folder.mkdir(parents=True, exist_ok=True)
        ground = grounds(given)
        for name in [] if given.teachers_only else given.only:
            for seed in given.seeds:
                found = one(ground, name, seed)
                with results.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(json.dumps(found), flush=True)
    if results.exists():
        print_table(results)


if __name__ == "__main__":
    main()
