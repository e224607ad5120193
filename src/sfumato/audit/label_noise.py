"""Is the noise on votes as large as it is said to be? Played, one answer a game.

Labels of a whole plan tell little, so that far too little noise may pass for enough. One noise at a
time tells more: for the answers, votes that surely pass any check; for the check, a top count on
either side of the threshold. The two tables of such a game differ by many moved votes, not by one,
because noise hides one vote and does not hide as many as it is large.

A label for one of two classes follows from one number: the votes' difference, or for a check the
top count, with noise of law G and scale s. Between two tables it moves by a distance D. The laws
of both noises are log-concave, so no test of the outcome beats a threshold, and

    G^-1(rate on one table) - G^-1(rate on the other) <= D / s

for every event: for Gaussian noise this is mu-GDP for a group (Dong, Roth and Su,
arXiv:1905.02383, theorem 2.14), with D / s as many times mu = sqrt 2 / sigma, or 1 / sigma of a
check, as votes were moved. Counts that break it at the declared s refute the noise that the claim
rests on. They say nothing of the epsilon of labels at a delta: what they bound is s, from above.

    >>> game = answers_game("gaussian", 8.0, games=4000)
    >>> game.inside, game.outside, game.refutes_below
    ((16, 32), (32, 16), 0.87)
    >>> print(game.found((1830, 2000), (170, 2000)))
    noise of answers at most 8.919 (0.99 confidence): consistent with 8 as declared
    >>> print(game.found((1995, 2000), (5, 2000)))
    noise of answers at most 4.61 (0.99 confidence): REFUTES 8 as declared
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import lambertw, ndtr, ndtri
from scipy.stats import binom

from sfumato.audit.findings import Verdict
from sfumato.audit.intervals import Rates
from sfumato.core import validation
from sfumato.core.rates import lower_rate, upper_rate

__all__ = ["NoiseFinding", "NoiseGame", "answers_game", "check_game"]

_SURE = 10.0  # standard deviations above a threshold: passes
_MISSED = 0.05  # how often noise that is found may be overlooked
_LEADS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # scales, of which the strongest is taken
_FACTORS = np.arange(1, 100) / 100
_DOWN = 1 - 1e-9  # of what is shown, for rounding
Table = tuple[int, int]
"""Votes for two classes."""


@dataclass(frozen=True)
class NoiseGame:
    """Two tables of votes, and an event that is likelier on the first: the less noise, the more.

    Attributes:
        name: whose noise: "answers" or "checks".
        noise: "gaussian" or "laplace".
        declared: its scale.
        inside: votes on which the event is likely.
        outside: votes on which it is not.
        moved: how many votes lie between them.
        distance: by how much the number moves that noise is added to.
        confidence: of a refutation.
        rates: the event's probabilities on either table, by the noise's scale.
        games: on each table.
    """

    name: str
    noise: str
    declared: float
    inside: Table
    outside: Table
    moved: int
    distance: int
    confidence: float
    games: int
    rates: Callable[[float], tuple[float, float]] = field(repr=False, compare=False)

    @property
    def event(self) -> str:
        """What is counted."""
        return "the second label" if self.name == "answers" else "an answer"

    def happened(self, labels: Iterable[int | None]) -> Rates:
        """How often; of the answers' noise, only answers count."""
        seen = list(labels)
        if self.name == "checks":
            return sum(label is not None for label in seen), len(seen)
        given = [label for label in seen if label is not None]
        return sum(label == 1 for label in given), len(given)

    def found(self, inside: Rates, outside: Rates) -> NoiseFinding:
        """What counts of the event show."""
        return NoiseFinding(self, self._at_most(inside, outside), inside, outside)

    def _at_most(self, inside: Rates, outside: Rates) -> float:
        """The largest scale that goes with such counts."""
        if not inside[1] or not outside[1]:
            return math.inf
        alpha = (1 - self.confidence) / 2
        high, low = lower_rate(*inside, alpha), upper_rate(*outside, alpha)
        if high <= low:
            return math.inf
        quantile = _QUANTILES[self.name, self.noise]
        return self.distance / ((quantile(high) - quantile(low)) * _DOWN)

    @property
    def refutes_below(self) -> float:
        """Noise below this share of what is declared is found, 19 times of 20; 0 for none."""
        low, high = 0, len(_FACTORS)  # the number of factors that are found
        while low < high:
            middle = (low + high + 1) // 2
            found = self._finds(float(_FACTORS[middle - 1]))
            low, high = (middle, high) if found else (low, middle - 1)
        return float(_FACTORS[low - 1]) if low else 0.0

    def _finds(self, share: float) -> bool:
        inside, outside = self.rates(share * self.declared)
        counts = (
            (int(binom.ppf(_MISSED / 2, self.games, inside)), self.games),
            (int(binom.ppf(1 - _MISSED / 2, self.games, outside)), self.games),
        )
        return self._at_most(*counts) < self.declared


@dataclass(frozen=True)
class NoiseFinding:
    """The noise is at most so large, with the game's confidence.

    Attributes:
        game: what was played.
        at_most: the noise's scale.
        inside: how often the event happened on the game's first table.
        outside: and on its second.
        as_of_epsilon: what the plan costs with noise of that size; None if nobody said.
    """

    game: NoiseGame
    at_most: float
    inside: Rates
    outside: Rates
    as_of_epsilon: float | None = None

    @property
    def refuted(self) -> bool:
        """Whether the noise is smaller than declared."""
        return self.at_most < self.game.declared

    @property
    def verdict(self) -> Verdict:
        """In a word."""
        return Verdict.REFUTED if self.refuted else Verdict.CONSISTENT

    def __str__(self) -> str:
        word = "REFUTES" if self.refuted else "consistent with"
        return (
            f"noise of {self.game.name} at most {self.at_most:.4g} ({self.game.confidence:.4g} "
            f"confidence): {word} {self.game.declared:.4g} as declared"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        game = self.game
        return {
            "audit": f"noise of {game.name}",
            "noise": game.noise,
            "noise_declared": game.declared,
            "noise_at_most": self.at_most if math.isfinite(self.at_most) else "inf",
            "noise_as_of_epsilon": self.as_of_epsilon,
            "refutes_noise_below": game.refutes_below * game.declared,
            "confidence": game.confidence,
            "verdict": self.verdict.value,
            "facts": {
                "votes": [list(game.inside), list(game.outside)], "votes_moved": game.moved,
                "event": game.event, "inside": list(self.inside), "outside": list(self.outside),
            },
        }  # fmt: skip


def answers_game(
    noise: str,
    scale: float,
    *,
    games: int,
    threshold: float = 0.0,
    sigma_check: float = 0.0,
    confidence: float = 0.99,
) -> NoiseGame:
    """The tables that show most of the answers' noise.

    Args:
        noise: "gaussian" or "laplace".
        scale: its standard deviation, or Laplace's scale.
        games: in all, half of them on either table.
        threshold: of a check before answers, if there is one: both tables have far more votes.
        sigma_check: its noise.
        confidence: of a refutation.
    """
    validation.positive("scale", scale)
    each = validation.at_least("games", games, 2) // 2
    validation.open_probability("confidence", confidence)
    if ("answers", noise) not in _QUANTILES:
        validation.fail("noise", "'gaussian' or 'laplace'", noise)
    behind = _gaussian_behind if noise == "gaussian" else _laplace_behind
    base = max(0, math.ceil(threshold + _SURE * sigma_check))

    def made(moved: int) -> NoiseGame:
        first, second = (base + moved, base + 2 * moved), (base + 2 * moved, base + moved)
        return NoiseGame(
            "answers", noise, scale, first, second, moved, 2 * moved, confidence, each,
            lambda x: (behind(-moved / x), behind(moved / x)),
        )  # fmt: skip

    return _strongest(made(moved) for moved in sorted({_votes(z * scale) for z in _LEADS}))


def check_game(
    threshold: float, sigma: float, *, games: int, confidence: float = 0.99
) -> NoiseGame:
    """The tables that show most of a check's Gaussian noise: top counts around its threshold.

    Args:
        threshold: to reach, by the votes for the first class.
        sigma: of the check's noise.
        games: in all, half of them on either table.
        confidence: of a refutation.
    """
    validation.positive("sigma", sigma)
    validation.open_probability("confidence", confidence)
    each = validation.at_least("games", games, 2) // 2

    def made(z: float) -> NoiseGame:
        low = max(0, math.floor(threshold - z * sigma))
        high = max(low + 1, math.ceil(threshold + z * sigma))
        return NoiseGame(
            "checks", "gaussian", sigma, (high, 0), (low, 0), high - low, high - low, confidence,
            each,
            lambda x: (float(ndtr((high - threshold) / x)), float(ndtr((low - threshold) / x))),
        )  # fmt: skip

    return _strongest(made(z) for z in _LEADS)


def _strongest(games: Iterable[NoiseGame]) -> NoiseGame:
    """The one that finds the smallest error; chosen by the law alone, before anything is drawn."""
    return max(games, key=lambda game: game.refutes_below)


def _votes(number: float) -> int:
    return max(1, round(number))


def _gaussian_behind(lead: float) -> float:
    """How often the second class wins, behind by so many standard deviations."""
    return float(ndtr(-lead / math.sqrt(2)))


def _laplace_behind(lead: float) -> float:
    """The same by scales of Laplace noise."""
    rare = math.exp(-abs(lead)) * (2 + abs(lead)) / 4
    return rare if lead >= 0 else 1 - rare


def _gaussian_quantile(rate: float) -> float:
    """Of the difference of two standard normal numbers."""
    return math.sqrt(2) * float(ndtri(rate))


def _laplace_quantile(rate: float) -> float:
    """Of the difference of two Laplace numbers: the inverse of e^(-y) (2 + y) / 4."""
    tail = min(rate, 1 - rate)
    far = -2 - float(np.real(lambertw(-4 * tail * math.exp(-2), k=-1)))
    return math.copysign(max(far, 0.0), rate - 0.5)


_QUANTILES: dict[tuple[str, str], Callable[[float], float]] = {
    ("answers", "gaussian"): _gaussian_quantile,
    ("answers", "laplace"): _laplace_quantile,
    ("checks", "gaussian"): lambda rate: float(ndtri(rate)),
}
