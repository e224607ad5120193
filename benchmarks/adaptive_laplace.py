"""The adaptive Laplace mechanism and relevance before DP-SGD: accuracy at each epsilon.

    python benchmarks/adaptive_laplace.py noisy --data digits --pools 1 2 --epsilons 3 10 30 100
    python benchmarks/adaptive_laplace.py noisy --data mnist --pools 1 4 --epsilons 1 3 10 30
    python benchmarks/adaptive_laplace.py noisy --data mnist --pools 4 --model mlp --seeds 1
    python benchmarks/adaptive_laplace.py dp-sgd --data digits --epsilons 0.5 1 2

"noisy" tells every record once and learns from that, with equal shares of inputs and with shares by
relevance (a public network that nobody trained). "dp-sgd" trains a network with and without inputs
scaled by relevance, at the same epsilon in all. Noise is drawn by the operating system's coins, as
in a release; means and standard deviations over ``--seeds`` runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from sfumato.data import Dataset, load_dataset
from sfumato.learning.adaptive_laplace import AdaptiveLaplaceRecipe, train_adaptive_laplace
from sfumato.learning.features import FeatureMap, Plain
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.learning.relevance.scaling import RelevanceScaling


def shown(found: list[float]) -> str:
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    return f"{100 * statistics.mean(found):5.1f} +/- {100 * spread:.1f} %"


def noisy(data: Dataset, asked: argparse.Namespace) -> None:
    """Rows of the table of noisy records."""
    for pool in asked.pools:
        for epsilon in asked.epsilons:
            for share in (0.0, asked.share):
                found: list[float] = []
                for seed in range(asked.seeds):
                    recipe = AdaptiveLaplaceRecipe(
                        epsilon, relevance_share=share, pool=pool, model=asked.model, seed=seed
                    )
                    with tempfile.TemporaryDirectory() as place:
                        out = Path(place) / "run"
                        found.append(train_adaptive_laplace(recipe, data, out=out).accuracy or 0)
                what = f"pool {pool}, epsilon {epsilon:g}, for relevance {share:g}"
                print(f"{data.name} {asked.model}, {what}: {shown(found)}", flush=True)


def dp_sgd(data: Dataset, asked: argparse.Namespace) -> None:
    """Rows of the table of DP-SGD."""
    size = len(data.train.labels)
    for epsilon in asked.epsilons:
        for noise in (None, *asked.noises):
            found: list[float] = []
            for seed in range(asked.seeds):
                features: FeatureMap = Plain()
                if noise is not None:
                    features = RelevanceScaling(noise / epsilon)
                recipe = Recipe(
                    "mlp", lot_size=min(512, size // 4), rate=Rate(asked.rate), epsilon=epsilon,
                    epochs=asked.epochs, seed=seed, model_options={"hidden": 100},
                    features=features,
                )  # fmt: skip
                found.append(train(recipe, data, evaluations=0).accuracy or 0)
            what = "no relevance" if noise is None else f"noise on relevance {noise:g} / epsilon"
            print(f"{data.name} dp-sgd, epsilon {epsilon:g}, {what}: {shown(found)}", flush=True)


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("noisy", "dp-sgd"))
    parser.add_argument("--data", default="digits")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[3, 10, 30])
    parser.add_argument("--pools", type=int, nargs="+", default=[1])
    parser.add_argument("--share", type=float, default=0.02)
    parser.add_argument("--model", default="centroids")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--noises", type=float, nargs="+", default=[10.0, 50.0])
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--rate", type=float, default=0.5)
    asked = parser.parse_args()
    data = load_dataset(asked.data)
    noisy(data, asked) if asked.what == "noisy" else dp_sgd(data, asked)


if __name__ == "__main__":
    main()
