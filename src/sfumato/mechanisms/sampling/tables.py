"""Sampling by inversion from a table of cumulative probabilities, exactly.

For a law on the integers with C_k = Pr[K < k], a uniform U gives K = the largest k with U >= C_k.
The table keeps floor(2^64 C_k). A 64-bit word w settles U against C_k unless w equals that floor:
w above it means U >= C_k, w below it means U < C_k. Only such a tie (probability 2^-64 for each
threshold) needs more bits.

Most words do not even need a search: a guide indexed by a word's leading bits names k wherever no
threshold has the same leading bits.

Reference: Chen and Asau, "On generating random variates from an empirical distribution", AIIE
Transactions 6 (1974), for the guide; inversion itself is folklore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Words
from sfumato.mechanisms.sampling.lazy import Source, blocks, locate
from sfumato.mechanisms.sampling.precise import Bounds, exp_bounds

__all__ = ["HalfSums", "Table", "gaussian_table", "gaussian_threshold", "symmetric_table"]

HalfSums = Callable[[int], list[int]]
"""From a precision to B_0 = 0, B_1, B_2, ... in units of 2^-prec, each within [-1, 2] units.

B_k = Pr[|K| < k] / 2 of a law symmetric about 0; the list ends where the rest is below a unit.
"""

_OPEN = np.int32(np.iinfo(np.int32).min)
_LOW_64 = (1 << 64) - 1


@dataclass(frozen=True)
class Table:
    """Thresholds of a law on the integers, ready for :meth:`draw`.

    Attributes:
        floors: floor(2^bits C_k) for k = first + 1, first + 2, ..., ascending.
        first: the value below every tabulated threshold.
        guide: the value for each pattern of leading bits, or a mark where a search is needed.
        shift: how many bits of a word lie below its leading ones.
        threshold: bounds on any C_k, tabulated or not, at any precision.
    """

    floors: Words
    first: int
    guide: NDArray[np.int32]
    shift: np.uint64
    threshold: Callable[[int, int], Bounds]

    def draw(self, size: int, source: Source) -> NDArray[np.int64]:
        """``size`` independent draws with exactly the table's law."""
        result = np.empty(size, dtype=np.int64)
        for block in blocks(size):
            result[block] = self._look_up(source.first(block.stop - block.start), source)
        return result

    def _look_up(self, words: Words, source: Source) -> NDArray[np.int64]:
        leading = (words >> self.shift).view(np.int64)
        result = np.take(self.guide, leading, mode="clip").astype(np.int64)
        hard = np.flatnonzero(result == _OPEN)
        sought = words[hard]
        above = np.searchsorted(self.floors, sought, side="right")
        result[hard] = above + self.first
        tied = (above > 0) & (self.floors[above - 1] == sought)
        for i in hard[tied].tolist():
            result[i] = self._refine(int(words[i]), int(result[i]), source)
        return result

    def _refine(self, word: int, guess: int, source: Source) -> int:
        uniform = source.lazy(word)
        return locate(lambda k: not uniform.below(partial(self.threshold, k)), guess)


def _table(floors: Words, first: int, bits: int, threshold: Callable[[int, int], Bounds]) -> Table:
    guide_bits = min(bits, max(12, min(18, floors.size.bit_length() + 5)))
    shift = np.uint64(bits - guide_bits)
    starts = np.arange(1 << guide_bits, dtype=np.uint64) << shift
    before = np.searchsorted(floors, starts, side="left")
    after = np.append(before[1:], floors.size)
    guide = np.where(before == after, before + first, _OPEN).astype(np.int32)
    return Table(floors, first, guide, shift, threshold)


@lru_cache(maxsize=16)
def gaussian_table(sigma: float, bits: int = 64) -> Table:
    """The table of Pr[K = k] ∝ exp(-k^2 / (2 sigma^2))."""
    return symmetric_table(partial(_half_sums, sigma), bits)


def symmetric_table(half_sums: HalfSums, bits: int) -> Table:
    """The table of a law symmetric about 0.

    With B_k = Pr[|K| < k] / 2, C_k = 1/2 + B_k and C_(1-k) = 1/2 - B_k for k >= 1. Both floors
    follow from that of B_k, which is no multiple of 2^-bits (certified: both of its bounds have the
    same floor and are not that multiple).
    """
    half = 1 << (bits - 1)
    upper = _certified_floors(half_sums, bits)
    floors = [half - 1 - b for b in reversed(upper)] + [half + b for b in upper]
    words = np.array(floors, dtype=np.uint64)
    return _table(words, -len(upper), bits, partial(_symmetric_threshold, half_sums))


def _certified_floors(half_sums: HalfSums, bits: int) -> list[int]:
    """floor(2^bits B_k) for k = 1, 2, ..., up to the first that is the last below 1/2."""
    last = (1 << (bits - 1)) - 1
    floors: list[int] = []
    for b in half_sums(bits + 64)[1:]:
        # The bounds b - 1 and b + 2 lie strictly between the same two integers unless:
        inside = 1 < b & _LOW_64 < _LOW_64 - 2
        floors.append(b >> 64 if inside else _certified_floor(half_sums, len(floors) + 1, bits))
        if floors[-1] == last:
            break
    return floors


def _certified_floor(half_sums: HalfSums, k: int, bits: int) -> int:
    """floor(2^bits B_k), from bounds made tighter until they agree on it."""
    extra = 64
    while True:
        low, high = _half_bounds(half_sums, k, bits + extra)
        high = min(high, (1 << (bits + extra - 1)) - 1)  # B_k is below 1/2
        if low >> extra == high >> extra and low & ((1 << extra) - 1):
            return low >> extra
        extra *= 2


def gaussian_threshold(sigma: float, k: int, prec: int) -> Bounds:
    """Bounds on C_k = Pr[K < k] of the discrete Gaussian, for any integer k."""
    return _symmetric_threshold(partial(_half_sums, sigma), k, prec)


def _symmetric_threshold(half_sums: HalfSums, k: int, prec: int) -> Bounds:
    """Bounds on C_k = Pr[K < k] for any integer k."""
    half = 1 << (prec - 1)
    low, high = _half_bounds(half_sums, k if k > 0 else 1 - k, prec)
    return (half + low, half + high) if k > 0 else (half - high, half - low)


def _half_bounds(half_sums: HalfSums, k: int, prec: int) -> Bounds:
    """Bounds on B_k = Pr[|K| < k] / 2 for k >= 1; it approaches 1/2 from below."""
    sums = half_sums(prec)
    if k < len(sums):
        return sums[k] - 1, sums[k] + 2
    return sums[-1] - 1, 1 << (prec - 1)


@lru_cache(maxsize=8)
def _half_sums(sigma: float, prec: int) -> list[int]:
    """B_0 = 0, B_1, B_2, ... in units of 2^-prec, each within [-1, 2] units of the truth.

    Fixed point with e_j = exp(-j^2 / (2 sigma^2)) by two multiplications a step:

        r_1 = e_1 = rho,   r_(j+1) = r_j rho^2,   e_(j+1) = e_j r_(j+1),   rho = exp(-1/(2 sigma^2))

    All factors lie in [0, 1], so errors only add: after n steps r is off by at most 10n working
    units, e by 6n^2 and the sum by 6n^3, that is by less than 2^-12 units of the result: the
    working precision has 3 log2(n) + 16 bits to spare. The tail left out is below 2^-(prec + 30).
    """
    variance = Fraction(sigma) ** 2
    steps = _steps(variance, prec)
    work = prec + 3 * steps.bit_length() + 16
    rho = exp_bounds(1 / (2 * variance), work)[0]
    square = rho * rho >> work
    term, ratio, total = 1 << work, rho, -1 << (work - 1)  # e_0 counts half
    sums = [0]
    for _ in range(steps):
        total += term
        sums.append(total)
        term = term * ratio >> work
        ratio = ratio * square >> work
    return [(s << (prec - 1)) // total for s in sums]


def _steps(variance: Fraction, prec: int) -> int:
    """The least n with exp(-n^2 / (2 variance)) n below 2^-(prec + 30), the tail's bound."""

    def enough(n: int) -> bool:
        return 5 * n * n >= 7 * variance * (prec + 32 + n.bit_length())

    return locate(lambda n: n < 2 or not enough(n), 1) + 1
