"""Exact coin flips, integers and permutations.

    >>> from sfumato.core.randomness import SeededCoins
    >>> bernoulli(0.5, 4, SeededCoins(1)).shape
    (4,)

Every function's result has exactly the stated law (total variation distance 0), given ideal coins.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.sampling.lazy import RELATIVE, Source
from sfumato.mechanisms.sampling.precise import Bounds, exp_bounds, rational_bounds

__all__ = [
    "accept_exp",
    "bernoulli",
    "bernoulli_exp",
    "flip",
    "permutation",
    "permute",
    "uniform_integers",
]


def bernoulli(p: Fraction | float, size: int, coins: Coins = SYSTEM) -> NDArray[np.bool_]:
    """``size`` independent flips, each true with probability exactly ``p``.

    A float is taken as the exact dyadic number it is: ``bernoulli(0.1, ...)`` flips with
    probability 0.1000000000000000055511...; ask for ``Fraction(1, 10)`` to have one tenth.
    """
    exact = _exact("p", p)
    if exact > 1:
        validation.fail("p", "between 0 and 1", p)
    size = validation.at_least("size", size, 0)
    return flip(partial(rational_bounds, exact), size, Source(coins))


def bernoulli_exp(x: Fraction | float, size: int, coins: Coins = SYSTEM) -> NDArray[np.bool_]:
    """``size`` independent flips, each true with probability exactly exp(-x), x >= 0."""
    exact = _exact("x", x)
    size = validation.at_least("size", size, 0)
    return flip(partial(exp_bounds, exact), size, Source(coins))


def _exact(name: str, value: Fraction | float) -> Fraction:
    """A rational, 0 or above, as given: a Fraction never passes through a float."""
    exact = value if isinstance(value, Fraction) else Fraction(validation.finite(name, value))
    if exact < 0:
        validation.fail(name, "a number, 0 or above", value)
    return exact


def flip(threshold: Callable[[int], Bounds], size: int, source: Source) -> NDArray[np.bool_]:
    """Whether each of ``size`` uniforms is below one threshold, exactly."""
    low, high = threshold(source.bits)
    words = source.first(size)
    if low >> source.bits:  # the threshold is 1
        return np.ones(size, dtype=np.bool_)
    result = words < np.uint64(low)
    open_up_to = np.uint64(max(high - 1, 0))  # high itself may be 2^64
    for i in np.flatnonzero((words >= np.uint64(low)) & (words <= open_up_to)).tolist():
        result[i] = source.lazy(words[i]).below(threshold)
    return result


def accept_exp(
    x: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    source: Source,
) -> NDArray[np.bool_]:
    """Independent flips, flip i true with probability exactly exp(-exact(i)).

    Args:
        x: the exponents in floating point, so precise that |exp(-x) - exp(-exact(i))| < 2^-41.
        exact: the exponent of one flip as a rational, for those the filter leaves open.
        source: where the bits come from.

    The computed probability is thus within 2^-41 + RELATIVE of the true one, and the uniform within
    2^-bits (and a rounding of 2^-54) of its first bits.
    """
    words = source.first(x.size)
    gap = np.exp(-x) - words.astype(np.float64) * 2.0**-source.bits
    result = gap > 0
    margin = 2.0 * RELATIVE + 1.5 * 2.0**-source.bits
    for i in np.flatnonzero(np.abs(gap) <= margin).tolist():
        result[i] = source.lazy(words[i]).below(partial(exp_bounds, exact(i)))
    return result


def uniform_integers(n: int, size: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
    """``size`` independent integers, each exactly uniform on 0 .. n - 1, for n up to 2^63.

    A word is used only if it lies below the largest multiple of n that 64 bits hold; its remainder
    is then uniform.
    """
    n = validation.count("n", n)
    size = validation.at_least("size", size, 0)
    if n > 1 << 63:
        validation.fail("n", "at most 2^63", n)
    if n & (n - 1) == 0:
        return (coins.words(size) & np.uint64(n - 1)).view(np.int64)
    last = np.uint64((1 << 64) - (1 << 64) % n - 1)
    words = coins.words(size)
    words = words[words <= last]
    while words.size < size:
        more = coins.words(size - words.size)
        words = np.concatenate([words, more[more <= last]])
    return (words % np.uint64(n)).view(np.int64)


def permutation(n: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
    """One of the n! orders of 0 .. n - 1, each exactly equally likely.

    Sorts by independent uniform reals, of which 64 bits are looked at first; items whose first bits
    agree are ordered by a fresh uniform permutation, as their remaining bits would.
    """
    return permute(validation.at_least("n", n, 0), Source(coins))


def permute(n: int, source: Source) -> NDArray[np.int64]:
    """:func:`permutation` with an adjustable number of first bits."""
    if n < 2:
        return np.arange(n, dtype=np.int64)
    keys = source.first(n)
    order = np.argsort(keys, kind="stable").astype(np.int64)
    ends = np.flatnonzero(np.diff(keys[order])) + 1
    starts = np.concatenate([[0], ends, [n]])
    for index in np.flatnonzero(np.diff(starts) > 1).tolist():
        tied = slice(int(starts[index]), int(starts[index + 1]))
        source.refined += 1
        order[tied] = order[tied][permute(tied.stop - tied.start, source)]
    return order
