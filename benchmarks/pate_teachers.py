"""Teachers of PATE measured: accuracy, agreement, seconds, and a serial loop beside them.

    python benchmarks/pate_teachers.py --data mnist --teachers 250 --kind linear
    python benchmarks/pate_teachers.py --data mnist --teachers 250 --kind linear --serial 10
    python benchmarks/pate_teachers.py --kind pate-cnn --device cuda --half --steps 20 --profile

The serial loop is what one would write: a model, torch.optim, batches from a tensor, one teacher
after the other, on the same features, with the same schedule; its seconds are for as many teachers
as were asked for, from the few that were timed. Features are computed once in both, and timed too.

All figures are measured on public data, with a fixed salt. Of private data they are the curator's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.data import load_images
from sfumato.learning.features import transform
from sfumato.learning.pate.teachers import (
    Parts,
    TeacherRecipe,
    agreement,
    assign_records,
    new_salt,
    plurality,
    teacher_labels,
    teacher_recipe,
    train_teachers,
    votes_from_labels,
)
from sfumato.learning.pate.teachers.laying import FiniteFeatures
from sfumato.learning.recipes.inputs import input_shape, inputs_of


def one_by_one(
    recipe: TeacherRecipe,
    inputs: Tensor,
    labels: Tensor,
    parts: Parts,
    some: int,
    device: str,
    half: bool,
) -> tuple[float, float]:
    """Seconds a teacher for features and for training; on a GPU, of one that is warm."""
    if device.startswith("cuda"):
        _ = one_teacher(recipe, inputs[:256].to(device), labels[:256].to(device), 50, half)
    features, schedule = FiniteFeatures(recipe.prepare), recipe.schedule
    preparing = training = 0.0
    for number in np.flatnonzero(parts.sizes())[:some].tolist():
        own = torch.from_numpy(parts.rows_of(number))
        began = time.monotonic()
        rows, wanted = transform(features, inputs[own]).to(device), labels[own].to(device)
        preparing += time.monotonic() - began
        training += one_teacher(recipe, rows, wanted, schedule.steps, half)
    return preparing / some, training / some


def one_teacher(
    recipe: TeacherRecipe, rows: Tensor, wanted: Tensor, steps: int, half: bool
) -> float:
    """Seconds of the loop that one would write."""
    began, schedule = time.monotonic(), recipe.schedule
    kind = rows.device.type
    model = recipe.make().to(rows.device)
    optimizer = torch.optim.SGD(
        model.parameters(), schedule.rate, schedule.momentum, weight_decay=schedule.weight_decay
    )
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = schedule.rate_at(step)
        batch = torch.randint(len(rows), (schedule.batch_size,), device=rows.device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, torch.bfloat16, half):
            loss = F.cross_entropy(model(rows[batch]), wanted[batch])
        loss.backward()
        optimizer.step()
    if kind == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began


@contextmanager
def profiled(wanted: bool) -> Iterator[None]:
    """Prints the kernels that took most, if asked to."""
    if not wanted:
        yield
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        yield
    print(found.key_averages().table("cuda_time_total", row_limit=25, max_name_column_width=90))


def report(labels: np.ndarray, right: np.ndarray, classes: int, scale: float) -> None:
    """Accuracies and agreement on the test set."""
    each = (labels == right[:, None]).mean(axis=0)
    votes = votes_from_labels(labels, classes)
    noise = np.random.default_rng(0).laplace(scale=scale, size=votes.shape)
    shares = np.quantile(agreement(votes), [0.01, 0.05, 0.1, 0.25, 0.5])
    print(f"mean teacher   {100 * each.mean():.2f} % ({100 * each.min():.2f} to "
          f"{100 * each.max():.2f})")  # fmt: skip
    print(f"plurality      {100 * (plurality(votes) == right).mean():.2f} %")
    print(f"with Lap({scale:g})   {100 * ((votes + noise).argmax(1) == right).mean():.2f} %")
    print("agreement      " + ", ".join(
        f"{100 * share:.1f} % at the {name} percentile"
        for share, name in zip(shares, ("1st", "5th", "10th", "25th", "50th"), strict=True)
    ))  # fmt: skip


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--kind", default="linear")
    parser.add_argument("--rows", type=int, help="of the training set; all by default")
    parser.add_argument("--queries", type=int, help="of the test set; all by default")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--together", type=int)
    parser.add_argument("--engine")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where a GPU's time goes")
    parser.add_argument("--scale", type=float, default=20.0, help="of the Laplace noise")
    parser.add_argument("--serial", type=int, default=0, help="teachers to train one by one")
    given = parser.parse_args()
    data = load_images(given.data)
    inputs = inputs_of(data.train.inputs[: given.rows], data.bounds)
    labels = torch.from_numpy(data.train.labels[: given.rows])
    queries = inputs_of(data.test.inputs[: given.queries], data.bounds)
    right = data.test.labels[: given.queries]
    recipe = teacher_recipe(given.kind, input_shape(data.shape), len(data.classes))
    chosen = {
        "steps": given.steps, "batch_size": given.batch, "rate": given.rate,
        "weight_decay": given.weight_decay,
    }  # fmt: skip
    chosen = {name: value for name, value in chosen.items() if value is not None}
    recipe = replace(recipe, schedule=replace(recipe.schedule, **chosen))
    parts = assign_records(inputs.numpy(), given.teachers, new_salt(SeededCoins(0)))
    print(f"{given.teachers} {given.kind} teachers on {given.data}, {len(inputs)} rows")
    print(f"{given.device}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    print(f"{recipe.schedule}")
    began = time.monotonic()
    with profiled(given.profile):
        teachers = train_teachers(
            recipe, inputs, labels, parts, device=given.device, half=given.half,
            together=given.together, engine=given.engine,
        )  # fmt: skip
    if given.device.startswith("cuda"):
        torch.cuda.synchronize()
    print(f"training       {time.monotonic() - began:.1f} s, features included")
    began = time.monotonic()
    found = teacher_labels(teachers, queries, recipe.classes)
    print(f"answering      {time.monotonic() - began:.1f} s for {len(queries)} queries")
    report(found, right, recipe.classes, given.scale)
    if given.serial:
        preparing, training = one_by_one(
            recipe, inputs, labels, parts, given.serial, given.device, given.half
        )
        total = (preparing + training) * given.teachers
        print(f"one by one     {total:.1f} s for {given.teachers}: {preparing:.3f} + "
              f"{training:.3f} s a teacher, {given.serial} timed")  # fmt: skip


if __name__ == "__main__":
    main()
