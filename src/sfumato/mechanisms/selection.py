"""Private selection: what the mechanisms that choose one of several candidates share.

A candidate o (a film, a date) has a score s(D, o). Every mechanism here turns scores into log
weights w(o) that one neighbour step moves by at most epsilon/2 (epsilon if ``monotone``), and draws
from w alone by an exact sampler. What differs is the draw.

Weights without rounding errors
    epsilon s / (2 Delta) in floating point is off by a little, by an amount that depends on the
    data. Instead, with h the largest power of two up to 2^-20 epsilon/2 and N = floor(epsilon/2h),

        q(o) = floor(N s(o) / Delta)   in exact integers,      w(o) = h (q(o) - max q).

    *Claim.* If |s(o) - s'(o)| <= Delta then |q(o) - q'(o)| <= N, so h q moves by h N <= epsilon/2.
    *Proof.* x <= x' + N with N whole gives floor(x) <= floor(x' + N) = floor(x') + N.

    Flooring is non-decreasing, so monotone scores stay monotone; subtracting max q shifts all log
    weights alike and changes no law. Both h and q - max q are floats without rounding, because q is
    first raised to at least max q - C for a constant C <= 2^52. That too is harmless: max q moves
    by at most N (and in the direction of the scores), so does the larger of q and max q - C. What
    ties by it lies more than 2^30 Delta behind the best, or has a weight below e^-4096.

    The price: h N falls short of epsilon/2 by less than one part in 2^20, and scores closer than
    Delta/N < 2^-20 Delta may tie.

Monotone scores
    If adding a unit can only raise scores (or only lower them), all scores move the same way and
    the factor 2 can go: counts of votes are monotone under add/remove. Under replace-one nothing
    is: one vote leaves a candidate and joins another.

Candidates are public: declare the list, do not read it off the data. Scores are as exact as they
come; the sensitivity must hold for the numbers handed in, after their own rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.core.sensitivity import Norm, Sensitivity, required
from sfumato.mechanisms.private_values import as_ratio

__all__ = ["Scores", "Selection", "check_monotone", "check_sensitivity", "privacy_loss"]

Scores = Mapping[Any, Any] | Sequence[Any] | NDArray[Any]
"""Private scores: by candidate, or in the order of the candidates."""

_FINENESS = 20  # log weights move in steps of about epsilon / 2 / 2^20
_DEEPEST = 4096  # the log weight below which candidates need not be told apart
_EPSILONS = (2.0**-900, 2.0**900)  # outside, the steps themselves would leave the floats


@dataclass(frozen=True)
class Selection(ABC):
    """A mechanism that chooses one candidate by private scores.

    Attributes:
        epsilon: the pure guarantee of one choice.
        sensitivity: how far one neighbour step moves any one candidate's score: one number, or an
            L-infinity bound over all of them.
        monotone: one step moves all scores in the same direction (add/remove and zero-out only).
        default: the score of a candidate whose score is missing or not a finite number. The
            sensitivity must cover the step from it to a score: 0 for counts, where none is missing.
    """

    epsilon: float
    sensitivity: Sensitivity
    monotone: bool = field(default=False, kw_only=True)
    default: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        epsilon = validation.positive("epsilon", self.epsilon)
        if not _EPSILONS[0] <= epsilon <= _EPSILONS[1]:
            validation.fail("epsilon", "between 2^-900 and 2^900", epsilon)
        object.__setattr__(self, "epsilon", epsilon)
        check_sensitivity(self.sensitivity)
        check_monotone(self.monotone, self.sensitivity)
        object.__setattr__(self, "default", validation.finite("default", self.default))

    @property
    @abstractmethod
    def event(self) -> Event:
        """What one choice amounts to for accounting."""

    @abstractmethod
    def _draw(self, log_weights: NDArray[np.float64], coins: Coins) -> int:
        """The index chosen."""

    @abstractmethod
    def _law(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of each index."""

    @abstractmethod
    def _depth(self, log_odds: float) -> float:
        """A g such that a candidate with log weight -g or less wins with probability e^-log_odds.

        At most that, each candidate by itself.
        """

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, self.sensitivity.neighbours, self.sensitivity.unit)

    def release(
        self, scores: Scores, candidates: Sequence[Any] | None = None, *, coins: Coins = SYSTEM
    ) -> Release:
        """One choice.

        Args:
            scores: private: a score for each candidate, as a mapping or in order.
            candidates: the public list to choose from. A mapping may have other keys (ignored) or
                lack some (``default``), so counts read off the data are safe with it; a mapping
                needs it, because keys that were read off the data would be released with it. For
                scores in order, 0, 1, ... unless given.
            coins: where the randomness comes from.

        Returns:
            The candidate, as the release's value.

        Raises:
            ValueError: for a mapping without candidates, or as many candidates as there are not
                scores. Both are public.
        """
        names, listed = _aligned(scores, candidates, self.default)
        chosen = self._draw(self.log_weights(listed), coins)
        return Release(names[chosen], self.event, self.guarantee(), private=coins.private)

    def log_weights(self, scores: Sequence[Any]) -> NDArray[np.float64]:
        """The exact log weights from which the choice is drawn: private, the largest is 0."""
        step, per_sensitivity = self._grid
        bound = Fraction(self.sensitivity.bound)
        up, down = per_sensitivity * bound.denominator, bound.numerator
        ratios = (as_ratio(score, self.default) for score in scores)
        levels = [up * a // (down * b) for a, b in ratios]
        top = max(levels)
        deepest = min(2**52, int(Fraction(max(_DEEPEST, self.epsilon)) / Fraction(step)))
        return step * np.array([max(level - top, -deepest) for level in levels], dtype=np.float64)

    def probabilities(self, scores: Sequence[Any]) -> NDArray[np.float64]:
        """The probability of each candidate: as private as the scores, for analysis and tests."""
        return self._law(self.log_weights(scores))

    def expected_error(self, scores: Sequence[float]) -> float:
        """How far the chosen score lies below the best, on average: as private as the scores."""
        exact = np.array([Fraction(*as_ratio(score, self.default)) for score in scores])
        return float(self.probabilities(scores) @ (exact.max() - exact).astype(np.float64))

    def score_gap(self, candidates: int, confidence: float = 0.95) -> float:
        """The chosen score is less than this below the best one, with at least ``confidence``.

        By the union bound over ``candidates``; known before any data is read.
        """
        number = validation.count("candidates", candidates)
        miss = 1 - validation.open_probability("confidence", confidence)
        step, per_sensitivity = self._grid
        levels = self._depth(math.log(number / miss)) / step + 1
        return levels * self.sensitivity.bound / per_sensitivity

    @property
    def _grid(self) -> tuple[float, int]:
        """The step h of the log weights, and the number N of steps that Delta amounts to."""
        budget = self.epsilon if self.monotone else self.epsilon / 2
        step = math.ldexp(1.0, math.frexp(budget)[1] - 1 - _FINENESS)
        return step, int(Fraction(budget) / Fraction(step))


def check_sensitivity(sensitivity: object) -> None:
    """Requires a declared bound on each score by itself."""
    required(sensitivity, Norm.LINF)


def check_monotone(monotone: object, sensitivity: Sensitivity) -> None:
    """Requires a plain yes or no, and a relation under which "monotone" has a meaning."""
    if not isinstance(monotone, bool):
        validation.fail("monotone", "True or False", monotone)
    if monotone and sensitivity.neighbours is Neighbours.REPLACE_ONE:
        raise ValueError(
            "monotone must be False under replace-one, where one unit can raise one score and "
            "lower another: declare the sensitivity under add-remove"
        )


def privacy_loss(law: NDArray[np.float64], neighbour: NDArray[np.float64]) -> float:
    """The largest |ln(Pr[o] / Pr'[o])| over all outputs of two laws on one finite set."""
    possible = (law > 0) | (neighbour > 0)
    with np.errstate(divide="ignore"):
        return float(np.max(np.abs(np.log(law[possible]) - np.log(neighbour[possible]))))


def _aligned(
    scores: Scores, candidates: Sequence[Any] | None, default: float
) -> tuple[Sequence[Any], list[Any]]:
    """The candidates and their scores, in one order."""
    if isinstance(scores, Mapping):
        if candidates is None:
            raise ValueError(
                "candidates must be given for scores by name, got None: declare the public list to "
                "choose from, since the names in a private table are private"
            )
        names = candidates
        listed = [scores.get(name, default) for name in names]
    else:
        if isinstance(scores, np.ndarray) and scores.ndim != 1:
            validation.fail("scores", "one number for each candidate", scores.shape)
        # tolist gives Python's own numbers, which as_ratio reads fastest.
        listed = list(cast(Any, scores).tolist() if isinstance(scores, np.ndarray) else scores)
        names = range(len(listed)) if candidates is None else candidates
    if len(names) != len(listed) or not listed:
        validation.fail(
            "candidates", f"as many as the scores ({len(listed)}), at least one", len(names)
        )
    return names, listed
