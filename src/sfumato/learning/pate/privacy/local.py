"""How fast a data-dependent cost can change: local sensitivity at a distance, at one order.

The data-dependent RDP of a question (:mod:`.gaussian`, :mod:`.confident`) is a function of q alone.
Write q as if all k other classes (k = classes - 1) lay equally far behind the first,

    q = k erfc(t / sigma) / 2,

and call t the *lead*. Three facts make the rest simple.

1. **A neighbour step moves the lead by at most 1.** Let q_c be the sum of erfc((n_c - n_j) /
   (2 sigma)) / 2 over j other than c; then q = min_c q_c, as the first class has the least terms.
   One moved vote changes n_c - n_j by at most 2, so q_c becomes at most the sum of h(p_j) with p_j
   its terms and h(p) = Phi(Phi^-1(p) + sqrt 2 / sigma). That h is concave, so the sum is largest
   for equal terms: k h(q_c / k), which is the q of lead t - 1. By symmetry no q falls below that of
   lead t + 1. (A check has k = 1, sigma = sqrt 2 sigma_check, and lead |top - threshold|.)
2. **The cost falls as the lead grows** (the paper's condition C5), for every sigma, order and k.
   Write the theorem in mu = sigma sqrt(ln 1/q), which grows with the lead: q = e^(-mu^2/sigma^2),
   r = (q e^eps_2)^(1 - 1/mu_2) = e^(-(mu - 1)^2/sigma^2), A = (1 - q)/(1 - r), B = e^((2 mu +
   1)/sigma^2). Its condition on q says r/q = e^((2 mu - 1)/sigma^2) >= (mu + 1)/(mu - 1). All
   conditions (mu > 1, mu >= alpha - 1 and this) hold for every larger mu, too, so it is enough that
   F = (1 - q) A^(alpha - 1) + q B^(alpha - 1) falls where they do. There

       (sigma^2 / 2) F' = A^(alpha-1) (alpha mu q - (alpha - 1) (mu - 1) r (1 - q)/(1 - r))
                          - (mu - alpha + 1) q B^(alpha-1)
                       <= (mu - alpha + 1) q (A^(alpha-1) - B^(alpha-1)),

   as (mu - 1) r >= (mu + 1) q and r > q; and A <= B. For B >= r/q, and 1 - q <= (r/q)(1 - r)
   whenever q + r <= 1; with mu^2/sigma^2 >= 2 mu/(2 mu - 1), since ln((mu + 1)/(mu - 1)) >= 2/mu,
   that is so from mu = 2.55 on. Below, B (1 - r) >= 1: it grows with 1/sigma^2, and at the least
   one that the condition allows it is a function of mu alone, above 1.3. Hence from lead t a step
   changes the cost by at most the larger of drop(t - 1) and drop(t), where drop(u) = cost(u) -
   cost(u + 1).
3. **Which leads can be reached in d steps is known exactly.** The largest q, while the first class
   stays first: d votes go from the first class to the second (erfc is convex there, and a convex
   function on what d votes can do is largest at a corner). The smallest: d votes go to the first
   class, each from whichever other class is then largest. Past the point where the first class
   could be overtaken, every smaller lead counts as reachable.

The local sensitivity at distance d is bounded by the largest drop over the reachable leads. Both
sets grow with d and nest between neighbours, so what is built on them is smooth. The paper stops
at a point: it takes the cost's drop at the reachable lead nearest to where the data-independent
bound takes over, which is right if drop is monotone on either side (its condition C6; see
:func:`check_conditions`). Here the largest drop over all reachable leads is taken, so that C6 is
not needed; where it holds, the two agree. (The authors' program also takes the data-independent
bound for every ln q above -(1 + 1/sigma)^2, a simpler condition than the theorem's. For small sigma
that moves where the cost jumps: the doctest's fourth value is 3.396 here and 5.9998 there.)

Reference: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", arXiv:1802.08908, appendix B (algorithms 3 to 5, conditions C1 to C6).

    >>> part = Answers([[10, 0, 0]], sigma=0.5, grid=0.0)
    >>> [f"{part.changes(order=1.5, distance=d):.3e}" for d in range(3)]
    ['3.135e-17', '1.602e-08', '5.907e-03']
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from sfumato.core import validation
from sfumato.learning.pate.privacy.confident import check_distance
from sfumato.learning.pate.privacy.gaussian import gaussian_bound, log_beaten
from sfumato.learning.pate.privacy.votes import Floats, as_counts, as_grid

__all__ = ["Answers", "Checks", "Drops", "Part", "check_conditions", "drops"]

_NODES = 2**14
_FINE = 2**12
_NEGLIGIBLE = 1e-280
"""Costs below this are rounding errors of denormal numbers."""


@final
@dataclass(frozen=True)
class Drops:
    """The cost of one question as a function of its lead, and by how much a step changes it.

    Attributes:
        sigma: the mechanism's RDP at order mu is mu / sigma^2.
        order: the one order at which the cost is taken.
        others: the number of outcomes but the likeliest.
        peaks: (start, end, value): where drop has a local maximum, and a bound on it.
    """

    sigma: float
    order: float
    others: int
    peaks: tuple[tuple[float, float, float], ...]

    def cost(self, lead: Floats) -> Floats:
        """RDP at the order."""
        return _cost(lead, self.sigma, self.order, self.others)

    def drop(self, lead: Floats) -> Floats:
        """By how much one step of the lead, from ``lead`` up, lowers the cost."""
        return np.maximum(self.cost(lead) - self.cost(lead + 1), 0.0)

    def most(self, lowest: Floats, highest: Floats) -> Floats:
        """The largest change of the cost by one step from any lead in an interval."""
        return np.maximum(self._within(lowest - 1, highest - 1), self._within(lowest, highest))

    def _within(self, low: Floats, high: Floats) -> Floats:
        """The largest drop in [low, high]: at an end, unless there is a peak between."""
        largest = np.maximum(self.drop(low), self.drop(high))
        for start, end, value in self.peaks:
            inside = (low <= end) & (high >= start)
            largest = np.where(inside, np.maximum(largest, value), largest)
        return largest

    @property
    def largest(self) -> float:
        """The largest drop anywhere."""
        return max((value for _, _, value in self.peaks), default=0.0)


def _cost(lead: Floats, sigma: float, order: float, others: int) -> Floats:
    log_q = math.log(others) + log_beaten(2 * lead, sigma)
    return gaussian_bound(log_q, sigma, [order])[..., 0]


def _nodes(sigma: float, order: float, others: int) -> tuple[Floats, Floats]:
    """Leads from where the cost is constant to where it is negligible, and their costs."""
    leads = np.linspace(-2.0, 2 * order + 40 * sigma + 5, _NODES)
    costs = _cost(leads, sigma, order, others)
    kept = costs > _NEGLIGIBLE
    return leads[kept], costs[kept]


@functools.lru_cache(maxsize=32)
def drops(sigma: float, order: float, others: int) -> Drops:
    """The :class:`Drops` of one mechanism at one order.

    Raises:
        ValueError: if the cost does not fall with the lead for these public numbers.
    """
    leads, costs = _nodes(sigma, order, others)
    if not _falls(costs):
        raise ValueError(
            f"order {order!r} with sigma {sigma!r}: the data-dependent cost does not fall with the "
            "votes' lead, so its sensitivity is not known; take another order"
        )
    curve = Drops(sigma, order, others, ())
    steps = curve.drop(leads)
    inner = steps[1:-1]
    local = (inner >= steps[:-2]) & (inner >= steps[2:]) & (inner > _NEGLIGIBLE)
    peaks = [
        (float(leads[i]), float(leads[i + 2]), _largest_drop(curve, leads[i], leads[i + 2]))
        for i in np.flatnonzero(local)
    ]
    return Drops(sigma, order, others, tuple(peaks))


def _falls(costs: Floats) -> bool:
    return bool((np.diff(costs) <= 1e-11 * costs[:-1]).all())


def _largest_drop(curve: Drops, start: float, end: float) -> float:
    """A bound on drop between two leads: in a cell [a, b] at most cost(a) - cost(b + 1)."""
    fine = np.linspace(start, end, _FINE)
    return float(np.max(curve.cost(fine[:-1]) - curve.cost(fine[1:] + 1)))


def check_conditions(sigma: float, classes: int, order: float) -> tuple[bool, bool]:
    """The paper's conditions C5 and C6, on a fine grid.

    C5: the cost grows with q. C6: what a step can add to it does too, as long as q is below where
    the data-independent bound takes over.
    """
    sigma, order = validation.positive("sigma", sigma), validation.positive("order", order)
    others = validation.at_least("classes", classes, 2) - 1
    leads, costs = _nodes(sigma, order, others)
    if not _falls(costs):
        return False, False
    beyond = leads > leads[costs >= costs[0]].max()
    steps = Drops(sigma, order, others, ()).drop(leads[beyond])
    return True, bool((np.diff(steps) <= 1e-9 * steps[:-1]).all())


@dataclass(frozen=True, eq=False)
class Part(ABC):
    """Questions whose data-dependent cost is to be published. Private, but for their number."""

    @property
    @abstractmethod
    def questions(self) -> int:
        """How many; public."""

    @abstractmethod
    def curve(self, order: float) -> Drops:
        """Cost and change as functions of a question's lead; public."""

    @abstractmethod
    def reach(self, distance: int) -> tuple[Floats, Floats]:
        """The least and the largest lead of each distinct question within ``distance`` steps."""

    @property
    @abstractmethod
    def weights(self) -> Floats:
        """How often each distinct question occurs."""

    def cost(self, order: float) -> float:
        """The sum of the questions' data-dependent RDP at ``order``. Private."""
        return float(self.curve(order).cost(self.reach(0)[0]) @ self.weights)

    def changes(self, order: float, distance: int) -> float:
        """A bound on the sum's local sensitivity at ``distance``. Private.

        One step changes one teacher, in all questions at once: the questions' bounds add.
        """
        return float(self.curve(order).most(*self.reach(distance)) @ self.weights)

    def most_change(self, order: float) -> float:
        """A public bound on :meth:`changes` at any distance."""
        return self.questions * self.curve(order).largest


@final
@dataclass(frozen=True, eq=False)
class Answers(Part):
    """Answers by GNMax.

    Attributes:
        votes: (questions, classes) whole counts of the answered questions. Private.
        sigma: the noise's standard deviation.
        grid: the public grid of the noisy counts; the samplers' own by default, 0 for none.
    """

    votes: ArrayLike = field(repr=False)
    sigma: float
    grid: float | None = None
    _sorted: Floats = field(init=False, repr=False)
    _weights: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", validation.positive("sigma", self.sigma))
        object.__setattr__(self, "grid", as_grid(self.grid, self.sigma))
        rows, counts = np.unique(as_counts(np.rint(self.votes)), axis=0, return_counts=True)
        object.__setattr__(self, "_sorted", rows)
        object.__setattr__(self, "_weights", counts.astype(np.float64))

    @property
    def questions(self) -> int:
        """How many."""
        return int(self._weights.sum())

    @property
    def weights(self) -> Floats:
        """How often each distinct row of votes occurs."""
        return self._weights

    def curve(self, order: float) -> Drops:
        """For as many outcomes as there are classes."""
        return drops(self.sigma, float(order), self._sorted.shape[1] - 1)

    def reach(self, distance: int) -> tuple[Floats, Floats]:
        """See the module's third fact."""
        top, others = self._sorted[:, :1], self._sorted[:, 1:]
        behind = top - distance - others
        behind[:, 0] -= distance
        least = np.where(behind[:, 0] >= self._step, self._lead(behind), -math.inf)
        if distance == 0:
            return self._lead(behind), self._lead(behind)
        largest = np.minimum(top + distance, self._sorted.sum(axis=1, keepdims=True))
        return least, self._lead(largest - _taken(others, distance))

    @property
    def _step(self) -> float:
        assert self.grid is not None
        return self.grid

    def _lead(self, behind: Floats) -> Floats:
        log_q = special.logsumexp(log_beaten(behind - self._step, self.sigma), axis=1)
        share = log_q - math.log(behind.shape[1])
        return -special.ndtri_exp(share) * self.sigma / math.sqrt(2)


def _taken(others: Floats, distance: int) -> Floats:
    """Descending counts after ``distance`` votes were taken, each from the then largest.

    The largest few are levelled: as many as it takes to use the votes up before they fall below the
    next one.
    """
    classes = others.shape[1]
    sums = np.cumsum(others, axis=1)
    following = np.append(others[:, 1:], np.zeros((len(others), 1)), axis=1)
    levelling = sums - np.arange(1, classes + 1) * following
    levelled = np.minimum((levelling <= distance).sum(axis=1) + 1, classes)[:, None]
    left = np.maximum(np.take_along_axis(sums, levelled - 1, axis=1) - distance, 0.0)
    level, rest = left // levelled, left % levelled
    place = np.arange(classes)
    return np.where(place < levelled, level + (place < rest), others)


@final
@dataclass(frozen=True, eq=False)
class Checks(Part):
    """Checks of Confident-GNMax or Interactive GNMax.

    Attributes:
        top: what is compared with the threshold, from :func:`.confident.compared`. Private.
        threshold: the public threshold.
        sigma_check: the check's noise.
        grid: the public grid of the noisy number; the samplers' own by default, 0 for none.
    """

    top: ArrayLike = field(repr=False)
    threshold: float
    sigma_check: float
    grid: float | None = None
    _leads: Floats = field(init=False, repr=False)
    _weights: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        leads = check_distance(self.top, self.threshold, self.sigma_check, grid=self.grid)
        distinct, counts = np.unique(leads, return_counts=True)
        object.__setattr__(self, "_leads", distinct)
        object.__setattr__(self, "_weights", counts.astype(np.float64))

    @property
    def questions(self) -> int:
        """How many."""
        return int(self._weights.sum())

    @property
    def weights(self) -> Floats:
        """How often each distinct lead occurs."""
        return self._weights

    def curve(self, order: float) -> Drops:
        """For two outcomes and RDP mu / (2 sigma_check^2)."""
        return drops(math.sqrt(2) * self.sigma_check, float(order), 1)

    def reach(self, distance: int) -> tuple[Floats, Floats]:
        """The number compared moves by at most 1 in a step."""
        return self._leads - distance, self._leads + distance
