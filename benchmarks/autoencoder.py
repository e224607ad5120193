"""Private auto-encoders over epsilon: reconstruction error and accuracy of a classifier of codes.

    OMP_NUM_THREADS=1 python benchmarks/autoencoder.py --data digits
    OMP_NUM_THREADS=1 python benchmarks/autoencoder.py --data mnist --epsilons 1 8 --repeats 1

Both ways have the same guarantee, the same widths and the same head with the same share of the
budget. Settings were chosen on these public data sets, by a handful of runs each. Errors are means
over test rows of squared differences, inputs in [0, 1]; where there are several runs, of their
means.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sfumato.data import Dataset, load_dataset
from sfumato.learning.autoencoder import AutoEncoderRecipe, train_autoencoder

# Of descent: what a handful of runs found best, from small epsilons to large ones.
DESCENT: dict[str, list[tuple[float, dict[str, Any]]]] = {
    "mnist": [
        (4.0, {"rate": 0.03, "epochs": 5, "lot_size": 1024}),
        (1e9, {"rate": 0.05, "epochs": 8, "lot_size": 1024}),
    ],
    "digits": [
        (4.0, {"rate": 0.06, "epochs": 40, "lot_size": 512}),
        (1e9, {"rate": 0.03, "epochs": 80, "lot_size": 256}),
    ],
}
WIDTHS = {"mnist": (25,), "digits": (16,), "labsup": (4,)}


def recipes(data: str, epsilon: float) -> dict[str, AutoEncoderRecipe]:
    """What is compared at one epsilon; the pure one has the same epsilon and delta 0."""
    widths = WIDTHS.get(data, (25,))
    settings = DESCENT.get(data, DESCENT["mnist"])
    best = next(chosen for most, chosen in settings if epsilon <= most)
    common: dict[str, Any] = {"widths": widths, "epsilon": epsilon, "origin": f"{data}, public"}
    return {
        "functional": AutoEncoderRecipe(**common),
        "dp-sgd": AutoEncoderRecipe(way="dp-sgd", **best, **common),
        "functional, pure": AutoEncoderRecipe(delta=0.0, **common),
    }


def measured(recipe: AutoEncoderRecipe, data: Dataset, repeats: int) -> dict[str, float]:
    """Means over runs, with coins of the operating system."""
    errors, accuracies, seconds, mean = [], [], [], 0.0
    for _ in range(repeats):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            made = train_autoencoder(recipe, data, out=Path(folder) / "run")
        seconds.append(time.monotonic() - begun)
        assert made.errors is not None
        assert made.accuracy is not None
        errors.append(made.errors.mean_squared)
        accuracies.append(made.accuracy)
        mean = made.errors.of_the_mean
    return {
        "error": statistics.fmean(errors),
        "error_of_the_mean": mean,
        "accuracy": statistics.fmean(accuracies),
        "seconds": statistics.fmean(seconds),
    }


def main() -> None:
    """One line of JSON for each run's recipe and results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0, 8.0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", nargs="+", default=None)
    said = parser.parse_args()
    data = load_dataset(said.data)
    for epsilon in said.epsilons:
        for name, recipe in recipes(said.data, epsilon).items():
            if said.ways is None or name in said.ways:
                found = measured(recipe, data, said.repeats)
                line = {"data": said.data, "epsilon": epsilon, "way": name} | found
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
