"""How well an attribute was guessed: of members, of others, with the model and without it.

Three differences are kept apart. Success less imputation is what the model adds to the attacker's
prior. Success on members less success on others, the advantage, is what training on these people
adds. Both come with limits.

    >>> inside = Successes(people=200, right=150, imputed=100, both=90)
    >>> outside = Successes(people=200, right=110, imputed=100, both=95)
    >>> print(AttributeResult(inside, outside, queries=800))
    attribute guessed for 75.0% of 200 members (50.0% without the model) and 55.0% of 200 others;
    advantage +0.200 (+0.104 to +0.293, 95%)

Results are measured with private data: they are for the curator, never for publication.

References: Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in machine learning", CSF 2018,
arXiv:1709.01604, definition 5; Newcombe, "Interval estimation for the difference between
independent proportions", Statistics in Medicine 17 (1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

from sfumato.core import validation
from sfumato.core.rates import lower_rate, rate_interval, upper_rate

__all__ = ["AttributeResult", "Successes", "difference_interval"]


@final
@dataclass(frozen=True)
class Successes:
    """Right guesses about one group of people, with the model and without. For the curator only.

    Attributes:
        people: how many.
        right: how many guesses with the model were right.
        imputed: how many guesses from the prior alone were right.
        both: how many were right either way.
        error: the mean distance of the model's guesses from the truth; None for categories.
        imputed_error: that of the guesses from the prior.
        confidence: of the interval.
    """

    people: int
    right: int
    imputed: int
    both: int
    error: float | None = None
    imputed_error: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        validation.open_probability("confidence", self.confidence)

    @property
    def success(self) -> float:
        """The share of right guesses with the model."""
        return self.right / self.people

    @property
    def imputation(self) -> float:
        """The share of right guesses from the prior alone."""
        return self.imputed / self.people

    @property
    def gain(self) -> float:
        """How much more often the model's guess is right than the prior's."""
        return (self.right - self.imputed) / self.people

    @property
    def gain_interval(self) -> tuple[float, float]:
        """Where the gain lies, with at least the confidence.

        The two kinds of guesses are about the same people. Only people for whom just one of them is
        right count; both shares of these have exact limits, each held to half the allowed error.
        """
        alpha = (1 - self.confidence) / 4
        model, prior, n = self.right - self.both, self.imputed - self.both, self.people
        return (
            lower_rate(model, n, alpha) - upper_rate(prior, n, alpha),
            upper_rate(model, n, alpha) - lower_rate(prior, n, alpha),
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "people": self.people,
            "right": self.right,
            "success": self.success,
            "imputation": self.imputation,
            "gain": self.gain,
            "gain_interval": list(self.gain_interval),
            "confidence": self.confidence,
            "mean_error": self.error,
            "imputation_mean_error": self.imputed_error,
        }


@final
@dataclass(frozen=True)
class AttributeResult:
    """How well an attribute was guessed. For the curator only: it was measured with private data.

    Attributes:
        members: guesses about people whom the model was trained on.
        others: guesses about other people of the same kind.
        queries: how many questions were asked.
        confidence: of the interval.
    """

    members: Successes
    others: Successes
    queries: int
    confidence: float = 0.95

    def __post_init__(self) -> None:
        validation.open_probability("confidence", self.confidence)

    @property
    def advantage(self) -> float:
        """Success on members less success on others (Yeom et al.)."""
        return self.members.success - self.others.success

    @property
    def advantage_interval(self) -> tuple[float, float]:
        """Where the advantage lies, with about the confidence; see :func:`difference_interval`."""
        inside, outside = self.members, self.others
        return difference_interval(
            inside.right, inside.people, outside.right, outside.people, self.confidence
        )

    def __str__(self) -> str:
        low, high = self.advantage_interval
        inside, outside = self.members, self.others
        return (
            f"attribute guessed for {inside.success:.1%} of {inside.people:,} members "
            f"({inside.imputation:.1%} without the model) and {outside.success:.1%} of "
            f"{outside.people:,} others; advantage {self.advantage:+.3f} ({low:+.3f} to "
            f"{high:+.3f}, {100 * self.confidence:.4g}%)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "members": self.members.to_dict(),
            "others": self.others.to_dict(),
            "advantage": self.advantage,
            "advantage_interval": list(self.advantage_interval),
            "confidence": self.confidence,
            "queries": self.queries,
        }


def difference_interval(
    right: int, people: int, other_right: int, other_people: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Where the difference of two independent rates lies, with about this confidence.

    Newcombe's rule (his method 10) on Clopper and Pearson's limits (l, u) of each rate p: from
    p1 - p2 - sqrt((p1 - l1)^2 + (u2 - p2)^2) to p1 - p2 + sqrt((u1 - p1)^2 + (p2 - l2)^2).
    """
    one, two = right / people, other_right / other_people
    low1, high1 = rate_interval(right, people, confidence)
    low2, high2 = rate_interval(other_right, other_people, confidence)
    return (
        one - two - math.hypot(one - low1, high2 - two),
        one - two + math.hypot(high1 - one, two - low2),
    )
