"""Batches of images from the gradient of a linear network, by independent component analysis.

    python benchmarks/linear_gradients.py [--batches 2 4 8] [--seeds 5]

One gradient of a linear two-layer network with ten outputs at random weights. Correlation of each
image with what is found, in the mean: with components looked for in differences of neighbouring
pixels, in pixels, and of the combinations as they are.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn

from sfumato.attacks.gradients.linear_networks import (
    combinations_from_gradient,
    matched_correlation,
    unmix,
)
from sfumato.attacks.gradients.sharing import share_gradient
from sfumato.data import load_dataset
from sfumato.learning.recipes.inputs import input_shape, inputs_of


def one(name: str, batch: int, seed: int) -> list[float]:
    """Differences, pixels, combinations as they are."""
    data, random = load_dataset(name), np.random.default_rng(seed)
    rows = random.choice(len(data.test.labels), batch, replace=False)
    images = inputs_of(data.test.inputs[rows], data.bounds).double()
    labels = torch.tensor(np.asarray(data.test.labels)[rows].astype(np.int64))
    flat = images.flatten(1)
    torch.manual_seed(seed)
    first, last = nn.Linear(flat.shape[1], 32, bias=False), nn.Linear(32, 10, bias=False)
    model = nn.Sequential(first, last).double()
    sent = share_gradient(model, flat, labels)
    mixed = combinations_from_gradient(sent.gradient["0.weight"], last.weight.detach())
    found = [
        unmix(mixed, batch, generator=random, shape=input_shape(data.shape)),
        unmix(mixed, batch, generator=random),
        mixed[:batch],
    ]
    return [float(matched_correlation(each, flat).mean()) for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description="Images from gradients of a linear network.")
    parser.add_argument("--batches", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    print("| images | batch | differences | pixels | combinations |\n|---|---:|---:|---:|---:|")
    for name in ("mnist", "cifar10"):
        for batch in given.batches:
            found = np.mean([one(name, batch, seed) for seed in range(given.seeds)], axis=0)
            print(f"| {name} | {batch} | {' | '.join(f'{value:.3f}' for value in found)} |")


if __name__ == "__main__":
    main()
