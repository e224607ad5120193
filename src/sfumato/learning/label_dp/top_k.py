"""Randomised response within a set of classes that is public for each label: RR-top-k.

A label of the set Y, of k classes, is reported as it is with probability e^eps / (e^eps + k - 1)
and as each other class of Y with probability 1 / (e^eps + k - 1). A label outside of Y is reported
as a class of Y, each with probability 1 / k. The smaller the set, the more often the report is
right, if the label is in it.

    >>> import numpy as np
    >>> response = TopKResponse(epsilon=2.0)
    >>> sets = np.array([[True, True, False], [True, True, True]])
    >>> response.keep(sets).round(4).tolist()
    [0.8808, 0.787]
    >>> bool(response.perturb([2, 2], sets)[0] < 2)
    True
    >>> response.guarantee()
    Guarantee: epsilon 2, delta 0, replace one label

Reference: Ghazi, Golowich, Kumar, Manurangsi and Zhang, "Deep learning with label differential
privacy", arXiv:2102.06062, algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.private_values import as_codes
from sfumato.mechanisms.randomized_response import keep_probability
from sfumato.mechanisms.sampling import bernoulli, uniform_integers

__all__ = ["LABEL", "Sets", "TopKResponse", "checked_sets", "checked_unit"]

LABEL = "label"
"""The unit of label privacy: inputs are public, one label is replaced."""

Sets = NDArray[np.bool_]
"""(labels, classes): which classes may be reported of each label. Public."""


@final
@dataclass(frozen=True)
class TopKResponse:
    """One report for each label, from its own public set of classes.

    Formal guarantee: epsilon-DP for replacing one label by another, whatever the sets, as long as
    they do not depend on the labels (but may on other labels' reports). A report v has probability
    p if it is the label, q = (1 - p) / (k - 1) if the label is another one of the set, and 1 / k if
    it is outside; p is rounded down and at least 1 / k, so p / q <= e^eps, and k p and 1 / (k q)
    lie between. If each label is reported once, this is the guarantee of all reports together.

    Attributes:
        epsilon: the guarantee.
        default: the public class that stands for a label that is none.
        unit: "label", and nothing else.
    """

    epsilon: float
    default: int = 0
    unit: str = LABEL

    def __post_init__(self) -> None:
        epsilon = validation.positive("epsilon", self.epsilon)
        if epsilon < 2**-32:
            validation.fail("epsilon", "at least 2^-32 for a report to say anything", epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "default", validation.at_least("default", self.default, 0))
        checked_unit(self.unit)

    @property
    def event(self) -> EpsilonDeltaEvent:
        """One report: opaque, since a set of two classes is as bad as epsilon allows."""
        return EpsilonDeltaEvent(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def keep(self, sets: Sets) -> NDArray[np.float64]:
        """The probability p of each report to be the label, given that its set holds it."""
        sizes = checked_sets(sets).sum(axis=1)
        known = {int(k): float(keep_probability(self.epsilon, int(k))) for k in np.unique(sizes)}
        return np.array([known[int(k)] for k in sizes], dtype=np.float64)

    def perturb(self, labels: ArrayLike, sets: Sets, *, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """A report for each private label; how much is drawn depends on the sets alone.

        Args:
            labels: the number of each one's class; what is none of them counts as ``default``.
            sets: which classes may be reported of each. Public.
            coins: where the randomness comes from.

        Raises:
            ValueError: for sets that are none, or too small for ``default``; never for a label.
        """
        allowed = checked_sets(sets)
        if self.default >= allowed.shape[1]:
            validation.fail("default", f"a class below {allowed.shape[1]}", self.default)
        codes = as_codes(labels, allowed.shape[1], self.default)
        if codes.shape != (len(allowed),):
            validation.fail("sets", f"a row for each of the {codes.size} labels", allowed.shape)
        sizes = allowed.sum(axis=1)
        reports = np.empty(len(codes), dtype=np.int64)
        for size in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == size)
            reports[rows] = self._of_size(codes[rows], allowed[rows], int(size), coins)
        return reports

    def _of_size(
        self, codes: NDArray[np.int64], allowed: Sets, size: int, coins: Coins
    ) -> NDArray[np.int64]:
        """Reports where all sets have ``size`` classes."""
        count, each = len(codes), np.arange(len(codes))
        kept = bernoulli(keep_probability(self.epsilon, size), count, coins)
        others = uniform_integers(max(size - 1, 1), count, coins)
        anyone = uniform_integers(size, count, coins)
        inside = allowed[each, codes]
        place = allowed.cumsum(axis=1)[each, codes] - 1  # of the label among its set's classes
        lies = others + (others >= place)  # the others are numbered without the label
        chosen = np.where(inside, np.where(kept, place, lies), anyone)
        members = np.argsort(~allowed, axis=1, kind="stable")[:, :size]
        return members[each, chosen]

    def likelihood(self, reports: ArrayLike, sets: Sets) -> NDArray[np.float64]:
        """(labels, classes): the probability of each report, were the label this class."""
        allowed = checked_sets(sets)
        told = np.asarray(reports, dtype=np.int64)
        each, sizes, keep = np.arange(len(allowed)), allowed.sum(axis=1), self.keep(allowed)
        lie = (1 - keep) / np.maximum(sizes - 1, 1)
        found = np.where(allowed, lie[:, None], 1.0 / sizes[:, None])
        found[each, told] = keep
        return found


def checked_sets(sets: Any) -> Sets:
    """``sets`` as booleans, with at least one class for each label.

    Raises:
        ValueError: for another shape, or an empty set. Sets are public.
    """
    found = np.asarray(sets, dtype=np.bool_)
    if found.ndim != 2 or not found.any(axis=1).all():
        validation.fail("sets", "(labels, classes) with a class or more for each", found.shape)
    return found


def checked_unit(unit: str) -> None:
    """Raises for any unit but "label": a budget of records or people must never pay for these.

    Raises:
        ValueError: if it is another.
    """
    if unit != LABEL:
        validation.fail("unit", f"{LABEL!r}: labels are randomised, inputs are public", unit)
