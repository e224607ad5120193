import math

import numpy as np
import pytest
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import discrete_gaussian, flips, lazy
from sfumato.mechanisms.sampling.gaussian import draw_by_rejection, draw_gaussian
from sfumato.mechanisms.sampling.lazy import Source

MILLION = 1_000_000


def weights(sigma: float) -> tuple[int, np.ndarray]:
    reach = math.ceil(12 * sigma) + 2
    return -reach, np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 7.3, 150.0, 3000.0])
def test_law_from_the_table_at_a_million_draws(sigma, integer_fit):
    draws = discrete_gaussian(sigma, MILLION, SeededCoins(21))
    assert integer_fit(draws, *weights(sigma)) > 0.001
    assert integer_fit(draws, *weights(1.01 * sigma)) < 1e-6


@pytest.mark.parametrize("sigma", [0.6, 4.0, 500.0, 20_000.0])
def test_law_by_rejection_at_a_million_draws(sigma, integer_fit):
    draws = draw_by_rejection(sigma, MILLION, Source(SeededCoins(22)))
    assert integer_fit(draws, *weights(sigma)) > 0.001
    assert integer_fit(draws, *weights(1.01 * sigma)) < 1e-6


@pytest.mark.parametrize("sigma", [5e4, 2.0**24, 1e9, 2.0**40])
def test_law_at_large_scales(sigma, continuous_fit):
    """Beyond 10^4 the continuous distribution function differs by less than 10^-9."""
    draws = discrete_gaussian(sigma, MILLION, SeededCoins(23)) + 0.0
    assert continuous_fit(draws, stats.norm(scale=sigma)) > 0.001
    assert continuous_fit(draws, stats.norm(scale=1.01 * sigma)) < 1e-6
    assert abs(draws.var() / sigma**2 - 1) < 4 * math.sqrt(2 / MILLION)
    kurtosis = np.mean((draws / sigma) ** 4)
    assert abs(kurtosis - 3) < 4 * math.sqrt(96 / MILLION)


@pytest.mark.parametrize("sigma", [0.05, 0.25])
def test_tiny_scales(sigma):
    draws = discrete_gaussian(sigma, MILLION, SeededCoins(24))
    expected = 2 * MILLION * math.exp(-1 / (2 * sigma**2))
    assert abs(np.count_nonzero(draws) - expected) <= 4 * math.sqrt(expected) + 0.1


@pytest.mark.parametrize(("sigma", "bits"), [(0.8, 4), (3.0, 6), (40.0, 8)])
def test_short_first_words_give_the_law_through_refinement(sigma, bits, integer_fit):
    source = Source(SeededCoins(25), bits)
    draws = draw_gaussian(sigma, 20_000, source)
    assert source.refined > 2000
    assert integer_fit(draws, *weights(sigma)) > 0.001


def test_short_first_words_in_the_rejection_too(integer_fit):
    source = Source(SeededCoins(26), bits=6)
    draws = draw_by_rejection(5.0, 10_000, source)
    assert source.refined > 10_000
    assert integer_fit(draws, *weights(5.0)) > 0.001


@pytest.mark.parametrize("sigma", [0.7, 1e4, 2.0**40])
def test_filter_and_exact_arithmetic_agree_draw_by_draw(monkeypatch, sigma):
    quick = draw_by_rejection(sigma, 1000, Source(SeededCoins(27)))
    monkeypatch.setattr(lazy, "RELATIVE", 1e9)
    monkeypatch.setattr(flips, "RELATIVE", 1e9)
    source = Source(SeededCoins(27))
    slow = draw_by_rejection(sigma, 1000, source)
    assert source.refined >= 2000
    assert np.array_equal(quick, slow)


def test_few_draws_of_a_moderate_sigma_make_no_table(integer_fit):
    draws = np.concatenate(
        [discrete_gaussian(900.0, 500, SeededCoins(seed)) for seed in range(100)]
    )
    assert integer_fit(draws, *weights(900.0)) > 0.001


@pytest.mark.parametrize("sigma", [0, 0.0, -1.0, math.nan, math.inf, "1", None, 2.0**41])
def test_bad_scales_are_errors(sigma):
    with pytest.raises(ValueError, match="sigma"):
        discrete_gaussian(sigma, 1)


@pytest.mark.parametrize("size", [-1, 1.5, "2"])
def test_bad_sizes_are_errors(size):
    with pytest.raises(ValueError, match="size"):
        discrete_gaussian(1.0, size)


def test_system_coins():
    draws = discrete_gaussian(10.0, 100_000, SYSTEM)
    assert draws.dtype == np.int64
    assert draws.shape == (100_000,)
    assert abs(draws.mean()) < 1
    assert discrete_gaussian(1e6, 0).shape == (0,)
