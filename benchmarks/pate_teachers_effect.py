"""More teachers, more privacy, less accuracy: measured on MNIST with real teachers.

    python benchmarks/pate_teachers_effect.py --out runs/pate-teachers --plot docs/pate-teachers.png

For each number of teachers, 60,000 rows are dealt to them, they are trained and vote on all 10,000
test images. Votes are kept in the folder, so that the table can be made in pieces: what is there
is not trained again. From the votes follow a teacher's accuracy, the plurality's, that of noisy
answers at a fixed epsilon, and the epsilon that is reached with as much noise as the votes bear.
``--agreement`` prints how far teachers agreed, the table that plans assume by default.

All figures are measured on public data, with a fixed salt. Of private data they are the curator's.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.core.randomness import SeededCoins
from sfumato.data import load_images
from sfumato.learning.pate.privacy import TeachersEffect, teachers_effect
from sfumato.learning.pate.teachers import (
    assign_records,
    new_salt,
    teacher_labels,
    teacher_recipe,
    train_teachers,
    votes_from_labels,
)
from sfumato.learning.recipes.inputs import input_shape, inputs_of
from sfumato.plots import plot

TEACHERS = (10, 25, 50, 100, 250, 500, 1000)


def vote(name: str, kind: str, teachers: int, out: Path) -> None:
    """Trains so many teachers and keeps their votes on the test set, unless they are there."""
    file = out / f"{name}-{kind}-{teachers}.npz"
    if file.exists():
        return
    data = load_images(name)
    inputs = inputs_of(data.train.inputs, data.bounds)
    recipe = teacher_recipe(kind, input_shape(data.shape), len(data.classes))
    parts = assign_records(inputs.numpy(), teachers, new_salt(SeededCoins(0)))
    began = time.monotonic()
    labels = torch.from_numpy(data.train.labels)
    trained = train_teachers(recipe, inputs, labels, parts, folder=out / file.stem)
    found = teacher_labels(trained, inputs_of(data.test.inputs, data.bounds), recipe.classes)
    each = (found == data.test.labels[:, None]).mean()
    seconds = time.monotonic() - began
    np.savez(
        file, votes=votes_from_labels(found, recipe.classes), right=data.test.labels, each=each,
        rows=len(inputs), seconds=seconds,
    )  # fmt: skip
    print(json.dumps({"teachers": teachers, "mean": each, "seconds": seconds}), flush=True)


def effects(files: list[Path], answers: int) -> list[TeachersEffect]:
    """Both effects, from votes that were kept."""
    found = []
    for file in files:
        with np.load(file) as held:
            one = teachers_effect(held["votes"], held["right"], float(held["each"]),
                                  answers=answers)  # fmt: skip
        print(json.dumps(one.to_dict()), flush=True)
        found.append(one)
    return found


def table(found: list[TeachersEffect]) -> str:
    """As Markdown."""
    spent = "".join(f" at epsilon {epsilon:g} |" for epsilon, _ in found[0].at_epsilon)
    lines = [
        f"| teachers | one teacher | plurality |{spent} most noise | epsilon | for these votes |",
        "|---" * (6 + len(found[0].at_epsilon)) + "|",
    ]
    for one in found:
        noisy = "".join(f" {accuracy:.2%} |" for _, accuracy in one.at_epsilon)
        lines.append(
            f"| {one.teachers:,} | {one.mean_teacher:.2%} | {one.plurality:.2%} |{noisy} "
            f"{one.noise:.3g} | {one.epsilon:.3g} | {one.epsilon_dependent:.3g} |"
        )
    return "\n".join(lines)


def agreement_table(files: list[Path], kinds: int = 10) -> str:
    """By rows of a teacher: shares of the first and second class, how often the first is right."""
    lines = []
    for file in files:
        with np.load(file) as held:
            votes, right, rows = held["votes"], held["right"], int(held["rows"])
        lines.append(f"    {rows // int(votes[0].sum())}: {shares(votes, right, kinds)},")
    return "\n".join(lines)


def shares(votes: NDArray[np.int64], right: NDArray[np.int64], kinds: int) -> tuple[Any, ...]:
    """In thousandths, for each of so many equal parts of the questions, by agreement."""
    ordered = -np.sort(-votes, axis=1) / votes[0].sum()
    correct = noiseless(votes, right)
    parts = np.array_split(np.lexsort((-ordered[:, 1], ordered[:, 0])), kinds)
    columns = ordered[:, 0], ordered[:, 1], correct
    return tuple(tuple(round(1000 * float(c[part].mean())) for part in parts) for c in columns)


def noiseless(votes: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Whether the plurality is right; a tie counts by halves, thirds ..."""
    first = votes == votes.max(axis=1, keepdims=True)
    return first[np.arange(len(votes)), right] / first.sum(axis=1)


def main() -> None:
    """Trains what is missing, then prints the table and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/pate-teachers"))
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--kind", default="linear")
    parser.add_argument("--teachers", type=int, nargs="*", default=list(TEACHERS))
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--agreement", action="store_true", help="print how far they agree, only")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for teachers in given.teachers:
        vote(given.data, given.kind, teachers, given.out)
    files = [given.out / f"{given.data}-{given.kind}-{n}.npz" for n in given.teachers]
    if given.agreement:
        print(agreement_table(files))
        return
    found = effects(files, given.answers)
    print(table(found))
    if given.plot:
        title = f"More teachers, more privacy, less accuracy ({given.data.upper()})"
        plot(found, title=title).save(given.plot)


if __name__ == "__main__":
    main()
