"""Bounded numbers as whole multiples of a public step, so that sums are exact in every engine.

Floating-point sums depend on the order in which an engine adds, and their rounding leaks. So each
value is clamped to declared bounds, taken relative to a centre, and rounded to a multiple of a step
that is a power of two and at most 2^-23 of the range. Whole numbers up to 2^24 can be added in 64
bits for five hundred billion rows.

    >>> grid = Grid(0.0, 24.0)
    >>> grid.most, grid.step
    (12582912, 1.9073486328125e-06)
    >>> grid.value(grid.most)
    24.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ibis

from sfumato.core import validation
from sfumato.queries.engine import Value, either

__all__ = ["Grid", "bin_number", "declared_bounds"]

_BITS = 24
_LARGEST_BOUND = 1e100


def declared_bounds(name: str, lower: object, upper: object) -> tuple[float, float]:
    """Bounds of a column between which the arithmetic of doubles neither overflows nor underflows.

    Raises:
        ValueError: for bounds beyond 1e100, or closer than 1e-100 to each other.
    """
    low, high = validation.interval(name, lower, upper)
    for bound in (low, high):
        if abs(bound) > _LARGEST_BOUND:
            validation.fail(name, f"within {_LARGEST_BOUND:g} of 0", bound)
    if not high - low > 1 / _LARGEST_BOUND:
        validation.fail(name, f"more than {1 / _LARGEST_BOUND:g} apart", (low, high))
    return low, high


@dataclass(frozen=True)
class Grid:
    """Numbers in [lower, upper], as whole multiples of ``step`` from ``centre``.

    ``least`` and ``most`` bound the whole number that stands for any row, and ``reach`` its
    magnitude: what one row may add to a sum, the basis of its sensitivity.
    """

    lower: float
    upper: float
    centre: float = 0.0

    def __post_init__(self) -> None:
        lower, upper = declared_bounds("bounds", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    @classmethod
    def centred(cls, lower: float, upper: float) -> Grid:
        """About the middle of the range, which halves what one row may add."""
        low, high = declared_bounds("bounds", lower, upper)
        return cls(low, high, low / 2 + high / 2)

    @property
    def step(self) -> float:
        """A power of two, so that dividing by it does not round."""
        furthest = max(abs(self.lower - self.centre), abs(self.upper - self.centre))
        return 2.0 ** (math.ceil(math.log2(furthest)) - _BITS)

    @property
    def least(self) -> int:
        """The whole number of the lower bound."""
        return math.floor((self.lower - self.centre) / self.step + 0.5)

    @property
    def most(self) -> int:
        """The whole number of the upper bound."""
        return math.floor((self.upper - self.centre) / self.step + 0.5)

    @property
    def reach(self) -> int:
        """The largest magnitude one row may have."""
        return max(abs(self.least), abs(self.most))

    def value(self, whole: float) -> float:
        """What a sum of whole numbers stands for, relative to the centre."""
        return whole * self.step

    def whole(self, number: float) -> int:
        """The whole number that stands for a public number: what ``encode`` gives for it."""
        offset = min(max(number, self.lower), self.upper) - self.centre
        scaled = 0.0 if abs(offset) < self.step / 4 else offset * (1 / self.step)
        return min(max(math.floor(scaled + 0.5), self.least), self.most)

    def encode(self, number: Value) -> Value:
        """A finite double or NULL as a whole number or NULL; defined on every row.

        The clamp on whole numbers comes last: the bound holds whatever floating point did before.
        """
        offset = either(
            number >= self.upper,
            self.upper - self.centre,
            either(number <= self.lower, self.lower - self.centre, number - self.centre),
        )
        # Below a quarter of a step the product could underflow, which PostgreSQL refuses.
        scaled = either(offset.abs() < self.step / 4, 0.0, offset * (1 / self.step))
        whole = (scaled + 0.5).floor().cast("int64")
        clamped = either(
            whole > self.most, self.most, either(whole < self.least, self.least, whole)
        )
        return either(number.isnull(), ibis.null("int64"), clamped.cast("int64"))

    def encode_square(self, number: Value) -> Value:
        """The square of the encoded number, in units of ``step`` squared times 2^24.

        Between 0 and ``square_reach``.
        """
        whole = self.encode(number).cast("float64")
        squared = (whole * whole * 2.0**-_BITS + 0.5).floor().cast("int64")
        return either(squared > self.square_reach, self.square_reach, squared).cast("int64")

    @property
    def square_reach(self) -> int:
        """The largest square one row may have."""
        return math.floor(self.reach * self.reach * 2.0**-_BITS + 0.5)

    def square_value(self, whole: float) -> float:
        """What a sum of encoded squares stands for."""
        return whole * self.step * self.step * 2.0**_BITS


def bin_number(number: Value, lower: float, upper: float, bins: int) -> Value:
    """Which of ``bins`` equal parts of [lower, upper] holds a number, from 0; clamped, or NULL."""
    width = (upper - lower) / bins
    offset = either(number >= upper, upper - lower, either(number <= lower, 0.0, number - lower))
    scaled = either(offset.abs() < width / 4, 0.0, offset * (1 / width))
    index = scaled.floor().cast("int64")
    clamped = either(index >= bins, bins - 1, either(index < 0, 0, index))
    return either(number.isnull(), ibis.null("int64"), clamped.cast("int64"))
