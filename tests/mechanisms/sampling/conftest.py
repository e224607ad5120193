"""Statistics and coins shared by the sampler tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.core.randomness import SeededCoins


def integer_fit(draws: NDArray[np.int64], low: int, weights: NDArray[np.float64]) -> float:
    """Chi-square p-value of integers against weights on low, low + 1, ... (tails included).

    Neighbouring values are pooled into at most 64 cells of about equal probability, each with an
    expected count of at least 20.
    """
    probabilities = np.asarray(weights) / np.sum(weights)
    high = low + probabilities.size - 1
    inside = np.clip(draws, low, high) - low
    counts = np.bincount(inside, minlength=probabilities.size)
    cells = max(2, min(64, int(draws.size // 20)))
    cell = np.minimum((np.cumsum(probabilities) - probabilities / 2) * cells, cells - 1)
    label = np.unique(cell.astype(int), return_inverse=True)[1]
    expected = np.bincount(label, weights=probabilities) * draws.size
    observed = np.bincount(label, weights=counts)
    return _pooled(observed, expected)


def _pooled(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    small = expected < 20
    if small.any() and not small.all():
        largest = int(np.argmax(expected))
        small[largest] = np.sum(expected[small]) < 20
        observed = np.append(observed[~small], observed[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
    return float(stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue)


def continuous_fit(draws: NDArray[np.float64], law: object, cells: int = 64) -> float:
    """Chi-square p-value of reals against a frozen scipy law, on cells of equal probability."""
    edges = law.ppf(np.arange(1, cells) / cells)  # type: ignore[attr-defined]
    observed = np.bincount(np.searchsorted(edges, draws), minlength=cells)
    return float(stats.chisquare(observed).pvalue)


class ScriptedCoins:
    """Deals given words first, seeded ones afterwards."""

    def __init__(self, *words: int) -> None:
        self._script = list(words)
        self._rest = SeededCoins(99)

    @property
    def private(self) -> bool:
        return False

    def words(self, count: int) -> NDArray[np.uint64]:
        dealt, self._script = self._script[:count], self._script[count:]
        rest = self._rest.words(count - len(dealt))
        return np.concatenate([np.array(dealt, dtype=np.uint64), rest])


@pytest.fixture(name="integer_fit")
def _integer_fit() -> Callable[..., float]:
    return integer_fit


@pytest.fixture(name="continuous_fit")
def _continuous_fit() -> Callable[..., float]:
    return continuous_fit


@pytest.fixture
def scripted() -> type[ScriptedCoins]:
    return ScriptedCoins
