"""Specimens: one step of DP-SGD, done right and with one fault each.

Every function takes the gradients of one lot, one row an example, and gives ``count`` independent
outputs of the step, as an auditor who repeats it would see them. ``noise`` is the noise multiplier,
``clip`` the norm C to which gradients are clipped, ``lot`` the public lot size.

Noise is drawn exactly and seen through a public grid, so that an audit finds the fault it is shown
and not the low bits of doubles: those have a claim of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins
from sfumato.mechanisms.sampling import add_gaussian

__all__ = [
    "clip_each",
    "clip_the_batch",
    "masked_sum",
    "masks_in_order",
    "mean_of_the_batch",
    "noise_for_the_mean",
    "noise_of_the_workers",
    "one_noise_for_all",
    "right",
]

Gradients = NDArray[np.float64]
"""One row an example."""
Outputs = NDArray[np.float64]
"""One row a repetition."""

_GRID = 2.0**-24


def clip_each(gradients: Gradients, clip: float) -> Gradients:
    """Every row g as g / max(1, |g| / C)."""
    norms = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return gradients / np.maximum(1.0, norms / clip)


def right(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float, lot: int
) -> Outputs:
    """(sum of clipped gradients + N(0, (noise C)^2)) / lot, with a public lot size.

    One example moves the sum by C at most: the noise multiplier is ``noise``.
    """
    total = clip_each(gradients, clip).sum(axis=0)
    return _seen(total / lot, noise * clip / lot, count, coins)


def mean_of_the_batch(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float
) -> Outputs:
    """Fault: divides by the number of examples there happen to be.

    Where the others' gradients are C and one's is -C, the mean moves by 2C / n, with noise of
    noise C / n: the multiplier is about half of ``noise``.
    """
    total = clip_each(gradients, clip).sum(axis=0)
    return _seen(total / len(gradients), noise * clip / len(gradients), count, coins)


def clip_the_batch(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float
) -> Outputs:
    """Fault: averages first and clips the average.

    One example can turn a vector of length C around: it moves by 2C, the multiplier is half.
    """
    clipped = clip_each(gradients.mean(axis=0), clip)
    return _seen(clipped, noise * clip, count, coins)


def noise_of_the_workers(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float, workers: int
) -> Outputs:
    """Fault: each of k workers adds noise of standard deviation noise C / k to its own part.

    Variances add, not deviations: the sum has noise C / sqrt k. (noise C / sqrt k each is right.)
    """
    parts = np.array_split(clip_each(gradients, clip), workers)
    noisy = [_seen(part.sum(axis=0), noise * clip / workers, count, coins) for part in parts]
    return np.sum(noisy, axis=0)


def noise_for_the_mean(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float, lot: int
) -> Outputs:
    """Fault: the noise of a mean, noise C / lot, on a sum."""
    total = clip_each(gradients, clip).sum(axis=0)
    return _seen(total, noise * clip / lot, count, coins)


def one_noise_for_all(
    gradients: Gradients, count: int, coins: Coins, noise: float, clip: float
) -> Outputs:
    """Fault: the same random key, hence the same noise, for every parameter.

    The difference of two parameters has no noise at all.
    """
    total = clip_each(gradients, clip).sum(axis=0)
    return total + _seen(np.zeros(1), noise * clip, count, coins)


def masked_sum(gradients: Gradients, kept: NDArray[np.bool_], clip: float) -> NDArray[np.float64]:
    """The sum of clipped gradients of weights behind Dropout(0.5), before noise.

    Row i of ``kept`` says which inputs of row i stay; those are doubled. The fault is not here: it
    is in who else has the masks.
    """
    return clip_each(2 * gradients * kept, clip).sum(axis=0)


def masks_in_order(rows: int, width: int, seed: int) -> NDArray[np.bool_]:
    """Fault: the masks of a batch, one row after another, from a generator with a known seed.

    One row more at the front, and every later row gets the mask of its neighbour.
    """
    return np.random.default_rng(seed).random((rows, width)) < 0.5


def _seen(centre: NDArray[np.float64], deviation: float, count: int, coins: Coins) -> Outputs:
    """``count`` times the centre with fresh Gaussian noise."""
    return add_gaussian(np.tile(centre, (count, 1)), deviation, _GRID, coins)
