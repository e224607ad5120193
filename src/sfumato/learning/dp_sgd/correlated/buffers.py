"""Toeplitz strategies with few buffers: coefficients that are sums of falling powers.

    c_0 = 1,    c_k = sum over j of omega_j theta_j^(k - 1),    omega_j >= 0,  0 <= theta_j < 1.

C y = z is solved with one buffer for each j: S_j = sum over i < t of theta_j^(t-1-i) y_i gives

    y_t = z_t - sum_j omega_j S_j,      then  S_j <- theta_j S_j + y_t,

so that noise as good as the square root's takes the memory of a handful of steps, however long the
run is.

References: Dvijotham et al., arXiv:2404.16706, and McMahan, Xu and Zhang, arXiv:2408.08868
("buffered linear Toeplitz").
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sfumato.learning.dp_sgd.correlated.toeplitz import Series, prefix_variances

__all__ = ["Buffers", "best_buffers", "bounded", "coefficients", "in_single_precision"]

Buffers = tuple[tuple[float, ...], tuple[float, ...]]
"""(theta_j), (omega_j)."""

_LONGEST = 1 << 14
_MOST_ROUNDS = 1000


def coefficients(buffers: Buffers, steps: int) -> Series:
    """c_0, c_1, ..."""
    theta, omega = (np.array(part) for part in buffers)
    powers = theta[None, :] ** np.arange(max(0, steps - 1))[:, None]
    return np.concatenate([[1.0], powers @ omega])[:steps]


@lru_cache(maxsize=64)
def best_buffers(count: int, steps: int) -> Buffers:
    """At most so many buffers with about the least mean error of ``steps`` prefix sums.

    The square root's coefficients are an integral over falling powers; the search begins at that
    integral's coarse sum. Fewer buffers are returned where more were not found to be better.
    Whatever it finds is a valid strategy.
    """
    from scipy.optimize import minimize  # loaded here: it takes long to import

    length = min(max(steps, 2), _LONGEST)
    # Times from one step to the whole run: theta = 1 - 1 / time.
    times = np.geomspace(1.5, max(2.0, length / 2), count + 2)[1:-1]
    theta, omega = 1 - 1 / times, 0.4 * times**-0.5
    omega *= min(1.0, 0.9 / _sum_at_the_edge(theta, omega))
    found = minimize(
        _mean_error, np.concatenate([np.log(times - 1), np.log(omega)]), args=(length,), jac=True,
        method="L-BFGS-B", bounds=[(-20.0, 20.0)] * (2 * count), options={"maxiter": _MOST_ROUNDS},
    )  # fmt: skip
    theta, omega = _unpacked(found.x)
    omega *= min(1.0, 0.999 / _sum_at_the_edge(theta, omega))
    chosen = in_single_precision((tuple(theta.tolist()), tuple(omega.tolist())))
    if count == 1:
        return chosen
    return min(best_buffers(count - 1, steps), chosen, key=lambda each: _error(each, length))


def in_single_precision(buffers: Buffers) -> Buffers:
    """The nearest numbers that noise of either precision is drawn with; theta stays below 1."""
    theta, omega = (np.array(part, np.float32) for part in buffers)
    theta = np.minimum(theta, np.nextafter(np.float32(1), np.float32(0)))
    return tuple(theta.tolist()), tuple(omega.tolist())


def bounded(buffers: Buffers) -> bool:
    """Whether noise stays bounded in a run of any length.

    Roots of c beyond 1 in 1/x would let it grow without end; there are none below this sum.
    """
    theta, omega = (np.array(part) for part in buffers)
    return _sum_at_the_edge(theta, omega) < 1


def _sum_at_the_edge(theta: Series, omega: Series) -> float:
    """1 - c(-1)."""
    return float((omega / (1 + theta)).sum())


def _error(buffers: Buffers, steps: int) -> float:
    """The mean error by plain division, which many powers close to 1 do not upset."""
    c = coefficients(buffers, steps)
    return float(c @ c * prefix_variances(c, steps).mean())


def _unpacked(x: Series) -> tuple[Series, Series]:
    rate, omega = x[: len(x) // 2], np.exp(x[len(x) // 2 :])
    return 1 / (1 + np.exp(-rate)), omega


def _mean_error(x: Series, steps: int) -> tuple[float, Series]:
    """Log of the mean error, and its gradient; as for banded coefficients, all of them at once."""
    theta, omega = _unpacked(x)
    c = coefficients((tuple(theta), tuple(omega)), steps)
    if _sum_at_the_edge(theta, omega) >= 1:  # see above: too far, come back
        return np.inf, np.zeros_like(x)
    inverse = _reciprocal(theta, omega, steps)
    b = np.cumsum(inverse)
    weighted = (1 - np.arange(steps) / steps) * b
    size, error = float(c @ c), float(weighted @ b)
    moved = _product(b, inverse)
    slopes = _product(weighted[::-1], moved)[::-1]  # sum over s of weighted_s moved_(s - k)
    slope = (2 * c / size - 2 * slopes / error)[1:]
    k = np.arange(steps - 1)
    powers = theta[None, :] ** k[:, None]
    lower = k[:, None] * theta[None, :] ** np.maximum(k - 1, 0)[:, None]
    by_omega = slope @ powers * omega
    by_theta = slope @ lower * omega * theta * (1 - theta)
    return np.log(size) + np.log(error), np.concatenate([by_theta, by_omega])


def _reciprocal(theta: Series, omega: Series, steps: int) -> Series:
    """1 / c(x), c a quotient of two polynomials of the number of buffers' degree."""
    from scipy.signal import lfilter  # likewise

    below = np.poly(theta)  # product of (1 - theta_j x)
    above = below.copy()
    for j, weight in enumerate(omega):
        above[1:] += weight * np.poly(np.delete(theta, j))
    return np.asarray(lfilter(below, above, np.eye(1, steps)[0]), np.float64)


def _product(one: Series, two: Series) -> NDArray[np.float64]:
    from scipy.signal import fftconvolve

    return np.asarray(fftconvolve(one, two)[: len(one)], np.float64)
