"""One-line argument checks with uniform errors.

Every check returns the value it accepted, as the type it promises, and raises ``ValueError`` with
the argument's name, the offending value and the remedy otherwise::

    epsilon = positive("epsilon", epsilon)

These are for *parameters*, which are public. A private row is never validated by an error: an error
that depends on the data is a release of the data.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from enum import StrEnum
from typing import NoReturn, TypeVar

__all__ = [
    "at_least",
    "choice",
    "count",
    "delta",
    "fail",
    "finite",
    "interval",
    "name",
    "non_negative",
    "open_probability",
    "positive",
    "sample_rate",
]

_Choice = TypeVar("_Choice", bound=StrEnum)


def fail(name: str, requirement: str, value: object) -> NoReturn:
    """Raises the uniform error: the argument, what it must be, what it was."""
    raise ValueError(f"{name} must be {requirement}, got {value!r}")


def _number(name: str, value: object, requirement: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        fail(name, requirement, value)
    try:
        number = float(value)
    except OverflowError:
        fail(name, f"{requirement}, within floating point's range", value)
    if math.isnan(number):
        fail(name, requirement, value)
    return number


def finite(name: str, value: object) -> float:
    """A finite real number."""
    number = _number(name, value, "a finite number")
    if math.isinf(number):
        fail(name, "a finite number", value)
    return number


def positive(name: str, value: object) -> float:
    """A finite number above 0 (an epsilon, a scale, a noise multiplier)."""
    number = _number(name, value, "a finite number above 0")
    if not 0 < number < math.inf:
        fail(name, "a finite number above 0", value)
    return number


def non_negative(name: str, value: object) -> float:
    """A finite number, 0 or above."""
    number = _number(name, value, "a finite number, 0 or above")
    if not 0 <= number < math.inf:
        fail(name, "a finite number, 0 or above", value)
    return number


def open_probability(name: str, value: object) -> float:
    """A number strictly between 0 and 1 (a delta to reach, a confidence level)."""
    number = _number(name, value, "strictly between 0 and 1")
    if not 0 < number < 1:
        fail(name, "strictly between 0 and 1", value)
    return number


def delta(name: str, value: object) -> float:
    """A delta that a guarantee may state: 0 (pure) up to, not including, 1."""
    number = _number(name, value, "at least 0 and below 1")
    if not 0 <= number < 1:
        fail(name, "at least 0 and below 1", value)
    return number


def sample_rate(name: str, value: object) -> float:
    """A sampling probability: above 0, at most 1."""
    number = _number(name, value, "above 0 and at most 1")
    if not 0 < number <= 1:
        fail(name, "above 0 and at most 1", value)
    return number


def count(name: str, value: object) -> int:
    """A whole number, 1 or above (steps, repetitions, a group's size)."""
    return at_least(name, value, 1)


def at_least(name: str, value: object, lowest: int) -> int:
    """A whole number, ``lowest`` or above. A float that is whole (1e4) is accepted."""
    requirement = f"a whole number, {lowest} or above"
    number = _number(name, value, requirement)
    if math.isinf(number) or number != int(number) or number < lowest:
        fail(name, requirement, value)
    # int(value) rather than int(number): a large Python integer must not pass through a float.
    return int(value) if isinstance(value, numbers.Integral) else int(number)


def interval(name: str, lower: object, upper: object) -> tuple[float, float]:
    """Two finite numbers, the first below the second: declared public bounds."""
    low, high = finite(f"{name} lower", lower), finite(f"{name} upper", upper)
    if not low < high:
        raise ValueError(
            f"{name} must have its lower bound below its upper bound, got ({lower!r}, {upper!r})"
        )
    return low, high


def name(argument: str, value: object) -> str:
    """A non-empty word that names something (a unit, a dataset, an analyst)."""
    if not isinstance(value, str) or not value.strip() or value != value.strip():
        fail(argument, "a non-empty name without surrounding spaces", value)
    return value


def choice(argument: str, value: object, options: type[_Choice]) -> _Choice:
    """One member of an enumeration, given as the member or as its text."""
    try:
        return options(str(value) if isinstance(value, str) else "")
    except ValueError:
        listed = _either(repr(option.value) for option in options)
        fail(argument, listed, value)


def _either(options: Iterable[str]) -> str:
    *others, last = options
    return f"{', '.join(others)} or {last}" if others else last
