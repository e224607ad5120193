"""Coins: the operating system's by default; seeded ones repeat, and stamp."""

import os

import numpy as np
import pytest

from sfumato.core import SYSTEM, SeededCoins


def test_system_coins_never_repeat():
    first, second = SYSTEM.words(1000), SYSTEM.words(1000)
    assert len(set(first.tolist()) | set(second.tolist())) == 2000
    assert SYSTEM.private


def test_system_coins_differ_after_a_fork():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, SYSTEM.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), dtype=np.uint64)
    os.close(read)
    os.close(write)
    assert not set(theirs.tolist()) & set(SYSTEM.words(4).tolist())


@pytest.mark.parametrize("coins", [SYSTEM, SeededCoins(3)])
def test_every_bit_is_fair(coins):
    words = coins.words(100_000)
    assert words.dtype == np.uint64
    bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 64)
    # 64 fair coins of 100,000 tosses each stay within 6.5 standard deviations, but for 1 in 10^8.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6.5 * 0.5 / np.sqrt(100_000)


def test_seeded_coins_repeat_and_continue():
    one, other = SeededCoins(5), SeededCoins(5)
    assert one.words(10).tolist() == [*other.words(4).tolist(), *other.words(6).tolist()]
    assert SeededCoins(5).words(4).tolist() != SeededCoins(6).words(4).tolist()
    assert not one.private


def test_no_words_and_bad_counts():
    assert len(SYSTEM.words(0)) == len(SeededCoins(0).words(0)) == 0
    for bad in (-1, 1.5, "3"):
        with pytest.raises(ValueError, match="count"):
            SYSTEM.words(bad)
    with pytest.raises(ValueError, match="seed"):
        SeededCoins(-1)
