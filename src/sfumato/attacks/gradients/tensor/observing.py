"""What is left to see of a gradient behind a defence: plain functions on arrays.

==================  ============================================================================
``noisy``           normal noise on every number
``clipped``         the whole gradient scaled down to a norm
``privatised``      DP-SGD: each example's gradient scaled down to a norm, noise on the sum
``dropped``         hidden units left out at random, and which ones
``pruned``          the smallest numbers set to 0
``locally_summed``  the sum of the gradients of several local steps
==================  ============================================================================

    >>> gradient = np.array([3.0, -4.0, 0.5, 0.0])
    >>> clipped(gradient, 1.0).round(2).tolist(), pruned(gradient, 0.5).tolist()
    ([0.6, -0.8, 0.1, 0.0], [3.0, -4.0, 0.0, 0.0])

These are what an attack is tried on, with coins that can be tossed again: no release. Only
``privatised`` is a mechanism with a guarantee, and that only with the noise of
:mod:`sfumato.core.randomness`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork
from sfumato.core import validation

__all__ = ["clipped", "dropped", "locally_summed", "noisy", "privatised", "pruned"]


def noisy(
    gradient: ArrayLike, multiple: float, *, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Noise of ``multiple`` times the standard deviation of the gradient's own numbers."""
    values = _numbers("gradient", gradient, 1)
    spread = validation.non_negative("multiple", multiple) * values.std()
    return values + spread * generator.normal(size=values.shape)


def clipped(gradient: ArrayLike, norm: float) -> NDArray[np.float64]:
    """The gradient times min(1, norm / |g|). Every direction in it is as before."""
    values = _numbers("gradient", gradient, 1)
    return values * _shrinking(values[None], validation.positive("norm", norm))[0]


def privatised(
    example_gradients: ArrayLike,
    norm: float,
    noise_multiplier: float,
    *,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """DP-SGD: sum_i g_i min(1, norm / |g_i|) + noise of noise_multiplier times the norm.

    Args:
        example_gradients: one a row.
        norm: to which each is clipped.
        noise_multiplier: the noise on each number, in units of the norm.
        generator: draws it.
    """
    rows = _numbers("example_gradients", example_gradients, 2)
    limit = validation.positive("norm", norm)
    spread = limit * validation.non_negative("noise_multiplier", noise_multiplier)
    total = _shrinking(rows, limit) @ rows
    return total + spread * generator.normal(size=total.shape)


def dropped(
    gradient: ArrayLike, share: float, *, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each hidden unit left out with probability ``share``, and which ones stay.

    Output weights are taken to be small, so that residuals do not change. The others are scaled by
    1 / (1 - share), as layers of dropout do. Who sees the gradient sees the mask: a unit left out
    has exactly 0. Leave its row out: taken for a value, that 0 is noise.
    """
    values = _numbers("gradient", gradient, 1)
    lost = validation.delta("share", share)
    kept = generator.random(len(values)) >= lost
    return np.where(kept, values / (1 - lost), 0.0), kept


def pruned(gradient: ArrayLike, share: float) -> NDArray[np.float64]:
    """The smallest numbers, such a share of all, set to 0."""
    values = _numbers("gradient", gradient, 1).copy()
    count = int(validation.delta("share", share) * len(values))
    values[np.argsort(np.abs(values), kind="stable")[:count]] = 0.0
    return values


def locally_summed(
    network: TwoLayerNetwork, inputs: ArrayLike, labels: ArrayLike, steps: int, rate: float
) -> NDArray[np.float64]:
    """The sum of the gradients of so many local steps on the output weights, at one rate.

    The hidden layer stays, so that the sum is sum_i (sum_t r_it) sigma(w_j.x_i): once more a
    gradient of the same inputs, with other residuals.
    """
    count, pace = validation.count("steps", steps), validation.non_negative("rate", rate)
    total, now = np.zeros(network.width), network
    for _ in range(count):
        gradient = now.gradient(inputs, labels)
        total += gradient
        now = now.with_output(now.output - pace * gradient)
    return total


def _shrinking(rows: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    sizes = np.linalg.norm(rows, axis=1)
    return norm / np.maximum(sizes, norm)


def _numbers(name: str, given: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != dimensions or values.size == 0 or not np.isfinite(values).all():
        validation.fail(name, f"finite numbers in {dimensions} dimension(s)", values.shape)
    return values
