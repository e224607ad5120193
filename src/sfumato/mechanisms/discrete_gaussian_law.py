"""The discrete Gaussian law: Pr[k] = e^(-k^2 / 2 sigma^2) / Z on the integers.

Sums over the integers are taken term by term while sigma is at most :data:`SUMMED`, with the rest
bounded from above by an integral; beyond, integrals bound them from above, by about one part in
10^4 too much. So every delta here is at least the true one.

    >>> round(standard_deviation(0.5), 4), standard_deviation(100.0)
    (0.4637, 100.0)

References: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy",
arXiv:2004.00010 (CKS).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sfumato.core.gaussian_profile import gaussian_log_delta

__all__ = [
    "SUMMED",
    "expected_magnitude",
    "log_delta",
    "log_normaliser",
    "magnitude_quantile",
    "standard_deviation",
    "zcdp_log_delta",
]

SUMMED = 2.0**16
"""The largest sigma whose sums are taken term by term."""

_DEPTH = 90.0  # terms below e^-90 of the largest are bounded together


def log_normaliser(sigma: float) -> float:
    """The logarithm of Z. By Poisson summation, Z = s sqrt(2 pi) (1 + 2 e^(-2 pi^2 s^2) + ...)."""
    if sigma >= 3:  # e^(-2 pi^2 9) < 1e-77
        return math.log(sigma) + 0.5 * math.log(2 * math.pi)
    return math.log1p(2 * float(np.sum(_weights(sigma, 64))))


def standard_deviation(sigma: float) -> float:
    """The root of E Y^2, which is sigma^2 up to a term like e^(-2 pi^2 sigma^2)."""
    if sigma >= 3:
        return sigma
    weights = _weights(sigma, 64)
    square = np.arange(1, 65, dtype=np.float64) ** 2
    return math.sqrt(2 * float(np.dot(square, weights)) * math.exp(-log_normaliser(sigma)))


def expected_magnitude(sigma: float) -> float:
    """E |Y|; for large sigma by Euler and Maclaurin, (2 sigma^2 - 1/6 - 1/120 sigma^2) / Z."""
    if sigma >= 512:
        scale = math.exp(-log_normaliser(sigma))
        return (2 * sigma * sigma - 1 / 6 - 1 / (120 * sigma * sigma)) * scale
    count = math.ceil(14 * sigma) + 64
    weights = _weights(sigma, count)
    total = 2 * float(np.dot(np.arange(1, count + 1, dtype=np.float64), weights))
    return total * math.exp(-log_normaliser(sigma))


def magnitude_quantile(sigma: float, outside: float) -> int:
    """The least whole t with Pr[|Y| > t] <= ``outside``; beyond SUMMED at most one more than it.

    Pr[|Y| > t] <= 2 e^(-t^2 / 2 sigma^2) (CKS, proposition 25) says how far to sum.
    """
    if sigma > SUMMED:  # the sum from t + 1 on is at most the integral from t on
        return math.ceil(-sigma * float(ndtri(outside / 2)) * (1 + 1e-12))
    farthest = math.ceil(sigma * math.sqrt(2 * math.log(2 / outside))) + 1
    weights = _weights(sigma, farthest + math.ceil(10 * sigma) + 2)
    above = np.cumsum(weights[::-1])[::-1]  # above[t]: the weight of t + 1, t + 2, ...
    log_goal = math.log(outside / 2) + log_normaliser(sigma)
    return int(np.argmax(above <= math.exp(log_goal) * (1 - 1e-12)))


def log_delta(sigma: float, shift: int, epsilon: float) -> float:
    """The ln(delta) at ``epsilon`` of an integer that moves by ``shift``; at least the true value.

    The privacy loss of Y against Y + shift at k is (k - x) shift / sigma^2 + epsilon, with
    x = epsilon sigma^2 / shift - shift / 2, so (CKS, theorem 7)

        delta = Pr[Y > x] - e^epsilon Pr[Y > x + shift]
              = sum over k > x of Pr[k] (1 - e^(-(k - x) shift / sigma^2)),

    in which no term is negative. Where x is just short of a whole number, delta is about to fall
    off a cliff, and the rounding of x alone would decide on which side: so x is rounded down.
    """
    threshold = epsilon * sigma * sigma / shift
    x = threshold - shift / 2 - 4 * math.ulp(max(threshold, shift / 2))
    if sigma > SUMMED:
        return _log_delta_bound(sigma, shift, epsilon, x)
    first = math.floor(x) + 1
    top = max(first, 0)  # where Pr[k] is largest
    reach = math.sqrt(2 * _DEPTH) * sigma
    last = math.ceil(math.hypot(top, reach)) + 2
    first = max(first, -math.ceil(reach) - 2)
    k = np.arange(first, last + 1, dtype=np.float64)
    decay = 0.5 / (sigma * sigma)
    relative = np.exp((top - k) * (top + k) * decay)
    total = float(np.dot(relative, -np.expm1(-np.maximum(k - x, 0.0) * (2 * shift * decay))))
    # What was left out on either side is at most the integral beyond, with 1.26 > sqrt(pi / 2).
    rest = 2.52 * sigma * math.exp(max((top - last) * (top + last) * decay, -700.0))
    return math.log(total + rest) - top * top * decay - log_normaliser(sigma)


def _log_delta_bound(sigma: float, shift: int, epsilon: float, x: float) -> float:
    """The same from above, for large sigma, where the sum is nearly an integral.

    The terms g(k) = e^(-k^2 / 2 sigma^2) (1 - e^(-(k - x) shift / sigma^2)) are a log-concave
    function of k > x, so it has one peak and its sum is at most its integral plus its peak. The
    integral over Z >= sigma sqrt(2 pi) is the delta of continuous Gaussian noise. For the peak,
    1 - e^-y <= y, and e^(-k^2 / 2 sigma^2) (k - x) is largest at k = (x + sqrt(x^2 + 4 sigma^2))/2;
    or 1 - e^-y <= 1, and the rest is largest at max(x, 0).
    """
    continuous = gaussian_log_delta(sigma / shift, epsilon)
    root = math.hypot(x, 2 * sigma)
    # (x + root) / 2, and the same less x, each without cancellation.
    peak = (x + root) / 2 if x >= 0 else 2 * sigma * sigma / (root - x)
    beyond = (root - x) / 2 if x < 0 else 2 * sigma * sigma / (root + x)
    log_peak = -0.5 * (peak / sigma) ** 2 + math.log(beyond * shift / (sigma * sigma))
    log_peak = min(log_peak, -0.5 * (max(x, 0.0) / sigma) ** 2)
    return float(np.logaddexp(continuous, log_peak - log_normaliser(sigma)))


def zcdp_log_delta(rho: float, epsilon: float) -> float:
    """The ln(delta) at ``epsilon`` of anything rho-zCDP, by the best order alpha.

    ln delta = (alpha - 1) (alpha rho - epsilon + ln(1 - 1/alpha)) - ln(alpha) holds for every
    alpha > 1 (CKS, proposition 12). It is convex, and least where its derivative
    (2 alpha - 1) rho - epsilon + ln(1 - 1/alpha) is 0.
    """
    # Solved for t = ln(alpha - 1) by bisection; whatever t it stops at is valid.
    low, high = -700.0, 700.0
    for _ in range(80):
        t = (low + high) / 2
        excess = math.exp(t)
        slope = (2 * excess + 1) * rho - epsilon - math.log1p(math.exp(-t))
        low, high = (low, t) if slope > 0 else (t, high)
    excess = math.exp(low)
    rate = (excess + 1) * rho - epsilon - math.log1p(math.exp(-low))
    return min(0.0, excess * rate - math.log1p(excess))


def _weights(sigma: float, count: int) -> NDArray[np.float64]:
    """e^(-k^2 / 2 sigma^2) for k = 1 .. ``count``."""
    k = np.arange(1, count + 1, dtype=np.float64)
    return np.exp(-0.5 * (k / sigma) ** 2)
