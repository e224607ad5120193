"""Randomised response on bins: numbers as labels, such as an income or a rating.

The range is cut into k intervals, each with a value that stands for it. A label is reported as the
value of its interval with probability e^eps / (e^eps + k - 1), and as each other value with
probability 1 / (e^eps + k - 1). Given a prior on the labels and a convex loss, some choice of
intervals and values is best, and no other epsilon-DP report has a smaller expected loss.

With a prior p on grid points y_1 < ... < y_n, and s = 1 - e^-eps, the expected loss of k bins is

    sum over bins B of (s sum_B p_i l(v_B, y_i) + e^-eps sum_all p_i l(v_B, y_i))
    -----------------------------------------------------------------------------
                               1 + (k - 1) e^-eps

where every value v_B counts once for its own bin and once as a lie. Bins enter one by one, so
dynamic programming over the end of the last bin finds the best for each k, in n^2 k steps.

    >>> bins = best_bins(range(5), [0.4, 0.1, 0.0, 0.1, 0.4], epsilon=2.0)
    >>> bins.edges, [round(value, 3) for value in bins.values]
    ((1.5,), [0.629, 3.371])
    >>> round(bins.expected_loss, 4)
    1.5207

Reference: Badih Ghazi, Kamath, Kumar, Leeman, Manurangsi, Varadarajan and Zhang, "Regression with
label differential privacy", arXiv:2212.06074, algorithm 2 and theorem 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.label_dp.top_k import LABEL, checked_unit
from sfumato.mechanisms.private_values import as_bounded
from sfumato.mechanisms.randomized_response import RandomizedResponse

__all__ = ["BinnedResponse", "Loss", "best_bins", "checked_grid"]

Loss = Literal["squared", "absolute"]
_Floats = NDArray[np.float64]
_MOST = 512  # grid points: the table of bins has their square


@final
@dataclass(frozen=True)
class BinnedResponse:
    """A report for each number, one of a few values.

    Formal guarantee: epsilon-DP for replacing one label by another: which interval a label is in is
    told by randomised response. If each label is told once, it is that of all of them together.

    Attributes:
        epsilon: the guarantee.
        edges: where one interval ends and the next begins, rising; one fewer than values.
        values: what is reported for each interval.
        default: the public number that stands for a label that is none.
        expected_loss: of a report under the prior that it was made for; infinite if unknown.
        means: of the labels in each interval under the prior; those of ``values`` if left out.
        unit: "label", and nothing else.
    """

    epsilon: float
    edges: tuple[float, ...]
    values: tuple[float, ...]
    default: float = 0.0
    expected_loss: float = math.inf
    means: tuple[float, ...] = ()
    unit: str = LABEL

    def __post_init__(self) -> None:
        validation.positive("epsilon", self.epsilon)
        if len(self.values) != len(self.edges) + 1:
            validation.fail("values", f"{len(self.edges) + 1}, one more than edges", self.values)
        if not all(np.isfinite([*self.edges, *self.values])) or list(self.edges) != sorted(
            set(self.edges)
        ):
            validation.fail("edges and values", "finite, edges rising", self.edges)
        validation.finite("default", self.default)
        checked_unit(self.unit)
        if not self.means:
            object.__setattr__(self, "means", self.values)
        if len(self.means) != len(self.values):
            validation.fail("means", f"{len(self.values)}, one for each interval", self.means)
        RandomizedResponse(self.epsilon, max(2, len(self.values)))  # or says why not

    @property
    def event(self) -> EpsilonDeltaEvent:
        """One report."""
        return EpsilonDeltaEvent(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def perturb(self, labels: ArrayLike, *, coins: Coins = SYSTEM) -> _Floats:
        """A value for each private label; what is no finite number counts as ``default``."""
        values = np.array(self.values)
        numbers = as_bounded(labels, -np.finfo(float).max, np.finfo(float).max, self.default)
        if len(values) == 1:
            return np.full(numbers.shape, values[0])
        codes = np.searchsorted(np.array(self.edges), numbers, side="right")
        return values[RandomizedResponse(self.epsilon, len(values)).perturb(codes, coins=coins)]

    def unbiased(self, reports: ArrayLike) -> _Floats:
        """The same reports as numbers whose mean, over the coins, is the mean of the interval.

        A report that is nearest on average leans towards the middle, and so does what is learnt
        from it: slopes come out too flat. With p and q the probabilities of the truth and of each
        lie, (m_j - q sum_i m_i) / (p - q) for interval j has the mean m_j. It varies more.
        """
        told = np.asarray(reports, dtype=np.float64)
        if len(self.values) == 1:
            return np.full(told.shape, self.means[0])
        response = RandomizedResponse(self.epsilon, len(self.values))
        means = np.array(self.means)
        spread = (means - response.switch * means.sum()) / (response.keep - response.switch)
        nearest = np.abs(told[..., None] - np.array(self.values)).argmin(axis=-1)
        return spread[nearest]


def best_bins(
    grid: ArrayLike,
    prior: ArrayLike,
    epsilon: float,
    loss: Loss = "squared",
    most: int | None = None,
) -> BinnedResponse:
    """The bins with the smallest expected loss of a report under the prior.

    Args:
        grid: rising numbers that stand for all labels, at most 512; a label counts as the nearest.
        prior: how probable each is: a public guess, or released before.
        epsilon: of a report.
        loss: "squared" or "absolute".
        most: bins at most; by default as many as grid points.

    Raises:
        ValueError: if grid or prior are none.
    """
    y, p = checked_grid(grid, prior)
    epsilon = validation.positive("epsilon", epsilon)
    if loss not in ("squared", "absolute"):
        validation.fail("loss", "'squared' or 'absolute'", loss)
    lie = math.exp(-epsilon)
    cost, value = (_squared if loss == "squared" else _absolute)(y, p, lie)
    count = len(y) if most is None else min(len(y), validation.count("most", most))
    ends, total = _cut(cost, count, lie)
    starts = [0, *ends[:-1]]
    edges = tuple(float((y[end - 1] + y[end]) / 2) for end in ends[:-1])
    values = tuple(float(value[a, b]) for a, b in zip(starts, ends, strict=True))
    middle = float(y[min(np.searchsorted(p.cumsum(), 0.5), len(y) - 1)])
    means = tuple(_mean(y[a:b], p[a:b]) for a, b in zip(starts, ends, strict=True))
    return BinnedResponse(epsilon, edges, values, middle, total, means)


def checked_grid(grid: ArrayLike, prior: ArrayLike) -> tuple[_Floats, _Floats]:
    """Rising points and their probabilities. Both are public.

    Raises:
        ValueError: if they are none.
    """
    y, p = (np.asarray(part, dtype=np.float64) for part in (grid, prior))
    if y.ndim != 1 or not 1 <= len(y) <= _MOST or not np.isfinite(y).all():
        validation.fail("grid", f"from 1 to {_MOST} finite numbers", y.shape)
    if (np.diff(y) <= 0).any():
        validation.fail("grid", "rising", "points that are not")
    if p.shape != y.shape or not np.isfinite(p).all() or (p < 0).any() or p.sum() <= 0:
        validation.fail("prior", f"{len(y)} probabilities, 0 or above, not all 0", p.shape)
    return y, p / p.sum()


def _mean(y: _Floats, p: _Floats) -> float:
    """Of a bin's labels; of its points where the prior has none there."""
    return float(np.average(y, weights=p if p.any() else None))


def _cut(cost: _Floats, most: int, lie: float) -> tuple[list[int], float]:
    """Where the best bins end, and their expected loss: the best of each number of bins.

    ``best[i]`` is the least cost of grid points before i in so many bins; of ties the first.
    """
    n = len(cost) - 1
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    froms: list[NDArray[np.int64]] = []
    totals: list[float] = []
    for count in range(1, most + 1):
        sums = best[:, None] + cost
        froms.append(sums.argmin(axis=0))
        best = sums.min(axis=0)
        totals.append(float(best[n]) / (1 + (count - 1) * lie))
    count = int(np.argmin(totals)) + 1
    ends, at = [n], n
    for number in range(count - 1, 0, -1):
        at = int(froms[number][at])
        ends.append(at)
    return ends[::-1], totals[count - 1]


def _squared(y: _Floats, p: _Floats, lie: float) -> tuple[_Floats, _Floats]:
    """The cost and value of bins [r, i): the mean of the bin's labels and, as lies, of all."""
    sums = [np.concatenate([[0.0], (p * y**power).cumsum()]) for power in (0, 1, 2)]
    inside = [(1 - lie) * (part[None, :] - part[:, None]) + lie * part[-1] for part in sums]
    mass, first, second = inside
    with np.errstate(divide="ignore", invalid="ignore"):
        value = first / mass
        cost = second - first**2 / mass
    empty = np.tril(np.ones_like(cost, dtype=bool))
    return np.where(empty, np.inf, np.maximum(cost, 0.0)), value


def _absolute(y: _Floats, p: _Floats, lie: float) -> tuple[_Floats, _Floats]:
    """The same for absolute errors: a weighted median, which is a grid point."""
    n = len(y)
    errors = np.abs(y[:, None] - y[None, :]) * p[None, :]
    sums = np.concatenate([np.zeros((n, 1)), errors.cumsum(axis=1)], axis=1)  # value, end
    cost, value = np.full((n + 1, n + 1), np.inf), np.zeros((n + 1, n + 1))
    for r in range(n):
        each = (1 - lie) * (sums[:, r + 1 :] - sums[:, r : r + 1]) + lie * sums[:, -1:]
        cost[r, r + 1 :] = each.min(axis=0)
        value[r, r + 1 :] = y[each.argmin(axis=0)]
    return cost, value
