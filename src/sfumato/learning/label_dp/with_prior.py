"""Randomised response with a prior: the set of classes that makes a report right most often.

Given a public guess p_1 >= p_2 >= ... of a label's class, a report within the k most probable
classes is the label with probability

    w_k = e^eps / (e^eps + k - 1) (p_1 + ... + p_k),

and RR-with-prior takes the k that makes it largest. Of all epsilon-DP reports none is the label
with a larger probability under the prior (theorem 3 of the paper).

    >>> found = best_sets([[0.5, 0.3, 0.1, 0.05, 0.05]], epsilon=1.0)
    >>> found.sizes.tolist(), found.right.round(4).tolist()
    ([2], [0.5848])

Ties. Of equally probable classes the first by number come first; of equally good k the smallest is
taken, which tells least (equal means to 12 digits).

The authors' code (google-research/label-dp) counts k from 0 where the formula counts from 1, and so
divides by 1 + (k - 2) e^-eps instead of 1 + (k - 1) e^-eps: private, but not the best. Of ten
equally probable classes at epsilon 0.5 it takes one, which tells nothing; the best is all ten.

Reference: Ghazi et al., "Deep learning with label differential privacy", arXiv:2102.06062,
algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.label_dp.top_k import Sets, TopKResponse

__all__ = ["BestSets", "best_sets", "checked_prior", "respond_with_prior"]

_SAME = 1e-12


@final
@dataclass(frozen=True, eq=False)
class BestSets:
    """What RR-with-prior reports within. Public, as the prior.

    Attributes:
        sets: (labels, classes) which may be reported.
        sizes: how many classes each set has: k.
        right: the probability under the prior that a report is the label: w_k.
    """

    sets: Sets
    sizes: NDArray[np.int64]
    right: NDArray[np.float64]


def best_sets(prior: ArrayLike, epsilon: float) -> BestSets:
    """The best set of classes for each label.

    Args:
        prior: (labels, classes) probabilities, known before the labels are read: public, or made
            of other labels' reports.
        epsilon: of a report.

    Raises:
        ValueError: if the prior is none.
    """
    p = checked_prior(prior)
    epsilon = validation.positive("epsilon", epsilon)
    order = np.argsort(-p, axis=1, kind="stable")
    within = np.take_along_axis(p, order, axis=1).cumsum(axis=1)
    lies = np.arange(p.shape[1]) * math.exp(-epsilon)  # (k - 1) e^-eps
    right = within / (1 + lies)
    best = (right >= right.max(axis=1, keepdims=True) * (1 - _SAME)).argmax(axis=1)
    place = np.argsort(order, axis=1, kind="stable")
    sizes = (best + 1).astype(np.int64)
    return BestSets(place < sizes[:, None], sizes, right[np.arange(len(p)), best])


def respond_with_prior(
    labels: ArrayLike, prior: ArrayLike, epsilon: float, *, coins: Coins = SYSTEM
) -> NDArray[np.int64]:
    """A report for each private label: epsilon-DP for replacing one label.

    Args:
        labels: the number of each one's class.
        prior: as for :func:`best_sets`.
        epsilon: the guarantee.
        coins: where the randomness comes from.
    """
    return TopKResponse(epsilon).perturb(labels, best_sets(prior, epsilon).sets, coins=coins)


def checked_prior(prior: ArrayLike) -> NDArray[np.float64]:
    """(labels, classes) as probabilities that add up to 1 for each label.

    Raises:
        ValueError: for another shape, or what is no probability. A prior is public.
    """
    p = np.asarray(prior, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        validation.fail("prior", "(labels, classes) of two or more classes", p.shape)
    total = p.sum(axis=1, keepdims=True)
    if not (np.isfinite(p).all() and (p >= 0).all() and (total > 0).all()):
        validation.fail("prior", "probabilities: finite, 0 or above, not all 0", "others")
    return p / total
