"""Randomised response: each person answers at random, and the crowd can still be counted.

Of K categories, a person reports the true one with probability e^eps / (e^eps + K - 1), and each of
the others with probability 1 / (e^eps + K - 1). Nobody but the person sees the true answer.

    >>> survey = RandomizedResponse(epsilon=2.0, categories=10)
    >>> round(survey.keep, 6)
    0.450853
    >>> survey.guarantee()
    Guarantee: epsilon 2, delta 0, replace one person
    >>> import numpy as np
    >>> reports = survey.perturb(np.full(10_000, 3))
    >>> low, high = survey.estimate(reports).intervals(confidence=0.999999999)[3]
    >>> low < 10_000 < high
    True

The coin toss of the text books (heads: the truth; tails: yes or no at random) answers at random
with probability 1/2, which is epsilon = ln 3:

    >>> round(RandomizedResponse.from_noise_parameter(0.5).epsilon, 4)
    1.0986

Reference: Warner, "Randomized Response" (1965); Kairouz, Bonawitz and Ramage, "Discrete
Distribution Estimation under Local Privacy", arXiv:1602.07387 (K-ary).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import RandomizedResponseEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.mechanisms.private_values import as_codes
from sfumato.mechanisms.sampling import bernoulli, uniform_integers

__all__ = ["CountEstimate", "RandomizedResponse", "keep_probability"]

_PRECISION = Context(prec=60, rounding=ROUND_HALF_EVEN)
_LARGEST = 100.0  # beyond this epsilon, lies are rarer than 2^-64, the finest coin used


@final
@dataclass(frozen=True)
class RandomizedResponse:
    """One person's answer among ``categories``, coded 0 .. categories - 1.

    Formal guarantee: epsilon-DP for replacing one person's answer by another. For reports v and
    true answers x, x' the probability of v is p if v is the true answer and q = (1 - p)/(K - 1)
    otherwise, and p / q <= e^epsilon, exactly: p is a fraction rounded down (see
    :func:`keep_probability`) and its coin is exact. Whether a person answers at all is not hidden,
    hence no add/remove guarantee. If every person answers once, this is also the guarantee of all
    reports together.

    Attributes:
        epsilon: the guarantee.
        categories: K, at least 2.
        default: the public code that stands for an answer outside 0 .. K - 1.
        unit: who answers.
    """

    epsilon: float
    categories: int = 2
    default: int = 0
    unit: str = "person"

    def __post_init__(self) -> None:
        epsilon = validation.positive("epsilon", self.epsilon)
        if epsilon < 2**-32:
            validation.fail("epsilon", "at least 2^-32 for an answer to say anything", epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        categories = validation.at_least("categories", self.categories, 2)
        if categories > 2**20:
            validation.fail("categories", "at most 2^20", categories)
        object.__setattr__(self, "categories", categories)
        default = validation.at_least("default", self.default, 0)
        if default >= categories:
            validation.fail("default", f"a category below {categories}", default)
        object.__setattr__(self, "default", default)
        validation.name("unit", self.unit)

    @classmethod
    def from_noise_parameter(cls, noise_parameter: float, categories: int = 2) -> Self:
        """From the probability of answering uniformly at random: e^eps = 1 + K (1 - p) / p."""
        event = RandomizedResponseEvent.from_noise_parameter(noise_parameter, categories)
        return cls(event.epsilon, event.categories)

    @property
    def event(self) -> RandomizedResponseEvent:
        """One answer."""
        return RandomizedResponseEvent(
            self.epsilon, self.categories, Neighbours.REPLACE_ONE, self.unit
        )

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    @cached_property
    def exact_keep(self) -> Fraction:
        """The probability p of reporting the true answer, as the coin has it."""
        return keep_probability(self.epsilon, self.categories)

    @property
    def keep(self) -> float:
        """The probability p of reporting the true answer."""
        return float(self.exact_keep)

    @property
    def switch(self) -> float:
        """The probability q of reporting any one category that is not the true answer."""
        return float((1 - self.exact_keep) / (self.categories - 1))

    @property
    def _advantage(self) -> float:
        """The probability p - q, subtracted before it is rounded."""
        return float(self.exact_keep - (1 - self.exact_keep) / (self.categories - 1))

    def release(self, value: Any, *, coins: Coins = SYSTEM) -> Release:
        """One person's report of the private answer ``value``."""
        report = int(self.perturb([value], coins=coins)[0])
        return Release(report, self.event, self.guarantee(), private=coins.private)

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """One report for each private answer: the bulk form of ``release``.

        Every answer uses up two draws, whatever it is.
        """
        codes = as_codes(values, self.categories, self.default)
        kept = bernoulli(self.exact_keep, codes.size, coins).reshape(codes.shape)
        others = uniform_integers(self.categories - 1, codes.size, coins).reshape(codes.shape)
        # The others are numbered without the true answer: step over it.
        return np.where(kept, codes, others + (others >= codes)).astype(np.int64)

    def estimate(self, reports: ArrayLike) -> CountEstimate:
        """Unbiased counts of the true answers: (c - n q) / (p - q) for c reports of a category."""
        array = np.asarray(reports)
        if array.size == 0 or array.dtype.kind not in "iu":
            validation.fail("reports", "at least one whole number", array.dtype)
        if array.min() < 0 or array.max() >= self.categories:
            validation.fail("reports", f"from 0 to {self.categories - 1}", int(array.max()))
        n = array.size
        seen = np.bincount(array.ravel(), minlength=self.categories)
        counts = (seen - n * self.switch) / self._advantage
        errors = [self.standard_deviation(n, min(max(c / n, 0.0), 1.0)) for c in counts.tolist()]
        return CountEstimate(n, tuple(counts.tolist()), tuple(errors))

    def standard_deviation(self, n: int, frequency: float) -> float:
        """Of the estimated count of a category that a share ``frequency`` of ``n`` people hold.

        sqrt(n f p (1 - p) + n (1 - f) q (1 - q)) / (p - q), by the coins alone. It equals
        sqrt(n (K - 2 + e^eps) / (e^eps - 1)^2 + n f (K - 2) / (e^eps - 1)).
        """
        n = validation.count("n", n)
        f = validation.finite("frequency", frequency)
        if not 0 <= f <= 1:
            validation.fail("frequency", "from 0 to 1", frequency)
        p, q = self.keep, self.switch
        return math.sqrt(n * (f * p * (1 - p) + (1 - f) * q * (1 - q))) / self._advantage


@final
@dataclass(frozen=True)
class CountEstimate:
    """What the reports say of the true answers; public, as they are.

    Attributes:
        n: how many people answered.
        counts: the unbiased estimate for each category; a small one may come out below 0.
        standard_errors: of the counts, by the coins alone, at the estimated counts.
    """

    n: int
    counts: tuple[float, ...]
    standard_errors: tuple[float, ...]

    @property
    def frequencies(self) -> tuple[float, ...]:
        """The counts over n."""
        return tuple(count / self.n for count in self.counts)

    def intervals(self, confidence: float = 0.95) -> tuple[tuple[float, float], ...]:
        """For each count, where it lies with about ``confidence`` (normal approximation)."""
        confidence = validation.open_probability("confidence", confidence)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        pairs = zip(self.counts, self.standard_errors, strict=True)
        return tuple((count - z * error, count + z * error) for count, error in pairs)


def keep_probability(epsilon: float, categories: int) -> Fraction:
    """The p = e^eps / (e^eps + K - 1), rounded down to a multiple of 2^-64, and at least 1 / K.

    Let E be e^eps rounded down (60 digits, less one in the last place). E / (E + K - 1) grows with
    E, so p <= e^eps / (e^eps + K - 1), that is p / q <= e^eps for q = (1 - p) / (K - 1); and
    p >= 1 / K is q / p <= 1.
    """
    exponential = _PRECISION.exp(Decimal(min(epsilon, _LARGEST)))
    below = Fraction(_PRECISION.next_minus(exponential))
    exact = below / (below + categories - 1)
    return max(Fraction(math.floor(exact * 2**64), 2**64), Fraction(1, categories))
