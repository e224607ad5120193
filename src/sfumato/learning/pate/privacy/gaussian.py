"""GNMax: argmax_j n_j + N(0, sigma^2). What an answer costs, for all votes and for these.

One unit lies in one teacher's part, so a neighbour step moves one vote: two counts by 1, an L2
distance of sqrt 2. The answer is post-processing of the noisy counts, hence, whatever the votes,

    RDP(alpha) = alpha / sigma^2.

Where the teachers agree, less is said. With Delta_j how far class j lies behind the first, the
probability of an answer other than the first class is at most

    q = sum_j erfc(Delta_j / (2 sigma)) / 2,

and with mu_2 = sigma sqrt(ln 1/q), mu_1 = mu_2 + 1, eps_i = mu_i / sigma^2,

    RDP(alpha) <= ln((1 - q) A^(alpha - 1) + q B^(alpha - 1)) / (alpha - 1),
    A = (1 - q) / (1 - (q e^eps_2)^(1 - 1/mu_2)),   B = e^eps_1 q^(-1 / (mu_1 - 1)),

provided mu_2 > 1, alpha <= mu_1 and q <= e^((mu_2 - 1) eps_2) / (mu_1 mu_2 / ((mu_1 - 1)(mu_2 -
1)))^mu_2. Elsewhere, and wherever it is less, alpha / sigma^2 stands.

What is bounded is D_alpha(answer on these votes || answer on any neighbour's). The other direction
is not: a neighbour of very certain votes may be less certain, and with little noise D_alpha(
neighbour || these) is then larger (votes 10, 2, 0, sigma = 1, order 2: 0.016, where the bound is
0.00014), though never above alpha / sigma^2. So the data-dependent number speaks of the data at
hand and of nothing else, and it is **private itself**: it stays with the curator unless released by
:mod:`~sfumato.learning.pate.privacy.smooth`.

Noise on a grid. The aggregator rounds noisy counts to a public grid and lets the first of equals
win. Rounding moves each of two counts by at most half a step, so class j can win only if its noise
makes up for Delta_j less one step: q is computed with Delta_j - grid. The rest is post-processing.

Reference: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", arXiv:1802.08908, theorem 6 and propositions 7, 8 and 10.

    >>> votes = [180, 30, 20, 10, 10, 0, 0, 0, 0, 0]
    >>> gaussian_log_q(votes, sigma=40).round(4)
    array([-4.3697])
    >>> gaussian_rdp(votes, sigma=40, orders=[10]).round(5), gaussian_independent(40, [10])
    (array([[0.00355]]), array([0.00625]))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from sfumato.core import validation
from sfumato.learning.pate.privacy.votes import Floats, as_grid, as_orders, gaps

__all__ = [
    "gaussian_bound",
    "gaussian_independent",
    "gaussian_log_q",
    "gaussian_rdp",
    "gaussian_winning",
]

_SMALLEST_LOG = -1e12
"""A smaller ln q counts as this one."""


def gaussian_log_q(votes: ArrayLike, sigma: float, *, grid: float | None = None) -> Floats:
    """The ln of a bound on Pr[the answer is not the first class], for each question.

    Args:
        votes: (questions, classes) counts. Private, and so is the result.
        sigma: the noise's standard deviation.
        grid: the public grid of the noisy counts; the samplers' own by default, 0 for none.
    """
    sigma = validation.positive("sigma", sigma)
    behind = gaps(votes) - as_grid(grid, sigma)
    return np.minimum(special.logsumexp(log_beaten(behind, sigma), axis=1), 0.0)


def log_beaten(behind: Floats, sigma: float) -> Floats:
    """The ln of Pr[N(0, 2 sigma^2) >= behind] = erfc(behind / (2 sigma)) / 2, without underflow."""
    return special.log_ndtr(-behind / (sigma * math.sqrt(2)))


def gaussian_independent(sigma: float, orders: Sequence[float] | Floats) -> Floats:
    """What one answer costs, whatever the votes: alpha / sigma^2."""
    return as_orders(orders) / validation.positive("sigma", sigma) ** 2


def gaussian_rdp(
    votes: ArrayLike,
    sigma: float,
    orders: Sequence[float] | Floats,
    *,
    grid: float | None = None,
) -> Floats:
    """(questions, orders): the data-dependent RDP of each answer. Private.

    Args:
        votes: (questions, classes) counts.
        sigma: the noise's standard deviation.
        orders: the RDP orders.
        grid: as for :func:`gaussian_log_q`.
    """
    return gaussian_bound(gaussian_log_q(votes, sigma, grid=grid), sigma, orders)


def gaussian_bound(log_q: ArrayLike, sigma: float, orders: Sequence[float] | Floats) -> Floats:
    """(..., orders): theorem 6 where it applies, and never more than alpha / sigma^2.

    Args:
        log_q: ln of a bound on the probability of all outcomes but one.
        sigma: the mechanism has RDP mu / sigma^2 at every order mu.
        orders: the RDP orders.
    """
    alpha = as_orders(orders)
    independent = gaussian_independent(sigma, alpha)
    logs = np.clip(np.asarray(log_q, dtype=np.float64), _SMALLEST_LOG, 0.0)[..., None]
    mu = sigma * np.sqrt(-logs)  # mu_2; mu_1 = mu + 1
    met = _conditions(logs, mu, sigma)
    # Where the theorem does not apply its formula may not even make sense: any q serves there.
    some = np.where(met, logs, -1e4 / sigma**2 - 1e4)
    dependent = _theorem_6(some, sigma * np.sqrt(-some), sigma, alpha)
    return np.where(met & (alpha <= mu + 1), np.minimum(dependent, independent), independent)


def _conditions(log_q: Floats, mu: Floats, sigma: float) -> NDArray[np.bool_]:
    """mu_2 > 1 and ln q <= (mu_2 - 1) eps_2 - mu_2 ln(mu_1 mu_2 / ((mu_1 - 1)(mu_2 - 1)))."""
    above = np.maximum(mu, 1 + 1e-9)
    ratio = np.log1p(1 / above) + np.log1p(1 / (above - 1))
    return (mu > 1 + 1e-9) & (log_q <= (mu - 1) * mu / sigma**2 - above * ratio)


def _theorem_6(log_q: Floats, mu: Floats, sigma: float, alpha: Floats) -> Floats:
    """ln(1 + x) / (alpha - 1) with x small: no digits of a small cost are lost."""
    less = alpha - 1
    log_rest = np.log1p(-np.exp(log_q))
    log_moved = (log_q + mu / sigma**2) * (1 - 1 / mu)
    log_first = log_rest + less * (log_rest - np.log1p(-np.exp(log_moved)))
    log_second = log_q + less * ((mu + 1) / sigma**2 - log_q / mu)
    with np.errstate(over="ignore"):
        exact = np.log1p(np.maximum(np.expm1(log_first) + np.exp(log_second), 0.0))
    return np.where(log_second > 500, np.logaddexp(log_first, log_second), exact) / less


def gaussian_winning(votes: ArrayLike, sigma: float) -> Floats:
    """Pr[the answer is the first class] for each question, by quadrature over its noise.

    The integral over z of phi(z) prod_j Phi(z + Delta_j / sigma): the trapezoid rule, which is
    exact to rounding for integrands this smooth.
    """
    behind = gaps(votes) / validation.positive("sigma", sigma)
    z = np.linspace(-9.0, 9.0, 181)
    density = np.exp(-(z**2) / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    log_all = sum(special.log_ndtr(z + column[:, None]) for column in behind.T)
    return np.minimum(np.exp(log_all) @ density, 1.0)
