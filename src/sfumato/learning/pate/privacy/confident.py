"""Confident-GNMax and Interactive GNMax: a noisy check first, an answer only if it passes.

Confident: the check asks whether max_j n_j + N(0, sigma_check^2) >= threshold. Interactive: whether
max_j (n_j - M p_j) + N(0, sigma_check^2) >= threshold, with M teachers and the student's
probabilities p, which were learnt from released answers and are public. One neighbour step moves
each coordinate by at most 1, and so the largest by at most 1 in either case. Hence one check costs,
whatever the votes,

    RDP(alpha) = alpha / (2 sigma_check^2),

answered or not, and an answer costs GNMax's alpha / sigma^2 besides.

Where the outcome of a check is nearly certain, less is said. Its RDP at order mu is mu / s^2 with
s = sqrt 2 sigma_check, so GNMax's theorem applies with s for sigma, mu_2 = s sqrt(ln 1/q), and q
the probability of the less likely outcome, which is at most

    q = Phi(-(|top - threshold| - grid) / sigma_check).

That number is private, as GNMax's is, and bounds the same one direction of the divergence.

What "the total for the answers that came about" means. It is the sum over checks and over those
questions that were answered: an odometer's reading of this transcript. A bound that is fixed before
asking is the sum with every question answered, or a filter that stops at a cap.

Reference: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", arXiv:1802.08908, algorithms 1 and 2. (Its tables weigh each answer's cost by the
probability of an answer: an expectation. Here what was answered is counted.)

    >>> np.exp(log_passing(180, threshold=200, sigma_check=150)[0]).round(6)
    np.float64(0.446965)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from sfumato.core import validation
from sfumato.learning.pate.aggregators import expected_votes
from sfumato.learning.pate.privacy.gaussian import (
    gaussian_bound,
    gaussian_independent,
    gaussian_rdp,
)
from sfumato.learning.pate.privacy.votes import Floats, as_counts, as_grid, as_orders

__all__ = [
    "check_distance",
    "check_independent",
    "check_rdp",
    "checked_independent",
    "checked_rdp",
    "compared",
    "log_passing",
]


def compared(
    votes: ArrayLike, opinions: ArrayLike | None = None, teachers: int | None = None
) -> Floats:
    """What the check compares with its threshold, for each question. Private.

    Args:
        votes: (questions, classes) counts.
        opinions: None for Confident-GNMax; for Interactive GNMax the student's (questions, classes)
            probabilities, public.
        teachers: M, with ``opinions``.
    """
    if opinions is None:
        return as_counts(votes)[:, 0]
    counts = np.atleast_2d(np.asarray(votes, dtype=np.float64))
    student = np.atleast_2d(np.asarray(opinions, dtype=np.float64))
    if counts.shape != student.shape or not np.isfinite(student).all():
        validation.fail("opinions", f"probabilities of shape {counts.shape}", student.shape)
    valid = np.where(np.isfinite(counts) & (counts > 0), counts, 0.0)
    expected = expected_votes(student, validation.count("teachers", teachers))
    return (valid - expected).max(axis=1)


def log_passing(top: ArrayLike, threshold: float, sigma_check: float) -> tuple[Floats, Floats]:
    """The ln of Pr[the check passes] and of Pr[it does not]. Private."""
    threshold = validation.finite("threshold", threshold)
    above = (_finite(top) - threshold) / validation.positive("sigma_check", sigma_check)
    return special.log_ndtr(above), special.log_ndtr(-above)


def check_independent(sigma_check: float, orders: Sequence[float] | Floats) -> Floats:
    """What one check costs, whatever the votes: alpha / (2 sigma_check^2)."""
    return gaussian_independent(
        math.sqrt(2) * validation.positive("sigma_check", sigma_check), orders
    )


def check_distance(
    top: ArrayLike, threshold: float, sigma_check: float, *, grid: float | None = None
) -> Floats:
    """How far the compared number lies from the threshold, less the grid's allowance. Private."""
    threshold = validation.finite("threshold", threshold)
    step = as_grid(grid, validation.positive("sigma_check", sigma_check))
    return np.abs(np.atleast_1d(_finite(top)) - threshold) - step


def _finite(top: ArrayLike) -> Floats:
    """Private numbers, with 0 for those that are not finite."""
    given = np.asarray(top, dtype=np.float64)
    return np.where(np.isfinite(given), given, 0.0)


def check_rdp(
    top: ArrayLike,
    threshold: float,
    sigma_check: float,
    orders: Sequence[float] | Floats,
    *,
    grid: float | None = None,
) -> Floats:
    """(questions, orders): the data-dependent RDP of each check. Private.

    Args:
        top: what is compared, from :func:`compared`.
        threshold: the public threshold.
        sigma_check: the check's noise.
        orders: the RDP orders.
        grid: the public grid of the noisy number; the samplers' own by default, 0 for none.
    """
    distance = check_distance(top, threshold, sigma_check, grid=grid)
    log_q = special.log_ndtr(-distance / sigma_check)
    return gaussian_bound(log_q, math.sqrt(2) * sigma_check, orders)


def checked_independent(
    checks: int, answers: int, sigma_check: float, sigma: float, orders: Sequence[float] | Floats
) -> Floats:
    """RDP of so many checks and so many answers, whatever the votes."""
    checks = validation.at_least("checks", checks, 0)
    answers = validation.at_least("answers", answers, 0)
    return checks * check_independent(sigma_check, orders) + answers * gaussian_independent(
        sigma, orders
    )


def checked_rdp(
    votes: ArrayLike,
    answered: ArrayLike,
    *,
    threshold: float,
    sigma_check: float,
    sigma: float,
    orders: Sequence[float] | Floats,
    opinions: ArrayLike | None = None,
    teachers: int | None = None,
    grid: float | None = None,
) -> Floats:
    """(orders,): the data-dependent RDP of all checks and of the answers given. Private.

    Args:
        votes: (questions, classes) counts of every question checked.
        answered: (questions,) which were answered; part of what was released.
        threshold: the check's threshold.
        sigma_check: the check's noise.
        sigma: the answers' noise.
        orders: the RDP orders.
        opinions: the student's probabilities for Interactive GNMax.
        teachers: M, with ``opinions``.
        grid: as for :func:`check_rdp`, of checks and of answers.
    """
    counts = np.atleast_2d(np.asarray(votes, dtype=np.float64))
    given = np.atleast_1d(np.asarray(answered, dtype=bool))
    if given.shape != counts.shape[:1]:
        validation.fail("answered", f"one truth value for each of {len(counts)} rows", given.shape)
    alpha = as_orders(orders)
    top = compared(counts, opinions, teachers)
    checks = check_rdp(top, threshold, sigma_check, alpha, grid=grid).sum(axis=0)
    if not given.any():
        return checks
    return checks + gaussian_rdp(counts[given], sigma, alpha, grid=grid).sum(axis=0)
