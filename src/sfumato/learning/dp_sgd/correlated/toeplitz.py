"""Strategies whose columns are one sequence shifted: lower-triangular Toeplitz matrices.

C has c_0, c_1, ... below its diagonal, all of them 0 or above. It is the power series
c(x) = c_0 + c_1 x + ..., and matrices multiply as series do:

    C^-1          1 / c(x)
    A             1 / (1 - x)                  prefix sums, ones on and below the diagonal
    B = A C^-1    1 / ((1 - x) c(x))           what fresh noise does to prefix sums
    A^(1/2)       (1 - x)^(-1/2)               coefficients binom(2k, k) / 4^k

The noise of the t-th prefix sum has the variance sum over s <= t of b_s^2, so

    mean over t of it = sum_s (1 - s/T) b_s^2,        the largest = sum_s b_s^2,

each for fresh noise of variance 1 over columns of norm 1: (sum_k c_k^2) times as much if not.

    >>> square_root(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    >>> round(column_norm(square_root(4)), 4)
    1.22

References: Fichtenberger, Henzinger and Upadhyay, arXiv:2202.11205 (the square root);
Choquette-Choo et al., arXiv:2306.08153, and McKenna, arXiv:2405.15913 (banded matrices, and the
Toeplitz ones of least error); Kalinin and Lampert, arXiv:2405.13763 (banded square roots).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "best_banded",
    "column_norm",
    "inverse",
    "matrix",
    "prefix_variances",
    "repeated_norm",
    "square_root",
]

Series = NDArray[np.float64]

_LONGEST = 4096  # steps that coefficients are chosen for; for longer runs they hardly change
_MOST_ROUNDS = 500


def square_root(count: int) -> Series:
    """The first coefficients of A^(1/2), binom(2k, k) / 4^k, each from the one before."""
    k = np.arange(1, count, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])


def column_norm(coefficients: Series) -> float:
    """The norm of the longest column, which is the first."""
    return float(np.sqrt(np.square(coefficients).sum()))


def repeated_norm(coefficients: Series, count: int, separation: int, steps: int) -> float:
    """The norm of the sum of ``count`` columns, the first and then each ``separation`` later.

    That is ||C 1_S||, S = {0, p, 2p, ...}. No other place of one unit moves C x by more: entries
    are not negative, so equal contributions add up most (Choquette-Choo et al., arXiv:2211.06530),
    and starting a step later only cuts the products of columns,
    (C^T C)_{s+1, t+1} <= (C^T C)_{s, t}.
    """
    total, first = np.zeros(steps), coefficients[:steps]
    for start in range(0, min(count * separation, steps), separation):
        room = min(len(first), steps - start)
        total[start : start + room] += first[:room]
    return column_norm(total)


def inverse(coefficients: Series, steps: int) -> Series:
    """The first coefficients of 1 / c(x)."""
    return _divided(_impulse(steps), coefficients)


def prefix_variances(coefficients: Series, steps: int) -> Series:
    """For each prefix sum the variance of its noise, for fresh noise of variance 1."""
    return np.cumsum(np.square(_on_prefixes(coefficients, steps)))


def matrix(coefficients: Series, steps: int) -> Series:
    """C itself."""
    padded = np.zeros(steps)
    padded[: len(coefficients)] = coefficients[:steps]
    distance = np.subtract.outer(np.arange(steps), np.arange(steps))
    return np.where(distance >= 0, padded[np.abs(distance)], 0.0)


@lru_cache(maxsize=256)
def best_banded(bands: int, steps: int) -> tuple[float, ...]:
    """c_0 = 1, c_1, ... c_(bands - 1) with about the least mean error of prefix sums.

    Minimised is the mean variance over all prefix sums times the square of the column norm. The
    square root's first coefficients are where the search begins. Whatever it finds is a valid
    strategy: its sensitivity is computed from it.

    Args:
        bands: how many coefficients.
        steps: how many prefix sums; longer runs use those of 4,096 (or eight times the bands).
    """
    from scipy.optimize import minimize  # loaded here: it takes long to import

    count = min(bands, steps)
    length = min(steps, max(_LONGEST, 8 * count))
    if count == 1:
        return (1.0,)
    found = minimize(
        _mean_error, square_root(count)[1:], args=(length,), jac=True, method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * (count - 1), options={"maxiter": _MOST_ROUNDS},
    )  # fmt: skip
    # Falling coefficients have all roots outside the unit circle (Enestrom and Kakeya): in a run of
    # any length the noise stays bounded.
    falling = np.minimum.accumulate(np.clip(found.x, 0.0, 1.0))
    return (1.0, *falling.tolist())


def _mean_error(rest: Series, steps: int) -> tuple[float, Series]:
    """Log of the mean error for c = (1, rest), and its gradient.

    A change of c_j changes b(x) by -x^j b(x) / c(x).
    """
    c = np.concatenate([[1.0], rest])
    b = _on_prefixes(c, steps)
    weighted = (1 - np.arange(steps) / steps) * b
    size, error = float(c @ c), float(weighted @ b)
    moved = _divided(b, c)
    slopes = np.array([weighted[j:] @ moved[: steps - j] for j in range(1, len(c))])
    return np.log(size) + np.log(error), 2 * rest / size - 2 * slopes / error


def _on_prefixes(coefficients: Series, steps: int) -> Series:
    """b(x) = 1 / ((1 - x) c(x))."""
    return np.cumsum(inverse(coefficients, steps))


def _impulse(steps: int) -> Series:
    return np.eye(1, steps)[0]


def _divided(series: Series, by: Series) -> Series:
    """The quotient of two series, as many coefficients as the first has."""
    from scipy.signal import lfilter  # likewise

    return np.asarray(lfilter([1.0], by[: len(series)], series), np.float64)
