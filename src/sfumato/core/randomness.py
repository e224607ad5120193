"""Randomness: the one door through which every random bit of released noise comes.

Noise that can be predicted is no noise. So coins come from the operating system's entropy by
default, there is no global seed, and nothing in this package calls NumPy's, Python's or torch's
generators for a released value. Code that draws takes ``coins`` as an argument and reads whole
64-bit words.

Tests need repeatable coins. :class:`SeededCoins` gives them, and stamps: whatever was made with it
carries ``private = False`` in its record for good.

    >>> SYSTEM.private, SeededCoins(7).private
    (True, False)
    >>> bool((SeededCoins(7).words(3) == SeededCoins(7).words(3)).all())
    True
"""

from __future__ import annotations

import os
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["SYSTEM", "Coins", "SeededCoins", "SystemCoins", "Words", "fair_coins"]

Words = NDArray[np.uint64]


class Coins(Protocol):
    """A source of independent, uniformly distributed 64-bit words."""

    @property
    def private(self) -> bool:
        """Whether noise made from these coins may be called private."""
        ...

    def words(self, count: int) -> Words:
        """``count`` fresh words, each uniform on 0 .. 2^64 - 1."""
        ...


@final
class SystemCoins:
    """The operating system's cryptographic generator; safe across forks and threads."""

    @property
    def private(self) -> bool:
        """True."""
        return True

    def words(self, count: int) -> Words:
        """``count`` words from ``os.urandom``."""
        count = validation.at_least("count", count, 0)
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "SystemCoins()"


@final
class SeededCoins:
    """Repeatable coins **for tests only**; every record they touch is stamped as not private."""

    def __init__(self, seed: int) -> None:
        self.seed = validation.at_least("seed", seed, 0)
        self._generator = np.random.Philox(self.seed)

    @property
    def private(self) -> bool:
        """False, always."""
        return False

    def words(self, count: int) -> Words:
        """The next ``count`` words of the seeded sequence."""
        count = validation.at_least("count", count, 0)
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)

    def __repr__(self) -> str:
        return f"SeededCoins({self.seed})"


SYSTEM: Coins = SystemCoins()
"""The default everywhere."""


def fair_coins(count: int, coins: Coins = SYSTEM) -> NDArray[np.bool_]:
    """``count`` independent tosses of a fair coin."""
    words = coins.words(-(-validation.count("count", count) // 64))
    return np.unpackbits(words.view(np.uint8))[:count].astype(bool)
