"""High-precision functions with stated error bounds: the one place that uses mpmath.

A *bound* here is a pair of integers ``(low, high)`` with ``low <= 2^prec * value <= high``: what is
known of a real number to ``prec`` binary places. Asking again with a larger ``prec`` gives a
tighter pair, so a comparison against a lazily known uniform ends with probability 1.

Assumed: mpmath's ``exp``, ``log`` and ``pi``, asked for ``w`` bits, are right to ``w - 16``; every
function works with at least 40 bits more than it promises. The tests compare the promises against
independent evaluations. Only mpmath's stateless functions are used: no global precision is set, so
threads do not disturb each other.
"""

# mpmath carries no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from fractions import Fraction

from mpmath import libmp

__all__ = ["Bounds", "exp_bounds", "log_bounds", "normal_tail_bounds", "rational_bounds"]

Bounds = tuple[int, int]
"""``(low, high)``: low <= 2^prec * value <= high."""

_GUARD = 40
_ROOM = 2


def _widened(value: int) -> Bounds:
    """Bounds around a floor or a rounding that is off by less than ``_ROOM``, never negative."""
    return max(value - _ROOM, 0), value + _ROOM


def rational_bounds(value: Fraction, prec: int) -> Bounds:
    """Bounds on a rational; equal where it is a multiple of 2^-prec."""
    scaled = value.numerator << prec
    return scaled // value.denominator, -(-scaled // value.denominator)


def exp_bounds(x: Fraction, prec: int) -> Bounds:
    """Bounds on exp(-x) for an exact x >= 0."""
    if x == 0:
        return 1 << prec, 1 << prec
    if x > prec + 2:  # exp(-x) < 2^-(prec + 2)
        return 0, 1
    work = prec + _GUARD
    argument = libmp.from_rational(-x.numerator, x.denominator, work + prec.bit_length())
    low, high = _widened(int(libmp.to_fixed(libmp.mpf_exp(argument, work), prec)))
    return low, min(high, 1 << prec)


def log_bounds(x: Fraction, prec: int) -> tuple[Fraction, Fraction]:
    """Rationals on either side of ln(x) for an exact x > 0, less than 2^(2 - prec) apart."""
    if x == 1:
        return Fraction(0), Fraction(0)
    magnitude = max(x.numerator.bit_length(), x.denominator.bit_length())
    work = prec + _GUARD + magnitude.bit_length()
    argument = libmp.from_rational(x.numerator, x.denominator, work)
    value = int(libmp.to_fixed(libmp.mpf_log(argument, work), prec))
    return Fraction(value - _ROOM, 1 << prec), Fraction(value + _ROOM, 1 << prec)


def normal_tail_bounds(x: Fraction, prec: int) -> Bounds:
    """Bounds on Q(x) = Pr[N(0, 1) > x] for an exact x >= 0.

    Q(x) = 1/2 - phi(x) S(x),   S(x) = x + x^3/3 + x^5/(3*5) + x^7/(3*5*7) + ...

    Every term is positive, so nothing cancels within S. Rounding: with N terms, the errors of all
    truncations together stay below 2 N^2 (x + 1) e^(x^2/2) units of the working precision after the
    factor phi, which the extra ``1.45 x^2 / 2 + 2 log2 N + ...`` bits cover.

    Reference: Marsaglia, "Evaluating the normal distribution", J. Stat. Software 11(4) (2004).
    """
    square = x * x
    if 18 * square > 25 * (prec + 4):  # Q(x) <= exp(-x^2/2) / 2 < 2^-prec
        return 0, 1
    growth = 3 * math.ceil(square) // 4 + 1  # e^(x^2/2) <= 2^growth
    work = prec + growth + _GUARD
    work += 3 * work.bit_length()
    density = sum(exp_bounds(square / 2, work)) // 2
    root = math.isqrt(2 * int(libmp.pi_fixed(work)) << work)
    central = density * _odd_series(x, work) // root
    value = ((1 << (work - 1)) - central) >> (work - prec)
    return _widened(value)


def _odd_series(x: Fraction, work: int) -> int:
    """S(x) in units of 2^-work, truncated term by term."""
    fixed_square = ((x * x).numerator << work) // (x * x).denominator
    term = (x.numerator << work) // x.denominator
    total, odd = term, 1
    while term:
        odd += 2
        term = (term * fixed_square >> work) // odd
        total += term
    return total
