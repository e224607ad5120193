"""What a server can say from noisy reports: estimates, and intervals that cover.

Symbols: n people, k categories, p and q the probabilities of a true and of any one false report, c
reports of a category, m people who hold it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, final

import numpy as np

from sfumato.core.guarantee import Guarantee
from sfumato.extras import needed_for
from sfumato.mechanisms.randomized_response import RandomizedResponse

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["FrequencyEstimate", "LocalEstimate", "count_intervals", "laplace_sum_quantile"]

Interval = tuple[float, float]


@final
@dataclass(frozen=True)
class LocalEstimate:
    """One number estimated from reports; public, as they are.

    Attributes:
        value: the unbiased estimate; a count may come out below 0, a mean out of its range.
        interval: the truth about those who reported lies in it ...
        confidence: ... with about this probability, over the noise.
        people: how many reported.
        guarantee: what each of them was promised.
    """

    value: float
    interval: Interval
    confidence: float
    people: int
    guarantee: Guarantee

    @property
    def sum(self) -> float:
        """The value of a mean times the number of people."""
        return self.value * self.people

    @property
    def sum_interval(self) -> Interval:
        """The interval of a mean times the number of people."""
        low, high = self.interval
        return low * self.people, high * self.people

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.value:.6g} ({low:.6g} to {high:.6g}, {self.confidence:.0%}) from "
            f"{self.people:,} reports, {self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the guarantee's keys."""
        data = {
            "value": self.value,
            "lower": self.interval[0],
            "upper": self.interval[1],
            "confidence": self.confidence,
            "people": self.people,
        }
        return data | self.guarantee.to_dict()

    def to_frame(self) -> DataFrame:
        """One row, as a pandas data frame."""
        return _frame([self.to_dict()], "value lower upper confidence people epsilon")


@final
@dataclass(frozen=True)
class FrequencyEstimate:
    """How many people gave each answer, estimated from reports; public, as they are.

    Attributes:
        categories: the answers there were.
        value: the unbiased estimate of each one's count; they add up to the number of people, and
            a small one may come out below 0.
        interval: for each, where its true count lies with about ``confidence`` on its own.
        simultaneous_interval: where all of them lie together with at least about that much.
        confidence: of the intervals.
        people: how many reported.
        guarantee: what each of them was promised.
    """

    categories: tuple[Hashable, ...]
    value: tuple[float, ...]
    interval: tuple[Interval, ...]
    simultaneous_interval: tuple[Interval, ...]
    confidence: float
    people: int
    guarantee: Guarantee

    @property
    def counts(self) -> dict[Hashable, float]:
        """The estimated count of each category."""
        return dict(zip(self.categories, self.value, strict=True))

    @property
    def frequencies(self) -> dict[Hashable, float]:
        """The counts as shares of the people."""
        return {category: count / self.people for category, count in self.counts.items()}

    def __str__(self) -> str:
        parts = [
            f"{category}: {count:.6g} ({low:.6g} to {high:.6g})"
            for category, count, (low, high) in zip(
                self.categories, self.value, self.interval, strict=True
            )
        ]
        return (
            f"{', '.join(parts)}; {self.confidence:.0%} each, from {self.people:,} reports, "
            f"{self.guarantee}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, one entry a category, with the guarantee's keys."""
        rows = [
            {
                "category": category,
                "count": count,
                "lower": own[0],
                "upper": own[1],
                "simultaneous_lower": joint[0],
                "simultaneous_upper": joint[1],
            }
            for category, count, own, joint in zip(
                self.categories, self.value, self.interval, self.simultaneous_interval, strict=True
            )
        ]
        data = {"counts": rows, "confidence": self.confidence, "people": self.people}
        return data | self.guarantee.to_dict()

    def to_frame(self) -> DataFrame:
        """One row a category, as a pandas data frame."""
        columns = "category count lower upper simultaneous_lower simultaneous_upper"
        return _frame(self.to_dict()["counts"], columns)


def count_intervals(
    response: RandomizedResponse, n: int, counts: Sequence[float], confidence: float
) -> tuple[Interval, ...]:
    """The score interval of each estimated count, with continuity correction.

    It holds all m for which

        |c - n q - m (p - q)| - 1/2 <= z sqrt(n q (1 - q) + m (p (1 - p) - q (1 - q))),

    where the right side is z standard deviations of c if m people hold the category: squared, a
    quadratic in m for each end. Where k = 2 the slope on the right is 0, and the interval is the
    estimate give or take z standard deviations and half a report.
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p, q = response.keep, response.switch
    a, base, slope = p - q, n * q * (1 - q), p * (1 - p) - q * (1 - q)

    def end(count: float, side: int) -> float:
        y = count * a + side / 2
        middle = y / a + z**2 * slope / (2 * a**2)
        inside = a * y * slope + a**2 * base + (z * slope / 2) ** 2
        return middle + side * z * math.sqrt(max(inside, 0.0)) / a**2

    return tuple((min(c, end(c, -1)), max(c, end(c, 1))) for c in counts)


_MANY = 2000  # from so many on, a sum of Laplace noises is normal to well within 0.1 %


def laplace_sum_quantile(n: int, level: float) -> float:
    """Where the sum of ``n`` Laplace noises of scale 1 stays below with probability ``level``.

    The sum is a difference of two Gamma(n) waiting times, G - H. G exceeds s + H if fewer than n
    events of a Poisson process fall into the time s and then before H, that is

        Pr[sum > s] = Pr[Poisson(s) + NegativeBinomial(n, 1/2) <= n - 1].
    """
    z = NormalDist().inv_cdf(level)
    spread = math.sqrt(2 * n)
    if n >= _MANY:
        return z * spread
    from scipy import optimize, stats  # slow to import, and only needed here

    first = np.arange(n)
    later = stats.nbinom.cdf(n - 1 - first, n, 0.5)

    def missed(s: float) -> float:
        return float(stats.poisson.pmf(first, s) @ later) - (1 - level)

    far = -math.log(2 * (1 - level)) + (z + 1) * spread  # beyond both the Laplace and normal tails
    return float(optimize.brentq(missed, 0.0, 2 * far, xtol=1e-9 * spread))


def _frame(rows: list[dict[str, Any]], columns: str) -> DataFrame:
    with needed_for("to_frame"):
        import pandas
    return pandas.DataFrame(rows, columns=pandas.Index(columns.split()))
