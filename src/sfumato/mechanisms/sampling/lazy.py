"""Lazily exact draws: decide from the first 64 bits, fetch more bits only when they could matter.

A draw is a decision about a real number U, uniform on [0, 1), of which at first 64 bits are known.
NumPy decides all draws of a block at once, *each with a margin that certifies the decision*: had
the remaining bits of U and the exact value of every function been known, the decision would have
been the same. The few draws that the margin leaves open are settled one by one: further words
extend U, and integer arithmetic of growing precision (:mod:`.precise`) decides. An open draw stays
open with probability about 2^-64 per further word, so this ends with probability 1 and the law
of the result is exactly the stated one: total variation distance 0, given ideal coins.

Formal assumptions of the margins: IEEE-754 doubles; ``numpy`` ``exp``, ``log``, ``log1p`` and
``scipy.special.ndtri`` have relative error at most :data:`RELATIVE` = 2^-40 where they are used
(they are documented and tested to a few units of 2^-52, thousands of times better).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins, Words
from sfumato.mechanisms.sampling.precise import Bounds

__all__ = ["RELATIVE", "LazyUniform", "Source", "blocks", "locate", "settle_floor"]

RELATIVE = 2.0**-40
"""Assumed bound on the relative error of NumPy's and SciPy's functions."""

_BLOCK = 1 << 15
"""Draws handled together, so that a block's arrays stay in the processor's cache."""

_TAIL_BITS = 20
"""The share 2^-20 of draws farthest in the tail is always settled exactly (see settle_floor)."""


def blocks(size: int) -> Iterator[slice]:
    """Consecutive slices that cover ``size`` draws."""
    for start in range(0, size, _BLOCK):
        yield slice(start, min(start + _BLOCK, size))


@dataclass
class LazyUniform:
    """A uniform real known to lie in [numerator, numerator + 1) / 2^bits, extended on demand."""

    numerator: int
    bits: int
    coins: Coins

    def extend(self) -> None:
        """Learns 64 further bits."""
        self.numerator = self.numerator << 64 | int(self.coins.words(1)[0])
        self.bits += 64

    def below(self, threshold: Callable[[int], Bounds]) -> bool:
        """Whether this uniform is below a threshold known through bounds at any precision."""
        while True:
            low, high = threshold(self.bits)
            if self.numerator < low:
                return True
            if self.numerator >= high:
                return False
            self.extend()


@dataclass
class Source:
    """Coins dealt out as the first ``bits`` bits of lazily known uniforms.

    Attributes:
        coins: where every bit comes from.
        bits: how many bits are known at first. Always 64 outside tests: with fewer, more draws
            need refinement and the law stays the same, which is what the tests show.
        refined: how many draws needed refinement so far.
    """

    coins: Coins
    bits: int = 64
    refined: int = field(default=0, init=False)

    def first(self, size: int) -> Words:
        """The first bits of ``size`` uniforms on [0, 1), as integers below 2^bits."""
        words = self.coins.words(size)
        return words if self.bits == 64 else words >> np.uint64(64 - self.bits)

    def signed(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``size`` signs (0 for plus, -1 for minus) and the first bits of uniforms on [0, 1/2).

        The second array holds integers a: the uniform, a tail probability, lies in
        [a, a + 1) / 2^bits. Precision is relative there: a tail keeps its leading bits.
        """
        words = self.coins.words(size).view(np.int64)
        if self.bits < 64:
            words = words >> np.int64(64 - self.bits)
        sign = words >> np.int64(63)
        return sign, words ^ sign

    def lazy(self, numerator: int) -> LazyUniform:
        """One of the uniforms dealt out above, ready to be extended."""
        self.refined += 1
        return LazyUniform(int(numerator), self.bits, self.coins)


def locate(holds: Callable[[int], bool], guess: int) -> int:
    """The largest k for which ``holds(k)``, true up to some k and false beyond.

    The guess costs time when wrong, never correctness.
    """
    step, low, high = 1, guess, guess + 1
    while not holds(low):
        low, high, step = low - step, low, 2 * step
    if high == guess + 1:
        step = 1
        while holds(high):
            low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def settle_floor(
    quantile: NDArray[np.float64],
    scale: float,
    offset: NDArray[np.float64] | float,
    numerators: NDArray[np.int64],
    tail: Callable[[int, int], Callable[[int], Bounds]],
    source: Source,
) -> NDArray[np.int64]:
    """The exact floor(scale * z + offset), z >= 0 the magnitude at the lazily known tail q.

    ``quantile`` holds z computed at a / 2^bits. The hazard -d ln q / dz of every law used here is
    at least 0.79 (Laplace 1; Gaussian phi/Q >= sqrt(2/pi), increasing), so over q in
    [a, a + 1) / 2^bits the true z moves by less than 1.27 / a. Draws with a < 2^(bits - 20) are
    always left open; for all others |error of scale z + offset| is at most

        scale (RELATIVE z + 1.27 * 2^(20 - bits) + 2^-45) + a few roundings,

    which the margin below exceeds. The 2^-45 stands for the rounding of a and for the absolute
    error of z near 0.

    Args:
        quantile: z computed in floating point, relative error at most RELATIVE plus the above.
        scale: positive, exactly the law's.
        offset: at most 1 in size, or for a scalar at most ``scale + 1``.
        numerators: a, for q in [a, a + 1) / 2^bits.
        tail: ``tail(i, k)`` gives bounds on Pr[scale * z + offset >= k] / 2 for draw i, the
            threshold below which q must lie.
        source: where refinement takes its bits and how many are known.
    """
    rough = scale * quantile + offset
    spread = scale * (1.3 * 2.0 ** (_TAIL_BITS - source.bits) + 2.0**-44) + 2.0**-48
    margin = RELATIVE * 2.0 * scale * quantile + spread
    near = np.abs(rough - np.rint(rough)) <= margin
    near |= numerators < (1 << max(source.bits - _TAIL_BITS, 0))
    result = np.floor(rough).astype(np.int64)
    for i in np.flatnonzero(near).tolist():
        uniform = source.lazy(numerators[i])
        result[i] = locate(lambda k, i=i, u=uniform: u.below(tail(i, k)), int(result[i]))
    return result
