"""The averaging attack: ask the same noisy question again and again, and average the noise away.

What the attacker sees: the answers to one question, asked k times, each with fresh noise of the
same law. Noise of standard deviation s averages to s / sqrt(k), so the truth is cornered at a rate
that only a budget stops: k answers cost about k times (pure) or sqrt(k) times the epsilon of one.

    >>> table = estimate(SLIDE_RESPONSES, confidence=0.9)
    >>> print(table)
    5 queries: 3.092 +/- 1.558 (90%), from 1.534 to 4.651

The lecture that printed these five answers gives 1.696 to 4.484. It divided by k instead of k - 1
in the standard deviation, which makes the interval too short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["SLIDE_INTERVAL", "SLIDE_RESPONSES", "Estimate", "attack", "estimate"]

SLIDE_RESPONSES = (2.915, 1.882, 1.292, 4.026, 5.346)
"""Five answers to "how many people have a bad credit rating?", printed with noise of sd 2."""

SLIDE_INTERVAL = (1.696, 4.484)
"""The 90 % interval printed with them."""


@dataclass(frozen=True)
class Estimate:
    """What the attacker knows after so many answers.

    Attributes:
        queries: the number of answers.
        mean: their average, the estimate.
        half_width: the truth lies within this of the mean ...
        confidence: ... in this share of attacks.
        known_noise: whether the noise's law was used, which is public, or its spread was estimated.
    """

    queries: int
    mean: float
    half_width: float
    confidence: float
    known_noise: bool

    @property
    def interval(self) -> tuple[float, float]:
        """The confidence interval."""
        return self.mean - self.half_width, self.mean + self.half_width

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.queries} queries: {self.mean:.4g} +/- {self.half_width:.4g} "
            f"({self.confidence:.0%}), from {low:.4g} to {high:.4g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the interval's ends."""
        low, high = self.interval
        return asdict(self) | {"lower": low, "upper": high}


def estimate(
    responses: ArrayLike, confidence: float = 0.9, noise_sd: float | None = None
) -> Estimate:
    """The average of ``responses`` with its confidence interval.

    With ``noise_sd`` (a mechanism's noise is public) the half-width is z sd / sqrt(k); without it,
    Student's t with k - 1 degrees of freedom and the answers' own spread.
    """
    from scipy import stats  # slow to import, and only needed here

    answers: NDArray[np.float64] = np.asarray(responses, dtype=np.float64).ravel()
    confidence = validation.open_probability("confidence", confidence)
    k, tail = len(answers), (1 + confidence) / 2
    if noise_sd is None:
        validation.at_least("number of responses", k, 2)
        quantile, sd = float(stats.t.ppf(tail, k - 1)), float(np.std(answers, ddof=1))
    else:
        validation.at_least("number of responses", k, 1)
        quantile, sd = float(stats.norm.ppf(tail)), validation.positive("noise_sd", noise_sd)
    half_width = quantile * sd / math.sqrt(k)
    return Estimate(k, float(answers.mean()), half_width, confidence, noise_sd is not None)


def attack(
    ask: Callable[[int], ArrayLike],
    queries: Sequence[int] = (5, 50, 500),
    confidence: float = 0.9,
    noise_sd: float | None = None,
) -> list[Estimate]:
    """Asks as often as the largest of ``queries`` and shows what each prefix reveals.

    Args:
        ask: the target: given a number, that many noisy answers to one question.
        queries: after how many answers to look, in increasing order.
        confidence: of the intervals.
        noise_sd: the noise's standard deviation, where it is known.
    """
    counts = [validation.count("queries", k) for k in queries]
    if counts != sorted(set(counts)) or not counts:
        validation.fail("queries", "one or more increasing numbers", list(queries))
    answers = np.asarray(ask(counts[-1]), dtype=np.float64).ravel()
    return [estimate(answers[:k], confidence, noise_sd) for k in counts]
