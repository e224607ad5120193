"""Local mode: people add the noise themselves, and the server only ever sees noisy reports.

    >>> survey = LocalFrequency(("never", "sometimes", "daily"), epsilon=2.0)
    >>> answers = ["daily"] * 300 + ["never"] * 700
    >>> reports = survey.perturb(answers)            # on each person's own device
    >>> result = survey.estimate(reports)            # at the server, which never sees the answers
    >>> result.guarantee
    Guarantee: epsilon 2, delta 0, replace one person
    >>> [category for category, _ in result.counts.items()]
    ['never', 'sometimes', 'daily']

Each class has two halves that share nothing but public facts: ``perturb`` runs at the source, and
``estimate`` at the server. Reports are bare numbers, so that they can be sent one by one; those
made with ``SeededCoins`` are for tests only, which nobody can tell by looking at them.

Formal guarantee: epsilon-DP for replacing one person's answer by any other, against everybody,
the server included. That a person took part is not hidden. It holds for one report of each
person: someone who answers several surveys, or one survey several times, has the sum of their
epsilons (``sfumato.account(sfumato.compose(one.event, other.event))``).

What cannot be read as an answer (missing, out of range, of another type) is reported as if it were
the declared default, with the same noise: no report says whether the answer was usable.

Reference: Warner (1965); Kasiviswanathan et al., arXiv:0803.0924; Kairouz, Bonawitz and Ramage,
arXiv:1602.07387. Intervals are over the noise alone: they are about the people who reported, not
about a population they were drawn from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent, RandomizedResponseEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.odd_values import read_one
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.local import LocalLaplace
from sfumato.mechanisms.randomized_response import RandomizedResponse
from sfumato.queries.local_estimates import (
    FrequencyEstimate,
    LocalEstimate,
    count_intervals,
    laplace_sum_quantile,
)

__all__ = [
    "FrequencyEstimate",
    "LocalCount",
    "LocalEstimate",
    "LocalFrequency",
    "LocalMean",
]


@final
@dataclass(frozen=True)
class LocalFrequency:
    """One answer of several from each person: k-ary randomised response.

    A person reports the true category with probability p = e^eps / (e^eps + k - 1), and each other
    one with q = 1 / (e^eps + k - 1). From c reports of a category among n, the server estimates
    (c - n q) / (p - q) people, with standard deviation

        sqrt(n (k - 2 + e^eps) / (e^eps - 1)^2 + n f (k - 2) / (e^eps - 1))

    for a category that a share f of them hold.

    Attributes:
        categories: the answers there may be, at least two, in the order of the reports' numbers.
        epsilon: the guarantee.
        default: the category that stands for an answer that is none; the first unless declared.
        unit: who answers.
    """

    categories: tuple[Hashable, ...]
    epsilon: float
    default: Hashable = None
    unit: str = "person"

    def __post_init__(self) -> None:
        object.__setattr__(self, "categories", _distinct(self.categories))
        if self.default is None and None not in self.categories:
            object.__setattr__(self, "default", self.categories[0])
        if self.default not in self.categories:
            validation.fail("default", f"one of {list(self.categories)}", self.default)
        object.__setattr__(self, "epsilon", self._response.epsilon)  # checked there

    @cached_property
    def _response(self) -> RandomizedResponse:
        default = self.categories.index(self.default)
        return RandomizedResponse(self.epsilon, len(self.categories), default, self.unit)

    @property
    def event(self) -> RandomizedResponseEvent:
        """What one person's report amounts to for accounting."""
        return self._response.event

    def guarantee(self) -> Guarantee:
        """Epsilon-DP for replacing one person's answer."""
        return self._response.guarantee()

    def perturb(self, values: Iterable[Any], coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """At the source: one report for each answer, the number of a category."""
        numbers = {category: number for number, category in enumerate(self.categories)}
        other = self._response.default
        codes = np.array([_look_up(numbers, cell, other) for cell in _cells(values)], dtype=int)
        return self._response.perturb(codes, coins=coins)

    def estimate(self, reports: ArrayLike, confidence: float = 0.95) -> FrequencyEstimate:
        """At the server: how many people hold each category, from the reports alone."""
        confidence = validation.open_probability("confidence", confidence)
        found = self._response.estimate(reports)
        k = len(self.categories)
        return FrequencyEstimate(
            categories=self.categories,
            value=found.counts,
            interval=count_intervals(self._response, found.n, found.counts, confidence),
            simultaneous_interval=count_intervals(
                self._response, found.n, found.counts, 1 - (1 - confidence) / k
            ),
            confidence=confidence,
            people=found.n,
            guarantee=self.guarantee(),
        )


@final
@dataclass(frozen=True)
class LocalCount:
    """A yes or no from each person: randomised response. The server estimates how many yes.

    The standard deviation of the estimate is sqrt(n e^eps) / (e^eps - 1), whatever the answers.

    Attributes:
        epsilon: the guarantee.
        default: what an answer that is neither yes (True, 1) nor no (False, 0) counts as.
        unit: who answers.
    """

    epsilon: float
    default: bool = False
    unit: str = "person"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", self._response.epsilon)  # checked there

    @cached_property
    def _response(self) -> RandomizedResponse:
        if not isinstance(self.default, bool):
            validation.fail("default", "True or False", self.default)
        return RandomizedResponse(self.epsilon, 2, int(self.default), self.unit)

    @property
    def event(self) -> RandomizedResponseEvent:
        """What one person's report amounts to for accounting."""
        return self._response.event

    def guarantee(self) -> Guarantee:
        """Epsilon-DP for replacing one person's answer."""
        return self._response.guarantee()

    def perturb(self, values: ArrayLike, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """At the source: one report for each answer, 1 for yes and 0 for no."""
        return self._response.perturb(values, coins=coins)

    def estimate(self, reports: ArrayLike, confidence: float = 0.95) -> LocalEstimate:
        """At the server: how many of those who reported would truly say yes."""
        confidence = validation.open_probability("confidence", confidence)
        found = self._response.estimate(reports)
        interval = count_intervals(self._response, found.n, found.counts, confidence)[1]
        return LocalEstimate(found.counts[1], interval, confidence, found.n, self.guarantee())


@final
@dataclass(frozen=True)
class LocalMean:
    """A number in a declared range from each person, plus Laplace noise. The server averages.

    The noise has scale (upper - lower) / epsilon, so that the sum of n reports is off by
    sqrt(2 n) (upper - lower) / epsilon, the mean by that over n.

    Attributes:
        lower, upper: the declared range; numbers outside are moved to its ends.
        epsilon: the guarantee.
        default: what stands for a number that is missing or not finite; ``lower`` unless declared.
        unit: whose number it is.
    """

    lower: float
    upper: float
    epsilon: float
    default: float | None = None
    unit: str = "person"

    def __post_init__(self) -> None:
        for name in ("lower", "upper", "epsilon"):  # checked there
            object.__setattr__(self, name, getattr(self._noise, name))

    @cached_property
    def _noise(self) -> LocalLaplace:
        return LocalLaplace(self.epsilon, self.lower, self.upper, self.default, self.unit)

    @property
    def event(self) -> LaplaceEvent:
        """What one person's report amounts to for accounting."""
        return self._noise.event

    def guarantee(self) -> Guarantee:
        """Epsilon-DP for replacing one person's number."""
        return self._noise.guarantee()

    def perturb(self, values: ArrayLike, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """At the source: one report for each number."""
        return self._noise.perturb(values, coins=coins)

    def estimate(self, reports: ArrayLike, confidence: float = 0.95) -> LocalEstimate:
        """At the server: the mean of the numbers (in their range) of those who reported."""
        confidence = validation.open_probability("confidence", confidence)
        array = np.asarray(reports)
        if array.size == 0 or array.dtype.kind not in "iuf":
            validation.fail("reports", "one or more numbers", array.dtype)
        if not np.isfinite(array).all():
            validation.fail("reports", "finite", float(array[~np.isfinite(array)][0]))
        n, mean = array.size, float(np.mean(array, dtype=np.float64))
        beyond = laplace_sum_quantile(n, (1 + confidence) / 2)
        half_width = beyond * self._noise.scale / n + self._noise.noise.resolution / 2
        interval = (mean - half_width, mean + half_width)
        return LocalEstimate(mean, interval, confidence, n, self.guarantee())


def _distinct(categories: Iterable[Hashable]) -> tuple[Hashable, ...]:
    if isinstance(categories, str | bytes):
        validation.fail("categories", "a list of answers, not one text", categories)
    listed = tuple(c.item() if isinstance(c, np.generic) else c for c in categories)
    try:
        different = len(set(listed)) == len(listed) and all(c == c for c in listed)
    except TypeError:
        different = False
    if len(listed) < 2 or not different:
        validation.fail("categories", "two or more different answers", list(listed))
    return listed


def _cells(values: Iterable[Any]) -> list[Any]:
    """The answers one by one, as Python's own values where they come in an array."""
    if isinstance(values, str | bytes):  # the message must not repeat the answer
        raise ValueError("values must be a list of answers, got a single text: put it in a list")
    return np.asarray(values).ravel().tolist() if hasattr(values, "__array__") else list(values)


def _look_up(numbers: Mapping[Hashable, int], cell: Any, other: int) -> int:
    """The number of the answer ``cell``, ``other`` if it is none: total, whatever a cell holds."""
    return read_one(lambda answer: numbers.get(answer, other), cell, other)
