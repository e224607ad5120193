import mpmath
import numpy as np
import pytest

from sfumato.core.randomness import SeededCoins
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.sampling.tables import gaussian_table, gaussian_threshold


def thresholds(sigma: float, bits: int) -> tuple[int, list[int]]:
    """floor(2^bits C_k), one mpmath exponential a term, at 300 bits."""
    with mpmath.workprec(300):
        reach = int(16 * sigma) + 3
        variance = mpmath.mpf(sigma) ** 2
        terms = [
            mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * variance)) for k in range(-reach, reach + 1)
        ]
        total = mpmath.fsum(terms)
        sums, running = [], mpmath.mpf(0)
        for term in terms:
            running += term
            sums.append(int(mpmath.floor(running / total * 2**bits)))
    return -reach + 1, sums  # the first sum is C_(-reach + 1)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0, 2.7, 33.3, 300.0])
@pytest.mark.parametrize("bits", [8, 64])
def test_floors_match_mpmath(sigma, bits):
    table = gaussian_table(sigma, bits)
    first, expected = thresholds(sigma, bits)
    start = table.first + 1 - first
    assert table.floors.tolist() == expected[start : start + table.floors.size]


@pytest.mark.parametrize("sigma", [0.4, 5.0])
@pytest.mark.parametrize("prec", [65, 128, 192])
def test_threshold_bounds_hold_in_and_beyond_the_table(sigma, prec):
    first, expected = thresholds(sigma, prec)
    for k in range(-int(20 * sigma) - 5, int(20 * sigma) + 6):
        low, high = gaussian_threshold(sigma, k, prec)
        exact = expected[min(max(k - first, 0), len(expected) - 1)] if k >= first else 0
        assert low - 1 <= exact <= high
        assert high - low <= 4


@pytest.mark.parametrize("k", [-3, 0, 1, 2, 7])
def test_a_tie_is_settled_by_further_words(scripted, k):
    table = gaussian_table(2.0)
    tie = int(table.floors[k - table.first - 1])
    assert table.draw(1, Source(scripted(tie, 0))).tolist() == [k - 1]
    assert table.draw(1, Source(scripted(tie, (1 << 64) - 1))).tolist() == [k]
    assert table.draw(1, Source(scripted(tie - 1))).tolist() == [k - 1]
    assert table.draw(1, Source(scripted(tie + 1))).tolist() == [k]


def test_tails_go_beyond_the_table(scripted):
    table = gaussian_table(2.0)
    reach = -table.first
    deep = table.draw(1, Source(scripted(0, 0, 0)))[0]
    high = table.draw(1, Source(scripted(*3 * [(1 << 64) - 1])))[0]
    assert deep < -reach
    assert high > reach
    assert deep == -high


def test_guide_and_search_agree():
    table = gaussian_table(50.0)
    words = SeededCoins(5).words(200_000)
    searched = np.searchsorted(table.floors, words, side="right") + table.first
    assert np.array_equal(table.draw(words.size, Source(SeededCoins(5))), searched)


def test_short_first_words_give_the_law_through_refinement(integer_fit):
    source = Source(SeededCoins(6), bits=4)
    draws = gaussian_table(3.0, 4).draw(30_000, source)
    k = np.arange(-40, 41)
    assert source.refined > 15_000
    assert integer_fit(draws, -40, np.exp(-(k**2) / 18.0)) > 0.001
