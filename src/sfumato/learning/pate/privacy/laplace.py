"""LNMax: argmax_j n_j + Lap(1/gamma). What an answer costs, for all votes and for these.

One neighbour step moves one vote from one class to another, two counts by 1 each. So, whatever the
votes:

- an answer is 2 gamma-DP, hence its RDP is at most that of randomised response at 2 gamma, and its
  log moment alpha(l) = l RDP(l + 1) at most 2 gamma^2 l (l + 1) and 2 gamma l;
- the noisy counts are independent, and two of them move by 1 each, so the RDP of all counts, of
  which the answer is post-processing, is twice that of one Laplace release at gamma. For small
  gamma this is half of the above: alpha gamma^2 instead of 2 alpha gamma^2.

Where the teachers agree, less is said. With Delta_j how far class j lies behind the first and

    q = sum_j (2 + gamma Delta_j) / (4 e^(gamma Delta_j)) >= Pr[answer is not the first class],
    alpha(l) <= ln((1 - q) ((1 - q) / (1 - e^(2 gamma) q))^l + q e^(2 gamma l))

if q <= 1 / (e^(2 gamma) + 1). As for GNMax, that bounds D_alpha(these votes || a neighbour's), not
the other direction, speaks of the data at hand only, and is private itself.

Facts about the first paper's numbers. Its text says 0.05 for each answer with gamma = 0.05, where
its own theorem gives 2 gamma = 0.1. Its moments stop at l = 8, so that no epsilon at delta = 1e-5
can fall below ln(1e5) / 8 = 1.4391; orders here go further. Its epsilons are data-dependent and
were published without protection.

Reference: Papernot, Abadi, Erlingsson, Goodfellow and Talwar, "Semi-supervised knowledge transfer
for deep learning from private training data", arXiv:1610.05755, theorems 2 and 3 and lemma 4.

    >>> votes = [180, 30, 20, 10, 10, 0, 0, 0, 0, 0]
    >>> np.exp(laplace_log_q(votes, gamma=0.05)).round(6)
    array([0.004917])
    >>> laplace_log_moments(votes, gamma=0.05, moments=[8]).round(6)
    array([[0.010122]])
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from sfumato.accounting.rdp import rdp_vector
from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, LaplaceEvent, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.learning.pate.privacy.votes import Floats, as_grid, as_orders, gaps

__all__ = [
    "laplace_bound",
    "laplace_independent",
    "laplace_log_moments",
    "laplace_log_q",
    "laplace_rdp",
    "laplace_winning",
    "pure_log_moments",
]


def laplace_log_q(votes: ArrayLike, gamma: float, *, grid: float = 0.0) -> Floats:
    """The ln of a bound on Pr[the answer is not the first class], for each question. Private.

    Args:
        votes: (questions, classes) counts.
        gamma: the inverse of the noise's scale.
        grid: a public grid to which noisy counts are rounded; 0 for none.
    """
    gamma = validation.positive("gamma", gamma)
    behind = gamma * (gaps(votes) - as_grid(grid, 1 / gamma))
    return np.minimum(special.logsumexp(_log_beaten(behind), axis=1), 0.0)


def _log_beaten(behind: Floats) -> Floats:
    """The ln of Pr[difference of two unit Laplace variables >= behind]."""
    far = np.abs(behind)
    tail = np.log((2 + far) / 4) - far
    return np.where(behind >= 0, tail, np.log1p(-np.exp(tail)))


def pure_log_moments(gamma: float, moments: Sequence[float] | Floats) -> Floats:
    """The first paper's data-independent bound: the least of 2 gamma^2 l (l + 1) and 2 gamma l."""
    gamma = validation.positive("gamma", gamma)
    l = as_orders(np.asarray(moments, dtype=np.float64) + 1) - 1  # noqa: E741
    return np.minimum(2 * gamma**2 * l * (l + 1), 2 * gamma * l)


def laplace_log_moments(
    votes: ArrayLike, gamma: float, moments: Sequence[float] | Floats, *, grid: float = 0.0
) -> Floats:
    """(questions, moments): the first paper's log moments, data-dependent where that is less."""
    pure = pure_log_moments(gamma, moments)
    log_q = laplace_log_q(votes, gamma, grid=grid)
    return np.minimum(_theorem_3(log_q, gamma, np.asarray(moments, dtype=np.float64)), pure)


def laplace_independent(gamma: float, orders: Sequence[float] | Floats) -> Floats:
    """What one answer costs, whatever the votes: the least of all bounds above."""
    gamma = validation.positive("gamma", gamma)
    alpha = tuple(float(order) for order in as_orders(orders))
    pure = rdp_vector(EpsilonDeltaEvent(2 * gamma), Neighbours.ADD_REMOVE, alpha).values
    counts = rdp_vector(repeat(LaplaceEvent(1 / gamma), 2), Neighbours.ADD_REMOVE, alpha).values
    return np.minimum(np.minimum(pure, counts), 2 * gamma)


def laplace_rdp(
    votes: ArrayLike, gamma: float, orders: Sequence[float] | Floats, *, grid: float = 0.0
) -> Floats:
    """(questions, orders): the data-dependent RDP of each answer. Private."""
    return laplace_bound(laplace_log_q(votes, gamma, grid=grid), gamma, orders)


def laplace_bound(log_q: ArrayLike, gamma: float, orders: Sequence[float] | Floats) -> Floats:
    """(..., orders): theorem 3 where it applies, and never more than for all votes."""
    alpha = as_orders(orders)
    dependent = _theorem_3(log_q, gamma, alpha - 1) / (alpha - 1)
    return np.minimum(dependent, laplace_independent(gamma, alpha))


def _theorem_3(log_q: ArrayLike, gamma: float, moments: Floats) -> Floats:
    """The log moments of theorem 3; infinite where its condition fails."""
    epsilon = 2 * gamma
    logs = np.minimum(np.asarray(log_q, dtype=np.float64), 0.0)[..., None]
    applies = logs <= -np.logaddexp(epsilon, 0.0)
    some = np.where(applies, logs, -epsilon - 1.0)
    log_rest = np.log1p(-np.exp(some))
    log_first = log_rest + moments * (log_rest - np.log1p(-np.exp(some + epsilon)))
    log_second = some + epsilon * moments
    with np.errstate(over="ignore"):
        exact = np.log1p(np.maximum(np.expm1(log_first) + np.exp(log_second), 0.0))
    whole = np.where(log_second > 500, np.logaddexp(log_first, log_second), exact)
    return np.where(applies, whole, math.inf)


def laplace_winning(votes: ArrayLike, gamma: float) -> Floats:
    """Pr[the answer is the first class] for each question, by quadrature over its noise.

    Gauss-Legendre rules on unit intervals of the noise, with its kink at 0 between two of them;
    kinks of the others' laws inside an interval cost some digits: good to about 1e-5.
    """
    behind = gaps(votes) * validation.positive("gamma", gamma)
    nodes, rule = np.polynomial.legendre.leggauss(8)
    starts = np.arange(-20.0, 20.0, 0.5)
    z = (starts[:, None] + (1 + nodes) / 4).ravel()
    density = np.exp(-np.abs(z)) / 2 * np.tile(rule / 4, len(starts))
    below = np.ones((len(behind), len(z)))
    for column in behind.T:
        x = z + column[:, None]
        half = np.exp(-np.abs(x)) / 2
        below *= np.where(x < 0, half, 1 - half)
    return np.minimum(below @ density, 1.0)
