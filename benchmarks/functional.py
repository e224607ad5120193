"""The functional network over epsilon, beside a pure linear fit and DP-SGD of the same network.

    python benchmarks/functional.py                      # digits, three minutes
    python benchmarks/functional.py --data mnist --pool 4 --seeds 1 --epsilons 0.25 1 4
    python benchmarks/functional.py --figure noise.png   # noise against depth and width

Accuracy is on the public test set, the mean over seeds with its standard deviation. All are for
add-remove neighbours. Inputs are means over squares of pixels for every method but the last, which
is DP-SGD as one would run it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, load_dataset
from sfumato.learning.erm import PrivateLogisticRegression
from sfumato.learning.features import FeatureMap, transform
from sfumato.learning.functional import (
    FunctionalRecipe,
    MeanPool,
    noise_figure,
    planned,
    train_functional,
)
from sfumato.learning.recipes import Rate, Recipe
from sfumato.learning.recipes.inputs import input_shape, inputs_of
from sfumato.learning.recipes.observing import Shown
from sfumato.learning.recipes.presets import preset
from sfumato.learning.recipes.training import train

Method = Callable[[float, int, Path], float]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--pool", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=8)
    parser.add_argument("--only", nargs="*", help="Methods of these names.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--preset", action="store_true", help="DP-SGD by its preset, too: slower.")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.figure is not None:
        print(noise_figure().save(given.figure))
        return
    data, pool = load_dataset(given.data), MeanPool(given.pool)
    print("| method | weights | delta | " + " | ".join(f"{e:g}" for e in given.epsilons) + " |")
    print("|---|---|---|" + "---|" * len(given.epsilons))
    for name, weights, delta, method in methods(data, pool, given):
        if given.only is not None and name not in given.only:
            continue
        cells = [shown(method, epsilon, given.seeds) for epsilon in given.epsilons]
        print(f"| {name} | {weights} | {delta:g} | " + " | ".join(cells) + " |", flush=True)


def methods(data: Dataset, pool: FeatureMap, given: argparse.Namespace):
    """Name, weights, delta, and how to run it."""
    for hidden in ((), (given.hidden,)):
        kind = f"{given.hidden} hidden units" if hidden else "linear"
        for curvature in ("gauss-newton", "none"):
            recipe = FunctionalRecipe(1.0, hidden=hidden, features=pool, curvature=curvature)
            weights = planned(recipe, data).topology.parameters
            second = "" if curvature == "none" else ", second order"
            yield f"functional, {kind}{second}", weights, 0.0, functional(recipe, data)
    recipe = FunctionalRecipe(1.0, 1e-5, features=pool, curvature="none", clip=1.0)
    yield (
        "functional, linear, normal noise",
        weights_of(recipe, data),
        1e-5,
        functional(recipe, data),
    )
    yield "erm, linear", weights_of(recipe, data), 0.0, linear(data, pool)
    for hidden in ((), (given.hidden,)):
        kind = f"{given.hidden} hidden units" if hidden else "linear"
        weights = weights_of(FunctionalRecipe(1.0, hidden=hidden, features=pool), data)
        yield f"dp-sgd, {kind}", weights, 1e-5, descent(data, pool, hidden)
    if given.preset:
        yield "dp-sgd, preset", "", 1e-5, by_preset(data)


def weights_of(recipe: FunctionalRecipe, data: Dataset) -> int:
    return planned(recipe, data).topology.parameters


def functional(recipe: FunctionalRecipe, data: Dataset) -> Method:
    def run(epsilon: float, seed: int, out: Path) -> float:
        values = recipe.to_dict() | {"epsilon": epsilon, "seed": seed}
        made = FunctionalRecipe.from_dict(values)
        return float(train_functional(made, data, out=out, coins=SeededCoins(seed)).accuracy or 0)

    return run


def linear(data: Dataset, pool: FeatureMap) -> Method:
    """One private fit of the same pooled pixels, which are declared to be between -1 and 1."""
    parts = (data.train, data.test)
    module = pool.build(input_shape(data.shape))
    rows, test = (
        transform(module, inputs_of(one.inputs, data.bounds)).flatten(1).numpy() for one in parts
    )
    labels, wanted = (one.labels for one in parts)

    def run(epsilon: float, seed: int, out: Path) -> float:
        model = PrivateLogisticRegression(
            epsilon=epsilon, delta=0.0, classes=tuple(range(len(data.classes))), bounds=(-1, 1),
            neighbours="add-remove", public_size=data.public_size, coins=SeededCoins(seed),
        )  # fmt: skip
        return float(model.fit(rows, labels).score(test, wanted))

    return run


def descent(data: Dataset, pool: FeatureMap, hidden: tuple[int, ...]) -> Method:
    size = data.public_size or len(data.train.labels)
    model = {"model_options": {"hidden": hidden, "activation": "tanh"}} if hidden else {}

    def run(epsilon: float, seed: int, out: Path) -> float:
        recipe = Recipe(
            "mlp" if hidden else "linear", lot_size=size // 4, rate=Rate(2.0), features=pool,
            epsilon=epsilon, steps=80, seed=seed, **model,
        )  # fmt: skip
        made = train(
            recipe, data, out=out, evaluations=1, observer=Shown(False), coins=SeededCoins(seed)
        )
        return float(made.accuracy or 0)

    return run


def by_preset(data: Dataset) -> Method:
    def run(epsilon: float, seed: int, out: Path) -> float:
        recipe = preset(None, data, epsilon=epsilon)
        made = train(
            recipe, data, out=out, evaluations=1, observer=Shown(False), coins=SeededCoins(seed)
        )
        return float(made.accuracy or 0)

    return run


def shown(method: Method, epsilon: float, seeds: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        scores = [method(epsilon, seed, Path(folder) / str(seed)) for seed in range(seeds)]
    return f"{100 * np.mean(scores):.1f} ± {100 * np.std(scores):.1f}"


if __name__ == "__main__":
    main()
