"""Uniform draws from coins: who enters a lot, a random part, a random order. All exact.

Each is a function of 64-bit words alone, and takes as many as the number of units asks for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins, Words

__all__ = ["Positions", "arrangement", "below", "bernoulli", "permutation", "subset"]

Positions = NDArray[np.int64]
"""Where some units stand among all of them."""


def bernoulli(count: int, threshold: int, coins: Coins) -> Positions:
    """Those of ``count`` whose 64-bit word is below ``threshold``, at a quarter of the words.

    A word's first 16 bits decide, unless they are the threshold's own: then the other 48 do.
    """
    if threshold >= 2**64:
        return np.arange(count, dtype=np.int64)
    high, low = divmod(threshold, 2**48)
    leading: NDArray[np.uint16] = coins.words(-(-count // 4)).view(np.uint16)[:count]
    entered = leading < np.uint16(high)
    undecided = np.flatnonzero(leading == np.uint16(high))
    entered[undecided] = (coins.words(len(undecided)) >> np.uint64(16)) < np.uint64(low)
    return np.flatnonzero(entered).astype(np.int64, copy=False)


def subset(count: int, size: int, coins: Coins) -> Positions:
    """A uniformly random ``size`` of ``count``: those with the smallest words.

    Exactly uniform: whether the words tell the two sides apart does not depend on which is which.
    """
    if size >= count:
        return np.arange(count, dtype=np.int64)
    while True:
        words: Words = coins.words(count)
        order = np.argpartition(words, size - 1)
        inside, outside = order[:size], order[size:]
        if words[inside].max() < words[outside].min():
            return np.sort(inside).astype(np.int64, copy=False)


def permutation(count: int, coins: Coins) -> Positions:
    """A uniformly random order: by words that all differ."""
    while True:
        words: Words = coins.words(count)
        order = np.argsort(words, kind="stable")
        ranked = words[order]
        if bool((ranked[1:] != ranked[:-1]).all()):
            return order.astype(np.int64, copy=False)


def below(bounds: Positions, coins: Coins) -> Positions:
    """Independent, exactly uniform numbers from 0 to each bound minus 1."""
    limits = bounds.astype(np.uint64)
    # The words from 2^64 - (2^64 mod bound) on would favour small remainders: drawn again.
    last = ~np.uint64(0) - (np.uint64(0) - limits) % limits
    words = coins.words(len(limits)).copy()
    while len(again := np.flatnonzero(words > last)):
        words[again] = coins.words(len(again))
    return (words % limits).astype(np.int64)


def arrangement(count: int, coins: Coins) -> Positions:
    """A uniformly random order in which one unit more moves at most one other.

    Fisher and Yates, from the inside out: unit i takes a uniform one of the places 0 .. i, and
    whoever had it goes to place i. With the same coins, ``count + 1`` units stand as ``count`` do,
    but for the one whose place the last took, who stands behind all others.

    Returns:
        Who stands at each place.

    Vectorised: a unit leaves a place when someone later draws it, for the place of that one.
    """
    taken = below(np.arange(1, count + 1, dtype=np.int64), coins)
    in_turn = np.argsort(taken, kind="stable")  # draws of the same place, one after the other
    drawn = taken[in_turn]
    place, follows = taken.copy(), np.full(count, -1, dtype=np.int64)
    same = drawn[1:] == drawn[:-1]
    follows[in_turn[:-1][same]] = in_turn[1:][same]  # who next draws the place that i took
    # Place p is first held by the one who goes there in turn p; after that turn, who draws it?
    nexts = np.full(count, -1, dtype=np.int64)
    starts = np.flatnonzero(np.r_[True, ~same]) if count else np.zeros(0, dtype=np.int64)
    first = in_turn[starts]
    nexts[drawn[starts]] = first
    itself = np.flatnonzero(nexts == np.arange(count))
    nexts[itself] = follows[itself]
    moving = np.flatnonzero(follows >= 0)
    where = follows[moving]
    while len(moving):
        place[moving] = where
        onward = nexts[where]
        moving, where = moving[onward >= 0], onward[onward >= 0]
    order = np.empty(count, dtype=np.int64)
    order[place] = np.arange(count)
    return order
