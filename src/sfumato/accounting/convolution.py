"""Sums of many independent losses by FFT, on a circle of cells just wide enough for them.

The distribution of n equal steps is the n-th power of one step's Fourier transform, transformed
back. What lies beyond the circle wraps around: it is bounded by Chernoff's inequality and charged
as infinite loss. So is rounding, by the following bound.

*Rounding.* Let x >= 0 be one step's masses, of sum at most 1, z its exact transform on N cells, so
|z_k| <= 1, u = 2^-53, and w the unit roundoff of the numbers that the forward transform is made in.

1. Forward. An FFT of a length 2^a 3^b 5^c is a tree of sums: each output is the sum over j of x_j
   times a product of twiddle factors, and each path through it meets a fixed number of rounded
   additions and multiplications for each factor of N. So |e_k| <= 16 w log2(N) |x|_1 for every k;
   16 is above what radices 2, 3, 4 and 5 need for each factor of two with twiddle factors within
   8 w (about 12, 9, 7 and 7: 8 for the factor, sqrt(5) for the product with it, and the additions
   and constants of the stage). Before it, masses beyond the circle are folded in, by halves, with
   one addition for each doubling: N counts as at least 1,024, which leaves room for that. Rounding
   to doubles adds 2u. Together: phi.
2. Powers. A product of complex doubles has relative error at most sqrt(5) u (Brent, Percival and
   Zimmermann 2007). A product of n factors, in any order, is n - 1 of them. So the computed power
   is (z_k + e_k)^n (1 + t) with |t| <= (1 + sqrt(5) u)^(n-1) - 1, and |(z_k + e_k)^n - z_k^n| <=
   n phi (|z_k| + phi)^(n-1): it is within n (phi + sqrt(5) u) (|z_k| + phi)^(n-1) of z_k^n, but for
   terms in n u^2.
3. Back. In the Euclidean norm each stage of radix r multiplies by sqrt(r) and errs by its own share
   of that, which adds up to at most 16 u log2(N) of the norm of what is transformed (Higham,
   "Accuracy and Stability of Numerical Algorithms", theorem 24.2, for radix 2).
4. A delta is a sum over cells with weights from 0 to 1, so it is wrong by at most the sum of
   |error| over the N cells, at most sqrt(N) times its Euclidean norm. The inverse transform divides
   norms by sqrt(N), so that is at most

       (n (phi + sqrt(5) u) + 16 u log2(N)) W,    W^2 = sum_k (|z_k| + phi)^(2 (n - 1)),

   which is charged, with a hundredth more for all higher orders. W is 2 to 5 for many small steps.

The forward transform is made in extended precision where the machine has it, so that phi is 2u and
n steps are charged about 2e-15 n; where it has not, about fifty times as much.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sfumato.accounting.dpa import Floats, LossMasses

__all__ = [
    "STEP",
    "circle_size",
    "convolved",
    "log_sizes",
    "power",
    "repeated",
    "rounding",
    "transform",
    "window",
]

Spectrum = NDArray[np.complex128]

_UNIT = 2.0**-53
_EXTENDED = float(np.finfo(np.longdouble).eps) < 2.0**-60
_WIDE: Any = np.longdouble if _EXTENDED else np.float64
_STAGE = 16.0
_PRODUCT = math.sqrt(5) * _UNIT
_SMALLEST = 1024
_FEW = 32
"""Losses that are added cell by cell, without a transform."""

STEP = 2e-15 if _EXTENDED else 1e-13
"""About what one of many steps is charged for rounding."""


def transform(masses: LossMasses, size: int) -> Spectrum:
    """The transform of the finite losses on a circle of ``size`` cells: half of it suffices."""
    first = masses.lowest % size
    turns = -(-(first + len(masses.probs)) // size)
    rows = 1 << (turns - 1).bit_length()
    cells = np.zeros(rows * size, dtype=_WIDE)
    cells[first : first + len(masses.probs)] = masses.probs
    folded = cells.reshape(rows, size)
    while len(folded) > 1:
        folded = folded[: len(folded) // 2] + folded[len(folded) // 2 :]
    return np.asarray(fft.rfft(folded[0]), dtype=np.complex128)


def power(values: Spectrum, count: int) -> Spectrum:
    """``values`` to a whole power by products alone, whose rounding is known."""
    result, square = None, values
    while count:
        if count & 1:
            result = square if result is None else result * square
        count >>= 1
        if count:
            square = square * square
    return np.ones_like(values) if result is None else result


def rounding(log_sizes: Floats, count: int, size: int) -> float:
    """What is charged for the rounding of ``count`` steps and what they are added to.

    Args:
        log_sizes: from :func:`log_sizes`, of one step.
        count: of steps.
        size: of the circle.
    """
    weight = math.sqrt(2 * float(np.exp(2 * max(count - 1, 0) * log_sizes).sum()))
    back = _STAGE * _UNIT * _stages(size)
    return 1.01 * ((count + 1) * (_forward(size) + _PRODUCT) + back) * weight


def log_sizes(spectrum: Spectrum, size: int) -> Floats:
    """ln(|z| + phi) for each number of a transform."""
    return np.log(np.abs(spectrum) + _forward(size))


def _forward(size: int) -> float:
    """Phi of the module."""
    unit = float(np.finfo(_WIDE).eps) / 2
    return 2 * _UNIT + _STAGE * _stages(size) * unit


def _stages(size: int) -> float:
    """Log2(N) of the module."""
    return math.log2(max(size, _SMALLEST))


def circle_size(cells: int) -> int:
    """The next length that has no factor above 5."""
    return int(fft.next_fast_len(max(cells, 1), real=True))


def repeated(step: LossMasses, count: int, tail: float) -> LossMasses:
    """The loss of ``count`` independent steps, but for at most ``tail``, which is charged."""
    if count == 1:
        return step
    nothing = LossMasses(0, np.ones(1), 0.0, step.grid)
    last = len(step.probs) - 1
    low = max(bound(step, nothing, count, tail / 2, upper=False), count * step.lowest)
    high = min(bound(step, nothing, count, tail / 2, upper=True), count * (step.lowest + last))
    lowest = math.floor(low)
    size = circle_size(math.ceil(high) - lowest + 1)
    one = transform(step, size)
    circle = fft.irfft(power(one, count), size)
    infinite = -math.expm1(count * math.log1p(-step.infinite)) + tail
    infinite += rounding(log_sizes(one, size), count, size)
    return LossMasses(lowest, np.roll(circle, -lowest), min(1.0, infinite), step.grid)


def convolved(first: LossMasses, second: LossMasses, tail: float) -> LossMasses:
    """The sum of two independent losses, but for at most ``tail``, which is charged.

    Where one has few losses, copies of the other are added: nothing is transformed, and every cell
    has a relative error of a few units in the last place.
    """
    lowest = first.lowest + second.lowest
    cells = len(first.probs) + len(second.probs) - 1
    infinite = first.infinite + second.infinite - first.infinite * second.infinite
    few, many = sorted((first, second), key=lambda one: int(np.count_nonzero(one.probs)))
    if np.count_nonzero(few.probs) <= _FEW:
        probs = np.zeros(cells)
        for place in np.flatnonzero(few.probs).tolist():
            probs[place : place + len(many.probs)] += few.probs[place] * many.probs
    else:
        size = circle_size(cells)
        one, other = (transform(LossMasses(0, m.probs, 0.0, m.grid), size) for m in (few, many))
        probs = fft.irfft(one * other, size)[:cells]
        # |z z' + error| - |z z'| <= phi (|z| + |z'|) + sqrt(5) u |z z'|, which is at most this.
        phi = _forward(size) + _PRODUCT
        back = _STAGE * _UNIT * _stages(size)
        norms = sum(math.sqrt(2 * float((np.abs(z) ** 2).sum())) for z in (one, other))
        infinite += 1.01 * (phi + back) * norms
    return _cut(LossMasses(lowest, probs, min(1.0, infinite), first.grid), tail)


def _cut(masses: LossMasses, tail: float) -> LossMasses:
    """Without both ends, each of mass ``tail`` / 2 at most: charged above, moved up below."""
    probs = np.maximum(masses.probs, 0.0)
    first = int(np.searchsorted(np.cumsum(probs), tail / 2, side="right"))
    last = len(probs) - int(np.searchsorted(np.cumsum(probs[::-1]), tail / 2, side="right"))
    if first >= last:
        return masses
    kept = probs[first:last].copy()
    kept[0] += probs[:first].sum()
    infinite = min(1.0, masses.infinite + float(probs[last:].sum()))
    return LossMasses(masses.lowest + first, kept, infinite, masses.grid)


# --- windows ------------------------------------------------------------------------------------


def bound(step: LossMasses, start: LossMasses, count: int, tail: float, upper: bool) -> float:
    """A cell beyond which ``start`` and ``count`` steps lie with probability at most ``tail``.

    Chernoff: Pr[sum >= x] <= e^(-t x) E[e^(t step)]^n E[e^(t start)], best over t. Only finite
    losses count, on both sides.
    """
    return float(_bounds(step, start, np.array([count]), tail, upper)[0])


def window(
    step: LossMasses, start: LossMasses, counts: NDArray[np.int64], tail: float
) -> tuple[int, int]:
    """Cells that hold all but ``tail`` above and ``tail`` below, for every one of ``counts``.

    Each count has a window of its own, and this is from the least to the largest cell of any. The
    window of the largest count does not do for the others: where losses are often infinite, or
    drift down, less finite mass lies far up after many steps than after few.
    """
    low = _bounds(step, start, counts, tail, upper=False).min()
    high = _bounds(step, start, counts, tail, upper=True).max()
    return math.floor(min(low, 0)), max(1, math.ceil(high))


def _bounds(
    step: LossMasses, start: LossMasses, counts: NDArray[np.int64], tail: float, upper: bool
) -> Floats:
    """:func:`bound` for many counts. Every t gives a bound for each: they share theirs."""
    sign = 1.0 if upper else -1.0
    spread, first = variance(step), variance(start) + 1.0
    fewest, most = (math.sqrt(int(n) * spread + first) for n in (counts.min(), counts.max()))
    typical = math.sqrt(-2 * math.log(tail))  # over the deviation: the best t, were the sum normal
    number = 8 + math.ceil(6 * math.log10(most / fewest))
    normal = np.geomspace(0.1 * typical / most, 2 * typical / fewest, number)
    # Far from normal (a rare large loss), the best t is of the order of one over that loss.
    heavy = step.grid * np.geomspace(0.1, 30.0, 8)
    tried = sign * np.concatenate([normal, heavy])
    best = np.full(len(counts), sign * math.inf)
    for t in tried.tolist():
        logs = counts * _log_mgf(step, t) + _log_mgf(start, t)
        best = (np.minimum if upper else np.maximum)(best, (logs - math.log(tail)) / t)
    return best


def mean(masses: LossMasses) -> float:
    """Of the finite losses, in cells."""
    return masses.lowest + float(np.average(np.arange(len(masses.probs)), weights=masses.probs))


def variance(masses: LossMasses) -> float:
    """Of the finite losses, in cells squared."""
    cells = masses.lowest + np.arange(len(masses.probs))
    return float(np.average((cells - mean(masses)) ** 2, weights=masses.probs))


def _log_mgf(masses: LossMasses, t: float) -> float:
    """At least ln E[e^(t loss)]: what would be subnormal, which is slow, is rounded up."""
    filled = np.flatnonzero(masses.probs > 0)
    powers = t * (masses.lowest + filled)
    most = float(powers.max())
    # A sum, not np.dot: BLAS would start threads for it, which is slower on a busy machine.
    terms = np.exp(np.maximum(powers - most, -200.0)) * np.maximum(masses.probs[filled], 1e-200)
    return most + math.log(float(terms.sum()))
