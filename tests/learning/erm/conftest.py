"""What tests of private linear models share."""

import numpy as np
import pytest


class SameCoins:
    """The same words at every call, so that two fits can be compared; for tests only."""

    private = False

    def __init__(self, seed=0):
        self.seed = seed

    def words(self, count):
        drawn = np.random.Philox(self.seed).random_raw(count)
        return np.asarray(drawn, dtype=np.uint64).reshape(-1)

    def __eq__(self, other):
        return isinstance(other, SameCoins) and other.seed == self.seed

    __hash__ = None


@pytest.fixture
def same_coins():
    return SameCoins()


@pytest.fixture
def table():
    """2,000 rows of three columns in [0, 1], and whether their sum is large."""
    rng = np.random.default_rng(5)
    rows = rng.random((2000, 3))
    return rows, (rows.sum(axis=1) + rng.normal(0, 0.1, 2000) > 1.5).astype(int)
