"""Correlated noise beside DP-SGD at equal epsilon: accuracy in one pass over MNIST, and in four.

    python benchmarks/correlated_noise.py [--epochs 1 4] [--runs 1] [--epsilons 1 3 8] [--quick]

A linear softmax on scattering features (public, computed once), lots of 512, clip norm 0.1, SGD
with momentum 0.9. Each way calibrates its own noise to the target at delta 1e-5:

- streamed (the table in its order, once an epoch, no sampling), zero-out neighbours: independent
  noise, tree aggregation, 16 bands, as many bands as an epoch has steps, 4 buffers;
- sampled, add/remove neighbours: as many bands as ``best_bands`` finds with cyclic Poisson lots,
  and Poisson DP-SGD, which is what to use where data can be sampled.

Shown are the noise on prefix sums that a strategy promises (``prefix_error``, root mean square, in
clip norms) and the test accuracy: mean over the runs, at the learning rate of a small grid that is
best for that way. The choice of the rate is not paid for: it is the same courtesy to all ways.
One epoch takes two minutes on one idle core, four epochs seven.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

import sfumato as sf

SIZE, CLIP, DELTA = 512, 0.1, 1e-5
RATES = (1.0, 3.0, 10.0)


def plans(epsilon, epochs, rows):
    """By name, the plan of each way."""
    steps = -(-rows // SIZE)
    streamed = {
        "streamed, independent": sf.IndependentNoise(),
        "streamed, tree": sf.TreeNoise(),
        "streamed, 16 bands": sf.BandedNoise(16),
        f"streamed, {steps} bands": sf.BandedNoise(steps),
        "streamed, 4 buffers": sf.BufferedNoise(4),
    }
    given = {"delta": DELTA, "epsilon": epsilon, "epochs": epochs}
    for name, correlation in streamed.items():
        yield name, sf.TrainingPlan.make(
            sf.StreamedLots(SIZE, rows), sf.Flat(CLIP), neighbours="zero-out",
            correlation=correlation, **given,
        )  # fmt: skip
    best = sf.best_bands(SIZE, rows, **given)
    yield (
        f"sampled in turns, {best.lots.groups} bands",
        sf.TrainingPlan.make(best.lots, sf.Flat(CLIP), correlation=best.correlation, **given),
    )
    yield (
        "sampled, DP-SGD",
        sf.TrainingPlan.make(sf.PoissonLots(SIZE, rows), sf.Flat(CLIP), **given),
    )


def accuracy(plan, rate, train, test):
    """Of one run."""
    torch.manual_seed(0)
    model = nn.Linear(train[0].shape[1], 10)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    trainer = sf.DPSGD(model, optimizer, train, plan=plan, progress=False)
    trainer.fit(lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
    with torch.no_grad():
        return float((model(test[0]).argmax(1) == test[1]).float().mean())


def prepared(rows):
    """Scattering features of MNIST, flattened, and labels."""
    data = sf.load_dataset("mnist")
    parts = []
    for part in (data.train, data.test):
        images = torch.as_tensor(part.inputs[:rows]).permute(0, 3, 1, 2).float() / 255
        labels = torch.as_tensor(part.labels[:rows]).long()
        features = sf.ScatteringFeatures().build(tuple(images.shape[1:]))
        with torch.no_grad():
            made = [features(batch).flatten(1) for batch in images.split(2000)]
        parts.append((torch.cat(made), labels))
    return parts


def main() -> None:
    """Trains, and prints a table for each length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 3.0, 8.0])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one run, one epoch, 10,000 rows")
    arguments = parser.parse_args()
    rows = 10_000 if arguments.quick else 60_000
    lengths, runs = ([1], 1) if arguments.quick else (arguments.epochs, arguments.runs)
    start = time.time()
    train, test = prepared(rows)
    print(f"features of {len(train[0]):,} rows: {time.time() - start:.0f} s")
    for epochs in lengths:
        print(f"\n{epochs} epoch{'s' * (epochs > 1)} of MNIST, lots of {SIZE}")
        print(f"{'':32}" + "".join(f"{f'epsilon {e:g}':>22}" for e in arguments.epsilons))
        table: dict[str, list[str]] = {}
        for epsilon in arguments.epsilons:
            for place, (name, plan) in enumerate(plans(epsilon, epochs, rows)):
                label = "sampled in turns, best bands" if place == 5 else name
                error = sf.prefix_error(plan.correlation, plan.steps, plan.noise_multiplier).mean
                found = max(
                    statistics.mean(accuracy(plan, rate, train, test) for _ in range(runs))
                    for rate in RATES
                )
                bands = f"({plan.lots.groups}) " if place == 5 else ""
                table.setdefault(label, []).append(f"{bands}{error:.2f}  {found:.2%}")
        for label, cells in table.items():
            print(f"{label:32}" + "".join(f"{cell:>22}" for cell in cells))
    print(f"\n{time.time() - start:.0f} s in all")


if __name__ == "__main__":
    main()
