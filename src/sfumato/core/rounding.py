"""Rounded to the safe side: exact ratios, and roots that were verified.

A scale that floating point rounded down by one part in 10^16 is a broken promise. Here ratios are
rounded in exact arithmetic, and a root is returned only if the privacy curve, evaluated there, is
below its target by more than the curve's own rounding error.

    >>> 1 / 0.7, at_least_ratio(1.0, 0.7)  # the quotient was rounded down
    (1.4285714285714286, 1.4285714285714288)
    >>> round(least(lambda x: 2 - x * x, 1.0), 6)
    1.414214
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

__all__ = [
    "at_least_product",
    "at_least_ratio",
    "at_least_root",
    "at_most_ratio",
    "calibration_target",
    "least",
    "least_epsilon",
]

_MARGIN = 1e-10  # in ln(delta): hundreds of times the error with which it is computed


_TOO_FAR = "epsilon, sensitivity and noise must be within the range of floating point of each other"
_NEARER = "use a larger epsilon or a smaller sensitivity"


def at_least_product(left: float, right: float) -> float:
    """The least float that is not below ``left * right``."""
    product = _finite(left * right)
    if Fraction(product) < Fraction(left) * Fraction(right):
        return math.nextafter(product, math.inf)
    return product


def at_least_root(value: int) -> float:
    """The least float that is not below the square root of ``value``."""
    root = math.sqrt(value)
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    return root


def at_least_ratio(numerator: float, denominator: float) -> float:
    """The least float that is not below ``numerator / denominator``."""
    ratio = _finite(numerator / denominator)
    if Fraction(ratio) * Fraction(denominator) < Fraction(numerator):
        return math.nextafter(ratio, math.inf)
    return ratio


def at_most_ratio(numerator: float, denominator: float) -> float:
    """The greatest float that is not above ``numerator / denominator``."""
    ratio = _finite(numerator / denominator)
    if Fraction(ratio) * Fraction(denominator) > Fraction(numerator):
        return math.nextafter(ratio, 0.0)
    return ratio


def _finite(value: float) -> float:
    if math.isinf(value):
        raise ValueError(f"{_TOO_FAR}, got an infinite ratio: {_NEARER}")
    return value


def _inside(value: float) -> float:
    """Where a search may look: there would be no end beyond."""
    if not 0 < value < math.inf:
        raise ValueError(f"{_TOO_FAR}, got none that do: {_NEARER}")
    return value


def least(excess: Callable[[float], float], guess: float, guess_above: float = 0.0) -> float:
    """The least x above 0 with ``excess(x) <= 0``, for a decreasing function.

    Args:
        excess: continuous and decreasing; above 0 means that x is too small.
        guess: a first idea of x; the bracket grows from there.
        guess_above: a second, greater one, if there is one.

    Returns:
        A float at which ``excess`` was evaluated and found not above 0.

    Raises:
        ValueError: if there is none among floats.
    """
    # Loaded here: scipy.optimize takes longer to import than everything else together.
    from scipy.optimize import brentq

    low, high = guess, max(guess, guess_above)
    while excess(_inside(low)) <= 0:
        high, low = low, low / 2
    while excess(_inside(high)) > 0:
        low, high = high, high * 2
    root = brentq(excess, low, high, xtol=math.ulp(0.0), rtol=1e-15)
    step = math.ulp(root)
    while excess(root) > 0:
        root, step = root + step, step * 2
    return root


def calibration_target(delta: float) -> float:
    """The ln(delta) to calibrate to: short enough of it that :func:`least_epsilon` finds room."""
    return math.log(delta) - 2 * _MARGIN


def least_epsilon(log_delta: Callable[[float], float], delta: float) -> float:
    """The least epsilon with ``log_delta(epsilon) <= ln(delta)``: 0, or inf at delta 0."""
    if delta == 0:
        return math.inf
    target = math.log(delta) - _MARGIN
    if log_delta(0.0) <= target:
        return 0.0
    return least(lambda epsilon: log_delta(epsilon) - target, guess=1.0)
