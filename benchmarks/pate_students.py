"""How good a student gets from a few labels, some of them wrong: MNIST, without any teachers.

    python benchmarks/pate_students.py --student fixmatch --labels 100 --noise 0.02
    python benchmarks/pate_students.py --student gan --labels 100 --seeds 0 1 2
    python benchmarks/pate_students.py --student supervised --set features=scattering

The public part is the first 9,000 test images, as in Papernot et al., arXiv:1610.05755; accuracy is
that on the last 1,000. Labels are true but for a share that is replaced by another class at random,
in the place of teachers' wrong answers. "pool" is the accuracy on the 9,000, of whose labels the
student saw only those it asked for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch

from sfumato.data import load_dataset
from sfumato.learning.features import ScatteringFeatures, transform
from sfumato.learning.pate.students import (
    accuracy_of,
    choose,
    describe_student,
    make_student,
    student_names,
)

PUBLIC = 9000


def answers(labels: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """The labels, a share of them replaced by another class at random."""
    coins, found = np.random.default_rng(seed), labels.copy()
    wrong = coins.permutation(len(found))[: round(noise * len(found))]
    found[wrong] = (found[wrong] + coins.integers(1, 10, len(wrong))) % 10
    return found


def asked(given: argparse.Namespace, public: torch.Tensor, seed: int) -> torch.Tensor:
    """Numbers of the images that are labelled."""
    rows = public
    if given.select != "random" and given.on == "scattering":
        rows = transform(ScatteringFeatures().build((1, 28, 28)), public)
    return choose(given.select, given.labels, rows, seed=seed)


def one(given: argparse.Namespace, images: torch.Tensor, labels: np.ndarray, seed: int) -> float:
    """A student of one seed; returns its accuracy."""
    student = make_student(given.student, **options(given))
    public = images[:PUBLIC]
    rows = asked(given, public, seed)
    told = answers(labels[rows.numpy()], given.noise, seed)
    began = time.monotonic()

    def progress(done: int, total: int) -> None:
        if done % 250 == 0:
            print(f"  {done} of {total}, {time.monotonic() - began:.0f} s", file=sys.stderr)

    folder = None if given.folder is None else f"{given.folder}/{seed}"
    network = student.fit(
        public, public[rows], told, folder=folder, progress=progress, device=given.device, seed=seed
    )
    seconds = time.monotonic() - began
    last = accuracy_of(network, images[PUBLIC:], labels[PUBLIC:])
    pool = accuracy_of(network, public, labels[:PUBLIC])
    print(f"| {seed} | {100 * last:.1f} % | {100 * pool:.2f} % | {seconds:.0f} |", flush=True)
    return last


def options(given: argparse.Namespace) -> dict[str, object]:
    """A student's settings from the command line."""
    found: dict[str, object] = {} if given.steps is None else {"steps": given.steps}
    for text in given.set:
        name, _, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def main() -> None:
    """One line a seed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--student", choices=student_names(), default="fixmatch")
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--noise", type=float, default=0.02, help="share of wrong labels")
    parser.add_argument("--steps", type=int, help="of training; the student's own by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument(
        "--select", choices=("random", "spread", "centres", "typical"), default="random"
    )
    parser.add_argument("--on", choices=("pixels", "scattering"), default="scattering")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", help="for checkpoints; a run that was cut off goes on")
    given = parser.parse_args()
    data = load_dataset("mnist").test
    images = torch.from_numpy(np.moveaxis(data.inputs, -1, 1).astype(np.float32) / 255)
    print(describe_student(given.student).partition(";")[0])
    print(make_student(given.student, **options(given)).to_dict())
    print(
        f"{given.labels} labels ({given.select}), {given.noise:.0%} wrong; {given.device}, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}\n"
    )
    print("| seed | last 1,000 | pool | seconds |\n|---:|---:|---:|---:|", flush=True)
    found = [one(given, images, data.labels, seed) for seed in given.seeds]
    print(f"\nmean {100 * statistics.mean(found):.2f} %, least {100 * min(found):.1f} %")


if __name__ == "__main__":
    main()
