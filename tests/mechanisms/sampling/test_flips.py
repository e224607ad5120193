import math
from collections import Counter
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import bernoulli, bernoulli_exp, flips, permutation
from sfumato.mechanisms.sampling import uniform_integers as integers
from sfumato.mechanisms.sampling.flips import accept_exp, flip, permute
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.sampling.precise import exp_bounds, rational_bounds

MILLION = 1_000_000


def share_fit(flipped: np.ndarray, p: float) -> float:
    return stats.binomtest(int(flipped.sum()), flipped.size, p).pvalue


@pytest.mark.parametrize("p", [0.3, Fraction(1, 3), Fraction(99, 100), 0.5])
def test_bernoulli_at_a_million_draws(p):
    flipped = bernoulli(p, MILLION, SeededCoins(51))
    assert flipped.dtype == np.bool_
    assert share_fit(flipped, float(p)) > 0.001
    assert share_fit(flipped, 0.99 * float(p)) < 1e-6


@pytest.mark.parametrize("x", [0.5, 1.2, Fraction(7, 3)])
def test_bernoulli_exp_at_a_million_draws(x):
    flipped = bernoulli_exp(x, MILLION, SeededCoins(52))
    assert share_fit(flipped, math.exp(-x)) > 0.001
    assert share_fit(flipped, math.exp(-1.01 * x)) < 1e-4


def test_certain_and_impossible():
    assert bernoulli(1, 1000).all()
    assert bernoulli_exp(0, 1000).all()
    assert not bernoulli(0, 1000).any()
    assert not bernoulli_exp(1e300, 1000).any()
    assert bernoulli(Fraction(10**400 - 1, 10**400), 1000).all()
    assert bernoulli_exp(Fraction(1, 10**400), 1000).all()


@pytest.mark.parametrize("bits", [1, 3])
def test_short_first_words_give_the_law_through_refinement(bits):
    for threshold, p in [
        (lambda prec: rational_bounds(Fraction(1, 3), prec), 1 / 3),
        (lambda prec: exp_bounds(Fraction(1, 10), prec), math.exp(-0.1)),
    ]:
        source = Source(SeededCoins(53), bits)
        flipped = flip(threshold, 40_000, source)
        assert source.refined > 1000
        assert share_fit(flipped, p) > 0.001


def test_a_tie_is_settled_by_further_words(scripted):
    third = (1 << 64) // 3
    assert bernoulli(Fraction(1, 3), 1, scripted(third, 0)).all()
    assert not bernoulli(Fraction(1, 3), 1, scripted(third, (1 << 64) - 1)).any()
    assert bernoulli(Fraction(1, 3), 1, scripted(third - 1)).all()
    assert not bernoulli(Fraction(1, 3), 1, scripted(third + 1)).any()


def test_accept_exp_filter_and_exact_arithmetic_agree(monkeypatch):
    exponents = [Fraction(i, 400) for i in range(2000)]
    x = np.array([float(e) for e in exponents])
    quick = accept_exp(x, exponents.__getitem__, Source(SeededCoins(54)))
    monkeypatch.setattr(flips, "RELATIVE", 1e9)
    source = Source(SeededCoins(54))
    slow = accept_exp(x, exponents.__getitem__, source)
    assert source.refined == 2000
    assert np.array_equal(quick, slow)


def test_accept_exp_next_to_the_threshold(scripted):
    for x in [Fraction(1, 7), Fraction(3, 2), Fraction(12345, 10**9), Fraction(20)]:
        low, high = exp_bounds(x, 64)
        gaps = [1 << j for j in range(0, 20, 2)]
        words = [low - gap for gap in gaps] + [high + gap - 1 for gap in gaps]
        exponents = np.full(len(words), float(x))
        accepted = accept_exp(exponents, lambda _, x=x: x, Source(scripted(*words)))
        assert accepted.tolist() == [True] * len(gaps) + [False] * len(gaps)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_integers_at_a_million_draws(n, integer_fit):
    draws = integers(n, MILLION, SeededCoins(55))
    assert draws.dtype == np.int64
    assert draws.min() == 0
    assert draws.max() == n - 1
    if n > 2:
        counts = np.bincount(draws, minlength=n)
        assert stats.chisquare(counts).pvalue > 0.001
        tilted = 1 + 0.02 * np.linspace(-1, 1, n)
        assert stats.chisquare(counts, tilted / tilted.sum() * MILLION).pvalue < 1e-4


@pytest.mark.parametrize("n", [3 << 61, (1 << 63) - 1, 1 << 63])
def test_large_ranges_reject_without_bias(n, integer_fit):
    """3 * 2^61 of 2^64 words: a plain remainder would favour the lower third two to one."""
    draws = integers(n, 300_000, SeededCoins(56))
    assert draws.min() >= 0
    assert int(draws.max()) < n
    assert integer_fit((draws / n * 60).astype(np.int64), 0, np.ones(60)) > 0.001


def test_permutations_are_equally_likely():
    coins = SeededCoins(57)
    seen = Counter(tuple(permutation(4, coins).tolist()) for _ in range(24_000))
    assert set(seen) == set(permutations(range(4)))
    assert stats.chisquare(list(seen.values())).pvalue > 0.001


@pytest.mark.parametrize("bits", [1, 2])
def test_permutations_with_ties_are_equally_likely(bits):
    source = Source(SeededCoins(58), bits)
    seen = Counter(tuple(permute(4, source).tolist()) for _ in range(12_000))
    assert source.refined > 7000
    assert stats.chisquare(list(seen.values())).pvalue > 0.001


def test_a_long_permutation(integer_fit):
    order = permutation(200_000, SYSTEM)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(200_000))
    order = permutation(MILLION, SeededCoins(59))
    front = order[: MILLION // 2]
    assert integer_fit(front // (MILLION // 50), 0, np.ones(50)) > 0.001


def test_empty_and_single():
    assert permutation(0).tolist() == []
    assert permutation(1).tolist() == [0]
    assert integers(5, 0).tolist() == []
    assert bernoulli(0.5, 0).tolist() == []


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf, "0.5", Fraction(3, 2), None])
def test_bad_probabilities_are_errors(p):
    with pytest.raises(ValueError, match="p must be"):
        bernoulli(p, 1)


@pytest.mark.parametrize("x", [-0.1, math.nan, math.inf, "1", Fraction(-1, 2)])
def test_bad_exponents_are_errors(x):
    with pytest.raises(ValueError, match="x must be"):
        bernoulli_exp(x, 1)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", math.nan, (1 << 63) + 1])
def test_bad_ranges_are_errors(n):
    with pytest.raises(ValueError, match="n must be"):
        integers(n, 1)


@pytest.mark.parametrize("n", [-1, 1.5, "3"])
def test_bad_lengths_are_errors(n):
    with pytest.raises(ValueError, match="n must be"):
        permutation(n)


@pytest.mark.parametrize("size", [-1, 0.5, "3"])
def test_bad_sizes_are_errors(size):
    for draw in (bernoulli, bernoulli_exp):
        with pytest.raises(ValueError, match="size"):
            draw(0.5, size)
    with pytest.raises(ValueError, match="size"):
        integers(5, size)
