"""Sums of discrete Gaussians: nearly discrete Gaussian, and how nearly.

    >>> f"{closeness(sigma=0.5, shares=2):.4f}", f"{closeness(sigma=2.0, shares=100):.1e}"
    ('0.3425', '2.9e-17')

The sum of n independent discrete Gaussians N_Z(sigma^2) is not N_Z(n sigma^2). Write P_n for its
law, G_n for the latter.

**Closeness.** |ln P_n(j) / G_n(j)| <= T for every j, with

    T = sum over k = 1 .. n-1 of ln( theta_v(0) / theta_v(1/2) ),   v = sigma^2 k / (k + 1),
    theta_v(x) = sum over integers j of e^(-(j - x)^2 / 2v),

about 4 e^(-2 pi^2 v) each. *Proof.* Completing the square, the convolution of G_k and G_1 at j is
proportional to e^(-j^2 / 2(k+1)sigma^2) theta_v(x_j) for some x_j. So its ratio to G_(k+1) is
theta_v(x_j) over a mean of such values, and theta_v is largest at 0 and least at 1/2. By induction
P_(k+1) = P_k * G_1 is as close to G_k * G_1 as P_k is to G_k, because convolution brings no two
laws further apart in this sense.

**Concentrated DP.** Vectors of whole numbers that differ by y, each coordinate with its own P_n:
the Rényi divergence of order a is at most a eps^2 / 2 with

    eps^2 = |y|_2^2 / s^2 + 4 T |y|_1 / s + 4 T^2 m,    s^2 = n sigma^2,

m the number of coordinates that differ. *Proof.* For one coordinate take the steps from P_n moved
by y to G_n moved by y to G_n to P_n. Laws whose ratio is within e^(+-T) have divergences of at most
a T^2 / 2 (Bun and Steinke, arXiv:1605.02065, proposition 1.4), the discrete Gaussian's is a y^2 /
2 s^2 (Canonne, Kamath and Steinke, arXiv:2004.00010, theorem 4), and the roots of such bounds add:
from D_a(P || R) <= k a / (k a - 1) D_((k a - 1)/(k - 1))(P || Q) + D_(k a)(Q || R), with the best
k. That gives (|y| / s + 2 T)^2; independent coordinates add, and those that do not differ give 0.
For whole y, |y|_1 <= min(sqrt(d) |y|_2, |y|_2^2) and m <= min(d, |y|_2^2).

The paper (theorem 1 of arXiv:2102.06387) has the same form with 10 sum e^(-2 pi^2 v) where 2 T
stands here, which is a little more. The tests compare both statements with sums and divergences
computed outcome by outcome. Leaving T out is wrong: at sigma = 1/2 and six shares the divergence is
more than a tenth above the Gaussian one.

Reference: Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated
learning with secure aggregation", arXiv:2102.06387.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.mechanisms.skellam_law import largest_l1

__all__ = ["closeness", "rho"]

_TERMS = 12
_MANY = 4096


def closeness(sigma: float, shares: int) -> float:
    """T: how far the logarithms of the two laws are apart at most."""
    sigma = validation.positive("sigma", sigma)
    shares = validation.count("shares", shares)
    k = np.arange(1, min(shares, _MANY), dtype=np.float64)
    gaps = _theta_gap(sigma * sigma * k / (k + 1))
    total = math.fsum(gaps.tolist())
    if shares > _MANY:  # the gap falls with v: the last one stands for all beyond
        total += (shares - _MANY) * float(gaps[-1])
    return total * (1 + 1e-12)


def rho(sigma: float, shares: int, squared_norm: int, dimension: int) -> float:
    """Eps^2 / 2 for whole vectors of ``dimension`` numbers that are so far apart, rounded up."""
    gap = closeness(sigma, shares)
    s = sigma * math.sqrt(shares)
    l1 = largest_l1(math.sqrt(squared_norm), dimension)
    moved = min(dimension, squared_norm)
    square = squared_norm / (s * s) + 4 * gap * l1 / s + 4 * gap * gap * moved
    return square / 2 * (1 + 1e-12)


def _theta_gap(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithm of theta_v(0) / theta_v(1/2), by whichever of its two series is short.

    By Poisson summation theta_v(x) is proportional to 1 + 2 sum of e^(-2 pi^2 m^2 v) cos(2 pi m x).
    """
    m = np.arange(1, _TERMS + 1, dtype=np.float64)[:, None]
    waves = np.exp(-2 * np.pi**2 * m * m * np.maximum(v, 0.1))
    wide = np.log1p(2 * waves.sum(0)) - np.log1p(2 * ((-1.0) ** m * waves).sum(0))
    narrow_v = np.minimum(v, 0.1)
    at_whole = np.log1p(2 * np.exp(-m * m / (2 * narrow_v)).sum(0))
    # e^(-1/8v) (1 + e^(-1/v) + ...), twice: from the two nearest integers on.
    others = np.exp(-((m - 0.5) ** 2 - 0.25) / (2 * narrow_v)).sum(0)
    at_half = np.log(2 * others) - 1 / (8 * narrow_v)
    return np.where(v >= 0.1, wide, at_whole - at_half)
