"""Exact choices: one of finitely many options, by weight or by the largest noisy score.

Scores are private. They must be finite: a caller maps others to a public default first, because
the ``ValueError`` here depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling.lazy import RELATIVE, LazyUniform, Source, blocks, locate
from sfumato.mechanisms.sampling.precise import Bounds, exp_bounds, log_bounds

__all__ = ["argmax", "choose", "choose_many", "draw_choices", "noisy_argmax"]

NoiseName = Literal["laplace", "exponential", "gumbel"]
Interval = tuple[Fraction, Fraction]


def choose(log_weights: Sequence[float] | NDArray[np.float64], coins: Coins = SYSTEM) -> int:
    """An index i with probability exactly proportional to exp(log_weights[i]).

    This is the exponential mechanism's draw: log_weights = epsilon * score / (2 * sensitivity).
    Each weight is taken as the exact dyadic number it is; differences may be as large as doubles
    allow. See :func:`choose_many` for the exactness claim.
    """
    return int(choose_many(log_weights, 1, coins)[0])


def choose_many(
    log_weights: Sequence[float] | NDArray[np.float64], size: int, coins: Coins = SYSTEM
) -> NDArray[np.int64]:
    """``size`` independent indices, i with probability exactly ∝ exp(log_weights[i]).

    Exactness: total variation distance 0 from the stated law, given ideal coins and the
    floating-point assumption of :mod:`sfumato.mechanisms.sampling.lazy`.

    Raises:
        ValueError: for no weights, or one that is not finite (leave an impossible option out).
    """
    weights = _finite_vector("log_weights", log_weights)
    size = validation.at_least("size", size, 0)
    return draw_choices(weights, size, Source(coins))


def _finite_vector(name: str, values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    # The values are private and stay out of the message.
    remedy = f"{name} must be a non-empty sequence of finite numbers: leave impossible options out"
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(remedy) from None
    if vector.ndim != 1 or vector.size == 0 or not bool(np.isfinite(vector).all()):
        raise ValueError(remedy)
    return vector


def draw_choices(weights: NDArray[np.float64], size: int, source: Source) -> NDArray[np.int64]:
    """:func:`choose_many` for checked arguments and an adjustable number of first bits.

    The floating-point filter: with n weights, exp of a difference d is off by RELATIVE and, for the
    rounding of d > -746, by 2^-43, relatively; n sums of positive terms by n 2^-52; so cumulative
    probabilities are off by less than 2 (2^-39 + n 2^-52), and a uniform by 2^-bits.
    """
    with np.errstate(over="ignore", under="ignore"):
        cumulative = np.cumsum(np.exp(weights - weights.max()))
    cumulative /= cumulative[-1]
    margin = 8.0 * RELATIVE + weights.size * 2.0**-50 + 1.5 * 2.0**-source.bits
    threshold = _ExactShares(weights)
    result = np.empty(size, dtype=np.int64)
    for block in blocks(size):
        words = source.first(block.stop - block.start)
        uniform = words.astype(np.float64) * 2.0**-source.bits
        low = np.searchsorted(cumulative, uniform - margin, side="right")
        high = np.searchsorted(cumulative, uniform + margin, side="right")
        chosen = low.astype(np.int64)
        for i in np.flatnonzero(low != high).tolist():
            chosen[i] = threshold.locate(source.lazy(words[i]), int(low[i]))
        result[block] = chosen
    return result


class _ExactShares:
    """C_k = (weight_0 + ... + weight_(k-1)) / total, bounded at any precision."""

    def __init__(self, weights: NDArray[np.float64]) -> None:
        self._weights = weights
        self._sums: dict[int, tuple[list[int], list[int]]] = {}

    def locate(self, uniform: LazyUniform, guess: int) -> int:
        """The k with C_k <= uniform < C_(k+1)."""
        count = self._weights.size
        return locate(
            lambda k: (
                k <= 0 or (k < count and not uniform.below(lambda prec: self._bounds(k, prec)))
            ),
            min(guess, count - 1),
        )

    def _bounds(self, k: int, prec: int) -> Bounds:
        lows, highs = self._sums.get(prec) or self._sum(prec)
        return (lows[k] << prec) // highs[-1], -(-(highs[k] << prec) // lows[-1])

    def _sum(self, prec: int) -> tuple[list[int], list[int]]:
        """Lower and upper cumulative sums; n bounds of width 4 add up to less than 2^-prec."""
        work = prec + self._weights.size.bit_length() + 8
        top = Fraction(self._weights.max())
        pairs = [exp_bounds(top - Fraction(w), work) for w in self._weights.tolist()]
        lows = list(accumulate((low for low, _ in pairs), initial=0))
        highs = list(accumulate((high for _, high in pairs), initial=0))
        self._sums[prec] = lows, highs
        return lows, highs


def noisy_argmax(
    scores: Sequence[float] | NDArray[np.float64],
    noise: NoiseName,
    scale: float,
    coins: Coins = SYSTEM,
) -> int:
    """The index of the largest score_i + scale * X_i, X_i independent ideal continuous noise.

    Args:
        scores: finite numbers, each the exact dyadic number it is.
        noise: ``"laplace"`` (density exp(-|x|)/2), ``"exponential"`` (exp(-x), x > 0) or
            ``"gumbel"`` (distribution function exp(-exp(-x)); then the index has the law of
            :func:`choose` with log-weights score / scale).
        scale: above 0, taken as the exact dyadic number it is.
        coins: where the bits come from.

    Exactness: the index is the one real arithmetic would give (total variation distance 0), given
    ideal coins and the floating-point assumption of :mod:`sfumato.mechanisms.sampling.lazy`.

    References: Dwork and Roth (2014), section 3.3 (Laplace); McKenna and Sheldon,
    arXiv:2010.12603, and Ding et al., arXiv:2105.07260 (exponential noise is
    permute-and-flip); Gumbel-max: Yellott (1977).
    """
    vector = _finite_vector("scores", scores)
    scale = validation.positive("scale", scale)
    if noise not in _NOISES:
        validation.fail("noise", "'laplace', 'exponential' or 'gumbel'", noise)
    return argmax(vector, noise, scale, Source(coins))


def argmax(scores: NDArray[np.float64], noise: NoiseName, scale: float, source: Source) -> int:
    """:func:`noisy_argmax` for checked arguments and an adjustable number of first bits.

    Each noise is a function of a sign and a tail q on [0, 1/2) known to lie in [a, a + 1) / 2^bits;
    over that interval ln q, hence each noise, moves by at most 1.5/a (2/a for Gumbel).
    """
    rough, precise = _NOISES[noise]
    sign, numerators = source.signed(scores.size)
    tails = np.maximum(numerators, 1).astype(np.float64) * 2.0**-source.bits
    with np.errstate(over="ignore", divide="ignore"):
        # Clipped only where a score cannot win: an upper bound stays one.
        lead = np.maximum((scores - scores.max()) / scale, -1e300)
        drawn = rough(sign < 0, tails)
        spread = 4.0 * RELATIVE * (1.0 + np.abs(lead) + np.abs(drawn)) + 3.0 / numerators
    lower = np.where(lead > -1e300, lead + drawn - spread, -np.inf)
    rivals = np.flatnonzero(lead + drawn + spread >= lower.max()).tolist()
    if len(rivals) == 1:
        return rivals[0]
    top = Fraction(scores.max())
    return _separate(
        {
            i: _Rival(
                (Fraction(scores[i]) - top) / Fraction(scale),
                bool(sign[i]),
                source.lazy(numerators[i]),
                precise,
            )
            for i in rivals
        }
    )


class _Rival:
    """A candidate whose noisy score is known to lie in an interval that shrinks on demand."""

    def __init__(
        self,
        lead: Fraction,
        negative: bool,
        tail: LazyUniform,
        precise: Callable[[bool, Interval, int], Interval],
    ) -> None:
        self._lead, self._negative, self._tail, self._precise = lead, negative, tail, precise

    def refine(self) -> Interval:
        """64 more bits, and the interval they leave."""
        self._tail.extend()
        while self._tail.numerator == 0:
            self._tail.extend()
        one = 1 << self._tail.bits
        ends = Fraction(self._tail.numerator, one), Fraction(self._tail.numerator + 1, one)
        low, high = self._precise(self._negative, ends, 2 * self._tail.bits + 8)
        return self._lead + low, self._lead + high


def _separate(rivals: dict[int, _Rival]) -> int:
    """Refines until one candidate is above all others."""
    while len(rivals) > 1:
        intervals = {i: rival.refine() for i, rival in rivals.items()}
        best = max(low for low, _ in intervals.values())
        rivals = {i: rivals[i] for i, (_, high) in intervals.items() if high >= best}
    return next(iter(rivals))


def _minus_log(ends: Interval, prec: int) -> Interval:
    return -log_bounds(ends[1], prec)[1], -log_bounds(ends[0], prec)[0]


def _laplace(negative: NDArray[np.bool_], q: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(negative, np.log(2.0 * q), -np.log(2.0 * q))


def _laplace_precise(negative: bool, q: Interval, prec: int) -> Interval:
    low, high = _minus_log((2 * q[0], 2 * q[1]), prec)
    return (-high, -low) if negative else (low, high)


def _exponential(negative: NDArray[np.bool_], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """-ln(1 - q) below the median ln 2, -ln q above it: relatively precise at both ends."""
    return np.where(negative, -np.log1p(-q), -np.log(q))


def _exponential_precise(negative: bool, q: Interval, prec: int) -> Interval:
    return _minus_log((1 - q[1], 1 - q[0]) if negative else q, prec)


def _gumbel(negative: NDArray[np.bool_], q: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log(_exponential(negative, q))


def _gumbel_precise(negative: bool, q: Interval, prec: int) -> Interval:
    return _minus_log(_exponential_precise(negative, q, prec), prec)


_Rough = Callable[[NDArray[np.bool_], NDArray[np.float64]], NDArray[np.float64]]
_Precise = Callable[[bool, Interval, int], Interval]
_NOISES: dict[NoiseName, tuple[_Rough, _Precise]] = {
    "laplace": (_laplace, _laplace_precise),
    "exponential": (_exponential, _exponential_precise),
    "gumbel": (_gumbel, _gumbel_precise),
}
