"""Amounts: whole numbers of tiny units, never floats.

A ledger that adds floats may lose a small charge in a large total, and two orders of the same
charges may differ. Here an epsilon or an RDP is a whole number of units of 10^-12 and a delta one
of 10^-18. What is charged is rounded up, what is allowed is rounded down. The units are that small
because RDP is quadratic: a release of epsilon 10^-4 has RDP 10^-8 at order 2, which a unit of 10^-6
would multiply by a hundred.

    >>> epsilon_up(0.1) * 30 == epsilon_down(3.0)  # though 0.1 is no binary fraction
    True
    >>> rdp_up(float("inf")) == SATURATED
    True

A float that a person wrote stands for the shortest decimal that denotes it, 0.1 for 1/10; the two
differ by less than one part in 10^16. A float that was computed (an RDP) is raised by a relative
10^-12 and one unit before it is charged, far more than its rounding error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

__all__ = [
    "SATURATED",
    "Vector",
    "as_delta",
    "as_epsilon",
    "delta_down",
    "delta_up",
    "epsilon_down",
    "epsilon_up",
    "rdp_down",
    "rdp_up",
]

SATURATED = 2**62 - 1
"""More than can be counted: what has cost this much never fits again. Two still fit in 64 bits."""

_EPSILON, _DELTA = 10**12, 10**18
_GUARD = 1e-12


def _units(value: float, unit: int, rounding: str) -> int:
    if not math.isfinite(value) or value > SATURATED / unit:
        return SATURATED
    return int((Decimal(repr(float(value))) * unit).to_integral_value(rounding))


def epsilon_up(value: float) -> int:
    """A stated epsilon as a charge."""
    return _units(value, _EPSILON, ROUND_CEILING)


def epsilon_down(value: float) -> int:
    """A stated epsilon as an allowance."""
    return _units(value, _EPSILON, ROUND_FLOOR)


def delta_up(value: float) -> int:
    """A stated delta as a charge."""
    return _units(value, _DELTA, ROUND_CEILING)


def delta_down(value: float) -> int:
    """A stated delta as an allowance."""
    return _units(value, _DELTA, ROUND_FLOOR)


def rdp_up(value: float) -> int:
    """A computed RDP as a charge: 0 for exactly 0, and one that is no number never fits."""
    if value == 0:
        return 0
    raised = value * _EPSILON * (1 + _GUARD)
    if not 0 < raised < SATURATED:
        return SATURATED
    return min(SATURATED, math.ceil(raised) + 1)


def rdp_down(value: float) -> int:
    """A computed RDP as an allowance, below zero where nothing fits."""
    raised = value * _EPSILON
    lowered = raised - abs(raised) * _GUARD
    if not abs(lowered) < SATURATED:
        return -SATURATED
    return math.floor(lowered) - 1


def as_epsilon(units: int) -> float:
    """Units of epsilon as a number for people; infinite once saturated."""
    return math.inf if units >= SATURATED else units / _EPSILON


def as_delta(units: int) -> float:
    """Units of delta as a number for people."""
    return math.inf if units >= SATURATED else units / _DELTA


@dataclass(frozen=True, slots=True)
class Vector:
    """What was charged: at each order (infinity first), and the opaque delta beside them.

    Adding saturates. Taking back leaves a saturated order saturated: how much was in it is unknown.
    """

    orders: tuple[int, ...]
    slack: int = 0

    @classmethod
    def zero(cls, length: int) -> Vector:
        """Nothing, at ``length`` orders."""
        return cls((0,) * length, 0)

    def plus(self, other: Vector) -> Vector:
        """Both."""
        pairs = zip(self.orders, other.orders, strict=True)
        added = tuple([min(a + b, SATURATED) for a, b in pairs])
        return Vector(added, min(self.slack + other.slack, SATURATED))

    def minus(self, other: Vector) -> Vector:
        """What is left of this one without a part of it."""
        pairs = zip(self.orders, other.orders, strict=True)
        return Vector(tuple([_less(a, b) for a, b in pairs]), _less(self.slack, other.slack))

    def to_list(self) -> list[int]:
        """The opaque delta, infinity, then the finite orders."""
        return [self.slack, *self.orders]

    @classmethod
    def from_list(cls, numbers: Iterable[int]) -> Vector:
        """The inverse of :meth:`to_list`."""
        slack, *orders = numbers
        return cls(tuple(orders), slack)


def _less(whole: int, part: int) -> int:
    return whole if whole >= SATURATED else whole - part
