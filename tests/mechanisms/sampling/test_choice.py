import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import EXACT_STATEMENT, choice, choose, choose_many, noisy_argmax
from sfumato.mechanisms.sampling.choice import argmax, draw_choices
from sfumato.mechanisms.sampling.lazy import Source

MILLION = 1_000_000
WEIGHTS = np.array([0.0, 1.5, -2.0, 1.25, 3.0, 2.9])
SCORES = np.array([1.0, 3.0, 0.5, 2.5])
NOISES = ["laplace", "exponential", "gumbel"]
LAWS = {"laplace": stats.laplace, "exponential": stats.expon, "gumbel": stats.gumbel_r}


def softmax(weights: np.ndarray) -> np.ndarray:
    shares = np.exp(weights - weights.max())
    return shares / shares.sum()


def fit(draws: np.ndarray, shares: np.ndarray) -> float:
    counts = np.bincount(draws, minlength=shares.size)
    return stats.chisquare(counts, shares * draws.size).pvalue


def winning_shares(scores: np.ndarray, noise: str, scale: float) -> np.ndarray:
    """Pr[i wins] = integral of density_i times the others' distribution functions."""
    law = LAWS[noise]

    def density(x: float, i: int) -> float:
        others = np.delete(scores, i)
        return law.pdf(x, scores[i], scale) * np.prod(law.cdf(x, others, scale))

    kinks = np.sort(scores)
    edges = [kinks[0] - 40 * scale, *kinks, kinks[-1] + 60 * scale]
    shares = [
        sum(integrate.quad(density, a, b, (i,))[0] for a, b in pairwise(edges))
        for i in range(scores.size)
    ]
    assert sum(shares) == pytest.approx(1, abs=1e-6)
    return np.array(shares) / sum(shares)


def test_choices_at_a_million_draws():
    draws = choose_many(WEIGHTS, MILLION, SeededCoins(61))
    assert draws.dtype == np.int64
    assert fit(draws, softmax(WEIGHTS)) > 0.001
    assert fit(draws, softmax(1.01 * WEIGHTS)) < 1e-6


def test_single_choices():
    coins = SeededCoins(62)
    draws = np.array([choose(WEIGHTS.tolist(), coins) for _ in range(20_000)])
    assert isinstance(choose([0.0, 1.0], coins), int)
    assert fit(draws, softmax(WEIGHTS)) > 0.001


@pytest.mark.parametrize("bits", [2, 6])
def test_short_first_words_give_the_law_through_refinement(bits):
    source = Source(SeededCoins(63), bits)
    draws = draw_choices(WEIGHTS, 20_000, source)
    assert source.refined > 3000
    assert fit(draws, softmax(WEIGHTS)) > 0.001


def test_choice_filter_and_exact_arithmetic_agree(monkeypatch):
    weights = np.linspace(-5, 5, 200) ** 3
    quick = draw_choices(weights, 2000, Source(SeededCoins(64)))
    monkeypatch.setattr(choice, "RELATIVE", 1e9)
    source = Source(SeededCoins(64))
    slow = draw_choices(weights, 2000, source)
    assert source.refined == 2000
    assert np.array_equal(quick, slow)


def test_words_next_to_a_threshold_choose_the_right_side(scripted):
    shares = choice._ExactShares(WEIGHTS)
    for k in range(1, WEIGHTS.size):
        low, high = shares._bounds(k, 64)
        gaps = [1 << j for j in range(0, 20, 2)]
        words = [low - gap for gap in gaps] + [high + gap - 1 for gap in gaps]
        draws = draw_choices(WEIGHTS, len(words), Source(scripted(*words)))
        assert draws.tolist() == [k - 1] * len(gaps) + [k] * len(gaps)


def test_huge_differences(scripted):
    assert choose_many([0.0, -1e308, 1e308], 1000, SeededCoins(65)).tolist() == [2] * 1000
    assert choose_many([5.0], 3).tolist() == [0, 0, 0]
    # exp(-50) = 2^-72.13: the last 72 bits must all be ones, and a few more decide.
    ones = (1 << 64) - 1
    assert choose([0.0, -50.0], scripted(ones, ones)) == 1
    assert choose([0.0, -50.0], scripted(ones, 0)) == 0


def test_equal_weights_are_equally_likely():
    draws = choose_many([1e6] * 3, 300_000, SeededCoins(66))
    assert fit(draws, np.full(3, 1 / 3)) > 0.001
    assert set(choose_many([7.0] * 4, 100, SYSTEM).tolist()) <= {0, 1, 2, 3}


@pytest.mark.parametrize("noise", NOISES)
def test_noisy_argmax_law(noise):
    coins = SeededCoins(67)
    draws = np.array([noisy_argmax(SCORES, noise, 0.8, coins) for _ in range(25_000)])
    assert fit(draws, winning_shares(SCORES, noise, 0.8)) > 0.001
    assert fit(draws, winning_shares(SCORES, noise, 0.88)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
def test_noisy_argmax_law_at_a_million_draws(noise):
    coins = SeededCoins(68)
    draws = np.array([noisy_argmax(SCORES, noise, 0.8, coins) for _ in range(MILLION)])
    assert fit(draws, winning_shares(SCORES, noise, 0.8)) > 0.001
    assert fit(draws, winning_shares(SCORES, noise, 0.808)) < 1e-4


def test_gumbel_argmax_is_the_exponential_mechanism():
    assert winning_shares(SCORES, "gumbel", 0.8) == pytest.approx(softmax(SCORES / 0.8), abs=1e-6)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("bits", [3, 8])
def test_noisy_argmax_with_short_first_words(noise, bits):
    source = Source(SeededCoins(69), bits)
    draws = np.array([argmax(SCORES, noise, 0.8, source) for _ in range(4000)])
    assert source.refined > 1000
    assert fit(draws, winning_shares(SCORES, noise, 0.8)) > 0.001


@pytest.mark.parametrize("noise", NOISES)
def test_argmax_filter_and_exact_arithmetic_agree(monkeypatch, noise):
    scores = np.linspace(0, 2, 30)

    def draws() -> list[int]:
        return [argmax(scores, noise, 0.7, Source(SeededCoins(seed))) for seed in range(200)]

    quick = draws()
    monkeypatch.setattr(choice, "RELATIVE", 1e9)
    assert draws() == quick


@pytest.mark.parametrize("noise", NOISES)
def test_a_first_tail_of_zero_is_refined(noise, scripted):
    """Word 0 is a plus with tail below 2^-64: the largest noise of a symmetric law."""
    winner = noisy_argmax([0.0, 0.0], noise, 1.0, scripted(0, 1 << 62, 0, 0, 1))
    assert winner == {"laplace": 0, "exponential": 0, "gumbel": 1}[noise]


@given(
    scores=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    noise=st.sampled_from(NOISES),
    exponent=st.integers(-1000, 1000),
)
@settings(max_examples=200, deadline=None)
def test_any_scores(scores, noise, exponent):
    winner = noisy_argmax(scores, noise, math.ldexp(1.0, exponent), SeededCoins(70))
    assert 0 <= winner < len(scores)
    assert 0 <= choose(scores, SeededCoins(71)) < len(scores)


@pytest.mark.parametrize(
    "bad", [[], [math.nan], [0.0, -math.inf], [math.inf], "abc", [[1.0]], ["a"], [None]]
)
def test_bad_weights_and_scores_are_errors(bad):
    with pytest.raises(ValueError, match="log_weights"):
        choose(bad)
    with pytest.raises(ValueError, match="scores"):
        noisy_argmax(bad, "laplace", 1.0)


def test_errors_do_not_repeat_private_scores():
    with pytest.raises(ValueError, match="scores") as error:
        noisy_argmax([123.25, math.nan], "laplace", 1.0)
    assert "123" not in str(error.value)


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, "1"])
def test_bad_scales_are_errors(scale):
    with pytest.raises(ValueError, match="scale"):
        noisy_argmax([0.0, 1.0], "laplace", scale)


def test_bad_noise_is_an_error():
    with pytest.raises(ValueError, match="noise"):
        noisy_argmax([0.0, 1.0], "gaussian", 1.0)


def test_the_statement_names_distance_and_assumptions():
    assert "total variation distance 0" in EXACT_STATEMENT
    assert "2^-40" in EXACT_STATEMENT
