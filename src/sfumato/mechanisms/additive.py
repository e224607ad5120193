"""Additive noise: what Laplace, Gaussian and their whole-number kin share.

Each of them adds independent noise of one public law to every coordinate of a value, so each knows
its event, its guarantee and its error bars before any value exists. What is shared is the handling
of the value itself, which is total (nothing a row may hold raises an error or changes another
coordinate), the error bars, and the release.

    >>> as_floats([1, float("nan"), "seven"]).tolist(), as_whole([2.5, 10**30]).tolist()
    ([1.0, 0.0, 0.0], [3, 9223372036854775807])
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Release
from sfumato.core.sensitivity import Sensitivity
from sfumato.mechanisms.private_values import as_bounded, as_cells, as_ratio

__all__ = [
    "Additive",
    "as_floats",
    "as_whole",
    "check_one_coordinate",
    "one_whole",
    "saturating_sum",
    "whole_sensitivity",
]

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


class Additive(ABC):
    """Independent noise of one law on each of ``sensitivity.dimension`` numbers.

    Subclasses are frozen dataclasses; every field is a public fact.

    Attributes:
        sensitivity: how far one neighbour step moves the value, in the mechanism's norm.
    """

    sensitivity: Sensitivity

    @property
    @abstractmethod
    def event(self) -> Event:
        """What one release amounts to for accounting."""

    @property
    @abstractmethod
    def standard_deviation(self) -> float:
        """Of the noise on each number."""

    @property
    @abstractmethod
    def expected_error(self) -> float:
        """E |noise| on each number."""

    @abstractmethod
    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """The least epsilon, rounded up, that one release has at ``delta``."""

    @abstractmethod
    def perturb(
        self, values: ArrayLike, *, coins: Coins = SYSTEM
    ) -> NDArray[np.float64] | NDArray[np.int64]:
        """``values`` of any shape plus fresh noise on each."""

    @property
    @abstractmethod
    def _stated_delta(self) -> float:
        """The delta at which a release states its guarantee."""

    @abstractmethod
    def _error_beyond(self, probability: float) -> float:
        """The least t with Pr[|error| > t] <= ``probability`` on one number."""

    @final
    def half_width(self, confidence: float = 0.95, simultaneous: bool = False) -> float:
        """The error of a number stays within this with probability ``confidence``, or more.

        Exact for the noise law; where the output is rounded to a grid, half a step of it is added.
        (Numbers beyond 2^53 steps of the grid are further rounded to the nearest double.)

        Args:
            confidence: for one number on its own ...
            simultaneous: ... or for all ``sensitivity.dimension`` of them at once. Their noises are
                independent, so each is held to confidence^(1/k).
        """
        confidence = validation.open_probability("confidence", confidence)
        # 1 - c^(1/k) without the cancellation that would swallow it in many dimensions.
        share = self.sensitivity.dimension if simultaneous else 1
        return self._error_beyond(-math.expm1(math.log(confidence) / share))

    @final
    def release(self, value: Any, *, confidence: float = 0.95, coins: Coins = SYSTEM) -> Release:
        """One release of ``value`` with fresh noise.

        Args:
            value: a number, or an array of ``sensitivity.dimension`` of them. The shape is public;
                a number that is missing, infinite or no number at all counts as 0.
            confidence: of the half-width stated for each number on its own.
            coins: where the noise comes from.

        Returns:
            A Python number for a number, nested lists for an array.

        Raises:
            ValueError: if the value has another number of entries than was declared.
        """
        half_width = self.half_width(confidence)
        cells = as_cells(value)
        if cells.size != self.sensitivity.dimension:
            raise ValueError(
                f"value must have {self.sensitivity.dimension} entries, the dimension of the "
                f"sensitivity, got {cells.size}: declare Sensitivity(..., dimension={cells.size})"
            )
        return Release(
            value=self.perturb(cells, coins=coins).tolist(),
            event=self.event,
            guarantee=self._stated_guarantee,
            half_width=half_width,
            confidence=confidence,
            private=coins.private,
        )

    @cached_property
    def _stated_guarantee(self) -> Guarantee:
        return self.guarantee(self._stated_delta)

    @final
    def _promise(self, epsilon: float, delta: float, accountant: str) -> Guarantee:
        """A guarantee for the relation and the unit of the sensitivity."""
        known = self.sensitivity
        return Guarantee(epsilon, delta, known.neighbours, known.unit, accountant)


def whole_sensitivity(bound: float) -> int:
    """The sensitivity of whole numbers, itself whole.

    Raises:
        ValueError: if it is not. A bound of 1.5 on how far an integer moves is a bound of 1 (so
            declare 1), or it was meant for values that are not integers.
    """
    if bound != int(bound):
        raise ValueError(
            f"sensitivity must be a whole number for noise on integers, got {bound!r}: declare "
            "how far the integer moves, its rounding included, or use the continuous mechanism"
        )
    return int(bound)


def check_one_coordinate(sensitivity: Sensitivity) -> None:
    """Raises ``ValueError`` where a step cannot be taken to move one coordinate alone."""
    if sensitivity.neighbours is Neighbours.REPLACE_ONE and sensitivity.dimension > 1:
        raise ValueError(
            "one_coordinate must be False under replace-one neighbours, got True: a replaced "
            "record leaves one coordinate and enters another"
        )


def as_floats(values: ArrayLike) -> NDArray[np.float64]:
    """``values`` as finite floats of the same shape; 0 for whatever is not a finite float.

    For what is clipped or clamped to public bounds afterwards, from which its sensitivity follows.
    What is no float already (an integer beyond 2^53, a fraction) is rounded to the nearest one,
    which may move it: 2^53 + 1 and 2^53 + 2 become 2^53 and 2^53 + 2. Continuous noise is added to
    what the number is exactly, see :mod:`~sfumato.mechanisms.sampling.rounded`.
    """
    largest = sys.float_info.max
    return as_bounded(as_cells(values), -largest, largest, default=0.0)


def as_whole(values: ArrayLike) -> NDArray[np.int64]:
    """``values`` as 64-bit integers of the same shape, totally.

    Floats are rounded to the nearest integer (to the upper one of two), what lies outside 64 bits
    is clamped, what is not a finite number is 0. Clamping brings no two values further apart.
    Rounding does: a float that moves by 0.2 may move an integer by 1, which the sensitivity must
    say. One that moves by at most d moves its integer by at most n = ceil(d), because
    floor(x + d + 1/2) <= floor(x + 1/2) + n. (Rounding to the even one of two has no such bound:
    0.5 and 1.5 would become 0 and 2.)
    """
    cells = as_cells(values)
    if cells.dtype.kind in "bi":
        return cells.astype(np.int64)
    if cells.dtype.kind == "u":
        return np.minimum(cells, np.uint64(_LARGEST)).astype(np.int64)
    if cells.dtype.kind == "f":
        finite = np.where(np.isfinite(cells), cells, 0.0)
        whole = np.floor(finite)
        whole += finite - whole >= 0.5  # the difference is exact, or rounded on its side of 1/2
        inside = np.abs(whole) < np.float64(2.0**63)  # not in the cells' own, narrower type
        edges = np.where(whole < 0, _SMALLEST, _LARGEST)
        return np.where(inside, np.where(inside, whole, 0.0).astype(np.int64), edges)
    exact = map(_rounded, cells.ravel().tolist())
    clamped = [min(max(number, _SMALLEST), _LARGEST) for number in exact]
    return np.array(clamped, dtype=np.int64).reshape(cells.shape)


def one_whole(value: Any) -> int:
    """One number as an integer of any size, else as :func:`as_whole` has it.

    Raises:
        ValueError: for several numbers, whose shape is public.
    """
    cells = as_cells(value)
    if cells.size != 1:
        validation.fail("count", "one number", f"{cells.size} of them")
    return _rounded(cells.ravel().tolist()[0])


def _rounded(cell: Any) -> int:
    return math.floor(Fraction(*as_ratio(cell, 0.0)) + Fraction(1, 2))


def saturating_sum(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """``left + right``, clamped to 64 bits instead of wrapping around."""
    total = left + right  # wraps; then its sign differs from that of both
    overflowed = (left < 0) == (right < 0)
    overflowed &= (total < 0) != (left < 0)
    return np.where(overflowed, np.where(left < 0, _SMALLEST, _LARGEST), total)
