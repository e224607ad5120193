"""Linear networks: "only a linear combination" of the examples, and what can be had from it.

For a linear two-layer network f(x) = A W x, whose gradients a lecture gives as an example of data
that are safe without noise (Lei, 2024, section 4.4), both blocks of a gradient are made of

    S = sum_i r_i x_i^T,        dL/dA = S W^T,   dL/dW = A^T S,

with r_i the derivative of example i's loss by the outputs (K numbers). So an update tells S: K
linear combinations of the examples, K = 1 in the lecture.

- **One example**: S has rank 1 and its rows are x up to scale; with a bias, exactly
  (:mod:`.first_layer`). That is the whole example, not a combination.
- **Several examples** that take part in B or more combinations (K outputs, or the gradients of
  some rounds with the same examples at different weights): S = R X with a matrix R of rank B. Rows
  of X are pictures, and what differs between neighbouring pixels is far from normal and nearly
  independent of other pictures', so that :func:`unmix` finds them, up to order, sign and scale, by
  independent component analysis: R is estimated from differences, which are mixed by the same R,
  and undone on the pictures themselves.
- One combination of several examples remains one. It is no guarantee either: who knows all but one
  example knows that one.

    >>> random = np.random.default_rng(0)
    >>> sources = random.uniform(-1, 1, (3, 4000)) ** 3
    >>> found = unmix(random.standard_normal((5, 3)) @ sources, 3, generator=random)
    >>> bool(matched_correlation(found, sources).min() > 0.99)
    True

Reference: Hyvärinen, "Fast and robust fixed-point algorithms for independent component analysis",
IEEE Transactions on Neural Networks 10(3) (1999); its symmetric form, with log cosh.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.inversion.results import checked_shape
from sfumato.core import validation

__all__ = ["combinations_from_gradient", "matched_correlation", "unmix"]

_ENOUGH = 1e-9  # change of a direction from which on the search is over


def combinations_from_gradient(
    gradient_hidden: ArrayLike, output_weights: ArrayLike
) -> NDArray[np.float64]:
    """S, (K, d), from dL/dW = A^T S, by least squares.

    Args:
        gradient_hidden: dL/dW, (m, d).
        output_weights: A, (K, m), public; m at least K.
    """
    g, a = (np.asarray(each, dtype=np.float64) for each in (gradient_hidden, output_weights))
    if a.ndim != 2 or g.ndim != 2 or a.shape[1] != len(g):
        validation.fail("output_weights", f"a matrix of {len(g)} columns", a.shape)
    return np.asarray(np.linalg.lstsq(a.T, g, rcond=None)[0], dtype=np.float64)


def unmix(
    combinations: ArrayLike,
    sources: int,
    *,
    generator: np.random.Generator,
    shape: Sequence[int] | None = None,
    iterations: int = 500,
    trials: int = 5,
) -> NDArray[np.float64]:
    """Independent components of some linear combinations.

    Args:
        combinations: (K, d), K at least the number of sources.
        sources: B, how many there are.
        generator: of the random starts.
        shape: of a picture, rows and columns last, if that is what sources are: components are then
            looked for in differences of neighbouring pixels.
        iterations: at most.
        trials: random starts, of which the least Gaussian result is kept.

    Returns:
        (B, d), each with mean 0 and variance 1; order and signs are arbitrary.
    """
    mixed = np.asarray(combinations, dtype=np.float64)
    count = validation.count("sources", sources)
    if mixed.ndim != 2 or min(mixed.shape) < count:
        validation.fail("combinations", f"at least {count} of {count} numbers or more", mixed.shape)
    signals = mixed if shape is None else _differences(mixed, checked_shape(shape))
    to_white = _whitening(signals, count)
    white = to_white @ (signals - signals.mean(axis=1, keepdims=True))
    found = [
        _unmixing(white, generator, validation.count("iterations", iterations))
        for _ in range(validation.count("trials", trials))
    ]
    best = max(found, key=lambda turn: _surprise(turn @ white))
    pictures = best @ to_white @ mixed
    pictures = pictures - pictures.mean(axis=1, keepdims=True)
    return pictures / np.maximum(pictures.std(axis=1, keepdims=True), 1e-300)


def matched_correlation(found: ArrayLike, sources: ArrayLike) -> NDArray[np.float64]:
    """The correlation, without its sign, of each source with the component that suits it best."""
    from scipy.optimize import linear_sum_assignment

    a, b = (np.asarray(each, dtype=np.float64) for each in (found, sources))
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    alike = np.abs(np.corrcoef(b, a)[: len(b), len(b) :])
    _, order = linear_sum_assignment(-np.nan_to_num(alike))
    return alike[np.arange(len(b)), order]


def _differences(mixed: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Of neighbouring pixels, down and to the right, of each combination."""
    if int(np.prod(shape)) != mixed.shape[1]:
        validation.fail("shape", f"that of {mixed.shape[1]} pixels", shape)
    images = mixed.reshape(len(mixed), *shape)
    parts = [np.diff(images, axis=axis).reshape(len(mixed), -1) for axis in (-1, -2)]
    return np.concatenate(parts, axis=1)


def _whitening(signals: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """(B, K): makes the strongest directions uncorrelated, each of variance 1."""
    centred = signals - signals.mean(axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    scale = np.sqrt(signals.shape[1]) / np.maximum(sizes[:count], 1e-300)
    return scale[:, None] * left[:, :count].T


def _unmixing(
    white: NDArray[np.float64], generator: np.random.Generator, iterations: int
) -> NDArray[np.float64]:
    """W <- E[g(W x) x^T] - diag(E g'(W x)) W, orthonormal again after each step; g = tanh."""
    count, length = white.shape
    turn = _orthonormal(generator.standard_normal((count, count)))
    for _ in range(iterations):
        bent = np.tanh(turn @ white)
        slope = (1 - bent**2).mean(axis=1, keepdims=True)
        moved = _orthonormal(bent @ white.T / length - slope * turn)
        change = np.max(np.abs(np.abs(np.sum(moved * turn, axis=1)) - 1))
        turn = moved
        if change < _ENOUGH:
            break
    return turn


def _orthonormal(turn: NDArray[np.float64]) -> NDArray[np.float64]:
    """(W W^T)^(-1/2) W."""
    left, _, right = np.linalg.svd(turn)
    return left @ right


def _surprise(components: NDArray[np.float64]) -> float:
    """How far from normal they are together: sum of (E log cosh - its value for a normal)^2."""
    normal = 0.37457  # E log cosh z for a standard normal z
    return float(np.square(np.log(np.cosh(components)).mean(axis=1) - normal).sum())
