"""Incomes as private labels, told through bins: errors at each epsilon, beside no privacy and erm.

    python benchmarks/label_numbers.py
    python benchmarks/label_numbers.py --epsilons 1 --runs 3

The US census of 2000: the logarithm of the weekly income from years of education and of work, every
fifth row to test on. Coins are the operating system's, as in a release. A minute on one core.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.core.neighbours import Neighbours
from sfumato.data import Column, Dataset, Examples, Features, load_table
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.training import train_erm
from sfumato.learning.label_dp import number_preset, train_label_dp

BOUNDS = (4.0, 9.0)
DECLARED = Features(
    (
        Column("educ", lower=0, upper=20),
        Column("exper", lower=0, upper=60),
        Column("expersq", lower=0, upper=3600),
    ),
    "lweekinc",
    label_bounds=BOUNDS,
)
WAYS: dict[str, dict[str, Any]] = {
    "least squares": {}, "with a network": {"network": "mlp"},
    "even guess": {"histogram_share": 0.0},
}  # fmt: skip


def incomes() -> Dataset:
    """Four fifths to train on, one to test on."""
    table = load_table("census2000")
    columns = {name: table[name].to_numpy() for name in DECLARED.names}
    inputs, labels = DECLARED.inputs(columns, len(table)), DECLARED.labels(columns["lweekinc"])
    fifth = np.arange(len(table)) % 5 == 4
    train, test = (Examples(inputs[part], labels[part]) for part in (~fifth, fifth))
    return Dataset(
        "incomes", train, test, (), DECLARED.shape, DECLARED.bounds, "census2000",
        public_size=len(train.labels), test_is_public=True, target_bounds=BOUNDS,
    )  # fmt: skip


def without_privacy(data: Dataset) -> NumberErrors:
    """Least squares of the true labels."""
    rows, more = (
        np.column_stack([part.inputs, np.ones(len(part.labels))])
        for part in (data.train, data.test)
    )
    found = np.linalg.lstsq(rows, data.train.labels, rcond=None)[0]
    return NumberErrors.of(more @ found, data.test.labels, BOUNDS)


def by_bins(
    data: Dataset, epsilon: float, changes: dict[str, Any], out: Path
) -> NumberErrors | None:
    """Each label told once; inputs are public."""
    return train_label_dp(number_preset(data, epsilon, **changes), data, out=out).errors


def by_erm(data: Dataset, epsilon: float, out: Path) -> NumberErrors | None:
    """One noisy fit for replacing a record, at delta 1e-5."""
    recipe = ErmRecipe("regression", epsilon=epsilon, neighbours=Neighbours.REPLACE_ONE)
    return train_erm(recipe, data, out=out, declared=DECLARED).errors


def mean_error(train: Callable[[Path], NumberErrors | None], runs: int) -> str:
    """The mean of so many runs, the least and the greatest."""
    found: list[float] = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            errors = train(Path(folder) / "run")
            assert errors is not None
            found.append(errors.root_mean_squared)
    return f"{statistics.mean(found):.4f} ({min(found):.4f} to {max(found):.4f})"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="Errors with numbers as private labels.")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1, 3])
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args()
    data = incomes()
    plain = without_privacy(data)
    print(f"without privacy {plain.root_mean_squared:.4f}, R squared {plain.r_squared:.3f}")
    print(f"the mean of the test rows {data.test.labels.std():.4f}")
    print("| epsilon | " + " | ".join([*WAYS, "erm, of records"]) + " |")
    for epsilon in asked.epsilons:
        ways = [
            *(partial(by_bins, data, epsilon, more) for more in WAYS.values()),
            partial(by_erm, data, epsilon),
        ]
        cells = [mean_error(way, asked.runs) for way in ways]
        print(f"| {epsilon:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
