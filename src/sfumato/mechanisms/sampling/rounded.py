"""Ideal continuous noise, seen through a public grid.

What :func:`add_gaussian` and :func:`add_laplace` return is

    grid * round((value + noise) / grid),   noise an ideal *real* Gaussian or Laplace,

computed without any rounding of the sum inside, and of the value before it: an integer of any size,
a fraction or a decimal is what it is, not the double next to it (two of 2^60 + 128 and 2^60 + 129
are 256 apart). It is exactly a post-processing, by a function that does
not depend on the data, of the ideal continuous mechanism. Hence its guarantee is the continuous
one, in any number of dimensions, with no addition to the sensitivity; and the low bits of doubles,
through which textbook samplers leak (Mironov 2012), never carry anything: the result is a
function of the integer round((value + noise) / grid) alone.

How: value/grid = I + f with I an integer and f exact (the grid is a power of two; where the value
is no double, I and f are whole numbers and fractions of any size). With y =
scale/grid times a standard magnitude z at a lazily known tail q and s an independent sign, the
integer is I + s floor(s f + y + 1/2). The floor is decided from 64 bits of q wherever a margin
certifies it, and by the exact tail probability at the boundary in question otherwise.

References: Mironov, "On significance of the least significant bits for differential privacy", CCS
2012; Dwork and Roth (2014), proposition 2.1 (post-processing); Holohan and Braghin, "Secure random
sampling in differential privacy", arXiv:2107.10138, for what else goes wrong in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.private_values import as_cells, as_ratio
from sfumato.mechanisms.sampling.lazy import Source, blocks, settle_floor
from sfumato.mechanisms.sampling.precise import Bounds, exp_bounds, normal_tail_bounds

__all__ = ["GAUSSIAN", "LAPLACE", "Noise", "add_gaussian", "add_laplace", "add_noise", "grid_for"]

_FINEST = 2.0**30
_DEFAULT = 20
_SMALLEST, _LARGEST = 2.0**-900, 2.0**900
_WHOLE = 2.0**53
"""Integers below this size are doubles."""


@dataclass(frozen=True)
class Noise:
    """A symmetric continuous law of unit scale, through its upper tail.

    Attributes:
        quantile: z with Pr[X > z] = q, in floating point, for q in (0, 1/2].
        tail: bounds on Pr[X > z] for an exact rational z >= 0.
    """

    quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    tail: Callable[[Fraction, int], Bounds]


def _gaussian_quantile(q: NDArray[np.float64]) -> NDArray[np.float64]:
    return -ndtri(q)


def _laplace_quantile(q: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.log(2.0 * q)


def _laplace_tail(z: Fraction, prec: int) -> Bounds:
    return exp_bounds(z, prec - 1)


GAUSSIAN = Noise(_gaussian_quantile, normal_tail_bounds)
LAPLACE = Noise(_laplace_quantile, _laplace_tail)


def grid_for(scale: float) -> float:
    """The default grid for noise of this scale: a power of two in (scale 2^-21, scale 2^-20].

    Rounding to it moves a result by less than a millionth of the noise's scale.
    """
    scale = validation.positive("scale", scale)
    if not _SMALLEST <= scale <= _LARGEST:
        validation.fail("scale", "between 2^-900 and 2^900", scale)
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - _DEFAULT)


def add_gaussian(
    values: ArrayLike, sigma: float, grid: float, coins: Coins = SYSTEM
) -> NDArray[np.float64]:
    """``values`` plus independent N(0, sigma^2) noise, rounded to multiples of ``grid``.

    Args:
        values: private numbers of any shape, each taken as exactly what it is. What is no finite
            number counts as 0, silently.
        sigma: the noise's standard deviation, taken as the exact dyadic number it is.
        grid: a public power of two, at least sigma 2^-30; see :func:`grid_for`.
        coins: where the bits come from.

    Returns:
        An array of the same shape: multiples of ``grid``, rounded to the nearest double where they
        need more than 53 bits and held within the finite doubles.

    Formal guarantee: the ideal continuous Gaussian mechanism's, by post-processing; total variation
    distance 0 from its law on the grid, given ideal coins and the floating-point assumption of
    :mod:`sfumato.mechanisms.sampling.lazy`.
    """
    sigma = validation.positive("sigma", sigma)
    return add_noise(values, GAUSSIAN, sigma, _checked_grid(grid, sigma), Source(coins))


def add_laplace(
    values: ArrayLike, scale: float, grid: float, coins: Coins = SYSTEM
) -> NDArray[np.float64]:
    """``values`` plus independent Laplace noise of density exp(-|x|/scale) / (2 scale), on a grid.

    Arguments, result and guarantee are as for :func:`add_gaussian`.
    """
    scale = validation.positive("scale", scale)
    return add_noise(values, LAPLACE, scale, _checked_grid(grid, scale), Source(coins))


def _checked_grid(grid: float, scale: float) -> float:
    grid = validation.positive("grid", grid)
    if not _SMALLEST <= scale <= _LARGEST:
        validation.fail("scale", "between 2^-900 and 2^900", scale)
    if math.frexp(grid)[0] != 0.5:
        validation.fail("grid", "a power of two", grid)
    if not scale / _FINEST <= grid <= _LARGEST:
        validation.fail("grid", f"from scale * 2^-30 (scale {scale!r}) to 2^900", grid)
    return grid


def add_noise(
    values: ArrayLike, noise: Noise, scale: float, grid: float, source: Source
) -> NDArray[np.float64]:
    """The common part, for checked parameters and an adjustable number of first bits."""
    cells = as_cells(values)
    flat, others = _doubles(cells.ravel(), grid)
    result = np.empty_like(flat)
    for block in blocks(flat.size):
        places = range(block.start, block.stop) if others else ()
        within = {i - block.start: others[i] for i in places if i in others}
        result[block] = _add_block(flat[block], within, noise, scale, grid, source)
    return result.reshape(cells.shape)


@dataclass(frozen=True)
class _Steps:
    """A value that is no double, in units of the grid: whole + rest / unit, the rest below half."""

    whole: int
    rest: int
    unit: int

    @classmethod
    def of(cls, numerator: int, denominator: int, grid: float) -> _Steps:
        exponent = math.frexp(grid)[1] - 1  # the grid is a power of two
        numerator <<= max(-exponent, 0)
        denominator <<= max(exponent, 0)
        whole = (2 * numerator + denominator) // (2 * denominator)
        return cls(whole, numerator - whole * denominator, denominator)


def _doubles(cells: NDArray[Any], grid: float) -> tuple[NDArray[np.float64], dict[int, _Steps]]:
    """Cells as doubles, 0 for what is not finite; and by its place what no double is equal to."""
    others = dict[int, _Steps]()
    if cells.dtype.kind in "bf" and cells.dtype.itemsize <= np.float64().itemsize:
        with np.errstate(invalid="ignore"):  # a signalling NaN warns
            floats = cells.astype(np.float64)
        return np.where(np.isfinite(floats), floats, 0.0), others
    if cells.dtype.kind in "iu":
        floats = cells.astype(np.float64)
        for i in np.flatnonzero(np.abs(floats) >= _WHOLE).tolist():
            others[i] = _Steps.of(int(cells[i]), 1, grid)
        return floats, others
    floats = np.zeros(cells.size)
    for i, cell in enumerate(cells.tolist()):
        numerator, denominator = as_ratio(cell, 0.0)
        try:
            floats[i] = numerator / denominator
        except OverflowError:
            others[i] = _Steps.of(numerator, denominator, grid)
        else:
            if Fraction(float(floats[i])) != Fraction(numerator, denominator):
                others[i] = _Steps.of(numerator, denominator, grid)
    return floats, others


def _add_block(
    values: NDArray[np.float64],
    others: Mapping[int, _Steps],
    noise: Noise,
    scale: float,
    grid: float,
    source: Source,
) -> NDArray[np.float64]:
    base, fraction = _split(values, grid)
    for i, exact in others.items():
        fraction[i] = exact.rest / exact.unit
    sign, numerators = source.signed(values.size)
    direction = (2 * sign + 1).astype(np.float64)
    tails = np.maximum(numerators, 1).astype(np.float64) * 2.0**-source.bits
    ratio = scale / grid

    def rest(i: int) -> Fraction:
        if i in others:
            return Fraction(others[i].rest, others[i].unit)
        return (Fraction(values[i]) - Fraction(base[i])) / Fraction(grid)

    def tail(i: int, k: int) -> Callable[[int], Bounds]:
        # Exactly: |noise| >= scale z is needed for the floor to reach k.
        shift = Fraction(direction[i]) * rest(i)
        z = (k - Fraction(1, 2) - shift) * Fraction(grid) / Fraction(scale)
        return partial(noise.tail, z) if z > 0 else _always

    offset = direction * fraction + 0.5
    steps = settle_floor(noise.quantile(tails), ratio, offset, numerators, tail, source)
    with np.errstate(over="ignore"):
        moved = base + direction * steps * grid
    for i, exact in others.items():
        moved[i] = _multiple(exact.whole + int(direction[i]) * int(steps[i]), grid)
    # Adding 0.0 turns -0.0, whose sign would depend on more than the integer, into 0.0.
    largest = np.finfo(np.float64).max
    return np.clip(moved, -largest, largest) + 0.0


def _multiple(steps: int, grid: float) -> float:
    """The double nearest to so many steps of the grid, as the sum of two doubles rounds it."""
    numerator, denominator = grid.as_integer_ratio()
    try:
        return steps * numerator / denominator
    except OverflowError:
        return -math.inf if steps < 0 else math.inf


def _split(
    values: NDArray[np.float64], grid: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The multiple of ``grid`` nearest to each value, and the rest in units of the grid.

    Both are exact, but for a rest so small that it underflows, far inside every margin. From 2^52
    grid steps on, a double is itself a multiple of the grid.
    """
    with np.errstate(over="ignore", under="ignore"):
        scaled = values / grid
    nearest = np.rint(scaled)
    fine = np.abs(scaled) < 2.0**52
    with np.errstate(invalid="ignore", over="ignore"):
        base = np.where(fine, nearest * grid, values)
        rest = np.where(fine, scaled - nearest, 0.0)
    return base, rest


def _always(prec: int) -> Bounds:
    """A threshold above every tail probability."""
    return 1 << prec, 1 << prec
