"""Floats as whole numbers modulo 2^b and back: what secure sums add.

    >>> grid = FixedPoint(bits=32, fraction=20, bound=4.0, participants=10)
    >>> parts = np.array([[0.5, -1.25], [0.25, np.nan]])
    >>> total = sum(grid.encode(part) for part in parts)
    >>> grid.decode(total).tolist()
    [0.75, -1.25]
    >>> grid.error  # of a sum over ten
    4.76837158203125e-06

Formal guarantees
    - Each number is clamped to [-B, B] and rounded to the nearest multiple of 2^-f; what is not
      finite counts as 0. The function is total: no input raises an error.
    - The sum of n <= ``participants`` encodings never wraps: n round(B 2^f) < 2^(b-1) is checked at
      construction. So it is the exact sum of the rounded numbers, and differs from the sum of the
      clamped ones by at most n 2^-(f+1).
    - Decoding rounds to the nearest double, which is exact while |sum| 2^f <= 2^53.

The clamp bounds each coordinate, not a norm; clip before. Noise that is added to encodings needs
room: declare a bound that covers it, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.federated.secure.residues import Residues, check_bits, reduce, to_residues, to_signed

__all__ = ["FixedPoint"]


@final
@dataclass(frozen=True)
class FixedPoint:
    """A grid of numbers that participants agree on before the run.

    Attributes:
        bits: b; sums are modulo 2^b. At most 64.
        fraction: f; numbers are multiples of 2^-f.
        bound: B; each number is clamped to [-B, B]. Declared, never measured.
        participants: the most that are added.
    """

    bits: int
    fraction: int
    bound: float
    participants: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", check_bits(self.bits))
        object.__setattr__(self, "fraction", validation.at_least("fraction", self.fraction, 0))
        object.__setattr__(self, "bound", validation.positive("bound", self.bound))
        object.__setattr__(
            self, "participants", validation.count("participants", self.participants)
        )
        if self.fraction > 1000:
            validation.fail("fraction", "at most 1000", self.fraction)
        if self._limit < 1:
            validation.fail(
                "bound", f"at least 2^-{self.fraction}, one step of the grid", self.bound
            )
        if self.participants * self._limit >= 2 ** (self.bits - 1):
            raise ValueError(
                f"bits must be at least {self._bits_needed} for {self.participants} participants, "
                f"bound {self.bound} and fraction {self.fraction}, got {self.bits}: "
                "a sum could wrap; take more bits, a smaller bound or a smaller fraction"
            )

    @classmethod
    def finest(cls, *, bits: int, bound: float, participants: int) -> FixedPoint:
        """The finest grid on which sums cannot wrap."""
        bound = validation.positive("bound", bound)
        number = validation.count("participants", participants)
        room = Fraction(2 ** (check_bits(bits) - 1)) / (number * Fraction(bound))
        # Rounding adds up to a half to B 2^f, so the last candidate may be one too fine.
        for fraction in range(
            min(room.numerator // room.denominator, 2**1000).bit_length(), -1, -1
        ):
            try:
                return cls(bits, fraction, bound, number)
            except ValueError:
                continue
        raise ValueError(
            f"bits must be more than {bits} for {number} participants and bound {bound}"
        )

    @property
    def error(self) -> float:
        """The most by which a decoded sum of ``participants`` differs: n 2^-(f+1)."""
        return float(Fraction(self.participants, 2 ** (self.fraction + 1)))

    def encode(self, values: ArrayLike) -> Residues:
        """Clamped, rounded, modulo 2^b."""
        numbers = np.asarray(values, np.float64)
        numbers = np.where(np.isfinite(numbers), numbers, 0.0).clip(-self.bound, self.bound)
        # Multiplying by a power of two is exact; |product| is at most the limit, below 2^63.
        return to_residues(np.rint(np.ldexp(numbers, self.fraction)).astype(np.int64), self.bits)

    def decode(self, residues: Residues) -> NDArray[np.float64]:
        """The sum as floats, from residues modulo 2^b (or modulo 2^64)."""
        signed = to_signed(reduce(residues, self.bits), self.bits)
        return np.ldexp(signed.astype(np.float64), -self.fraction)

    @property
    def _limit(self) -> int:
        """The largest whole number that an encoding holds: round(B 2^f), exactly."""
        return round(Fraction(self.bound) * 2**self.fraction)

    @property
    def _bits_needed(self) -> int:
        return (self.participants * self._limit).bit_length() + 1
