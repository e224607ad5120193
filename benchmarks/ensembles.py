"""Many models as one against a loop over models, side by side, on the same rows.

    python benchmarks/ensembles.py --models 16                       # two cores
    python benchmarks/ensembles.py --models 64 --device cuda --half  # a GPU

The loop is what one would write: a model, torch.optim.SGD, batches from a tensor on the device.
Both see the same number of batches of the same size; images are random, since time does not ask.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.ensembles import Schedule, half_each, train_ensemble
from sfumato.learning.models import make_model


def small_cnn(width: int) -> nn.Module:
    """Three convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * width, 10),
    )  # fmt: skip


MODELS = {
    "mlp, 784-100-10": (lambda: make_model("mlp", (1, 28, 28), 10, hidden=100), (1, 28, 28)),
    "cnn of 26,010 weights": (lambda: make_model("cnn", (1, 28, 28), 10), (1, 28, 28)),
    "small cnn, width 16": (lambda: small_cnn(16), (3, 32, 32)),
    "small cnn, width 32": (lambda: small_cnn(32), (3, 32, 32)),
    "small cnn, width 64": (lambda: small_cnn(64), (3, 32, 32)),
}


def one_by_one(make, inputs, labels, subsets, schedule: Schedule, device: str, half: bool) -> None:
    """A plain loop over models."""
    for rows in torch.as_tensor(subsets, device=device):
        model = make().to(device)
        optimizer = torch.optim.SGD(
            model.parameters(), schedule.rate, schedule.momentum, weight_decay=5e-4
        )
        own = rows.nonzero().squeeze(1)
        for _ in range(schedule.epochs):
            for batch in own[torch.randperm(len(own), device=device)].split(schedule.batch_size):
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device, torch.bfloat16, half):
                    loss = F.cross_entropy(model(inputs[batch]), labels[batch])
                loss.backward()
                optimizer.step()


def timed(work, device: str) -> float:
    """Seconds, with everything done that was started."""
    began = time.monotonic()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began


def main() -> None:
    """One line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    schedule = Schedule(epochs=given.epochs, batch_size=given.batch, rate=0.05)
    subsets = half_each(given.models, 2 * given.rows, seed=0)
    print(f"{given.models} models, {given.rows} rows each, {given.epochs} epochs, {given.device}")
    print(f"torch {torch.__version__}, {'bfloat16' if given.half else 'float32'}\n")
    print("| model | one by one, s | as one, s | times faster |")
    print("|---|---:|---:|---:|")
    for name, (make, shape) in MODELS.items():
        if given.only not in name:
            continue
        loop, together = timed_both(make, shape, subsets, schedule, given)
        ratio = statistics.median(a / b for a, b in zip(loop, together, strict=True))
        print(
            f"| {name} | {statistics.median(loop):.2f} | {statistics.median(together):.2f} | "
            f"{ratio:.1f} |",
            flush=True,
        )


def timed_both(make, shape, subsets, schedule, given) -> tuple[list[float], list[float]]:
    """Seconds of both ways, in turns; the first turn warms up."""
    device, half = given.device, given.half
    inputs = torch.rand(2 * given.rows, *shape, device=device)
    labels = torch.randint(10, (2 * given.rows,), device=device)

    def apart() -> None:
        one_by_one(make, inputs, labels, subsets, schedule, device, half)

    def as_one() -> None:
        train_ensemble(
            make, inputs, labels, subsets, schedule, device=device, half=half, engine=given.engine
        )

    turns = [(timed(apart, device), timed(as_one, device)) for _ in range(given.repeats + 1)]
    return [a for a, _ in turns[1:]], [b for _, b in turns[1:]]


if __name__ == "__main__":
    main()
