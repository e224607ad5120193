"""Uniform draws from coins: who enters a lot, a random part, a random order. All exact.

Each is a function of 64-bit words alone, and takes as many as the number of units asks for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins, Words

__all__ = ["Positions", "bernoulli", "permutation", "subset"]

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
