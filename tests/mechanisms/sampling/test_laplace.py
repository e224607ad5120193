import math

import numpy as np
import pytest

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import discrete_laplace, laplace, lazy
from sfumato.mechanisms.sampling.laplace import draw_laplace
from sfumato.mechanisms.sampling.lazy import Source

MILLION = 1_000_000


def weights(scale: float) -> tuple[int, np.ndarray]:
    reach = math.ceil(50 * scale) + 2
    return -reach, np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 300.0])
def test_law_at_a_million_draws(scale, integer_fit):
    draws = discrete_laplace(scale, MILLION, SeededCoins(11))
    assert integer_fit(draws, *weights(scale)) > 0.001
    assert integer_fit(draws, *weights(1.01 * scale)) < 1e-6


@pytest.mark.parametrize("scale", [0.01, 0.05, 0.15])
def test_tiny_scales(scale, integer_fit):
    draws = discrete_laplace(scale, MILLION, SeededCoins(12))
    expected = 2 * MILLION * math.exp(-1 / scale) / (1 + math.exp(-1 / scale))
    assert abs(np.count_nonzero(draws) - expected) <= 4 * math.sqrt(expected) + 0.1


def large_fit(draws: np.ndarray, scale: float, fit) -> float:
    """Against the exact distribution function at integer edges, as 64 equally likely cells."""
    p = np.exp(-1 / scale)
    edges = np.floor(scale * np.log(np.arange(1, 32) / 32))
    tails = np.exp(edges / scale) / (1 + p)  # Pr[K <= edge], edge < 0
    edges = np.concatenate([edges, [-1.0], -edges[::-1] - 1])
    cumulative = np.concatenate([tails, [p / (1 + p)], 1 - tails[::-1], [1.0]])
    cells = np.searchsorted(edges, draws, side="left")
    return fit(cells, 0, np.diff(cumulative, prepend=0.0))


@pytest.mark.parametrize("scale", [1e5, 2.0**22, 2.0**22 + 1, 3.3e9, 2.0**50])
def test_law_at_large_scales(scale, integer_fit):
    draws = discrete_laplace(scale, MILLION, SeededCoins(13))
    assert large_fit(draws, scale, integer_fit) > 0.001
    assert large_fit(draws, 1.01 * scale, integer_fit) < 1e-4


@pytest.mark.parametrize("scale", [2.0**22, 2.0**22 + 1, 2.0**50])
@pytest.mark.parametrize("shift", [0, 12])
def test_low_digits_are_uniform_at_large_scales(scale, shift, integer_fit):
    draws = discrete_laplace(scale, MILLION, SeededCoins(14))
    assert integer_fit((draws >> shift) & 63, 0, np.ones(64)) > 0.001


def test_splitting_into_digits_gives_the_law_at_a_small_scale(monkeypatch, integer_fit):
    """Digits of scale 40: h of scale 1.25 or 0.625, l of 5 or 6 bits, rejections frequent."""
    monkeypatch.setattr(laplace, "_SPLIT", 1.0)
    monkeypatch.setattr(laplace, "_DIGIT", 1)
    draws = discrete_laplace(40.0, MILLION, SeededCoins(15))
    assert integer_fit(draws, *weights(40.0)) > 0.001
    assert integer_fit(draws, *weights(40.4)) < 1e-6


@pytest.mark.parametrize(("scale", "bits"), [(0.7, 6), (4.0, 8), (60.0, 12)])
def test_short_first_words_give_the_law_through_refinement(scale, bits, integer_fit):
    source = Source(SeededCoins(16), bits)
    draws = draw_laplace(scale, 20_000, source)
    assert source.refined > 10_000
    assert integer_fit(draws, *weights(scale)) > 0.001


def test_short_first_words_in_the_digits_too(monkeypatch, integer_fit):
    monkeypatch.setattr(laplace, "_SPLIT", 1.0)
    monkeypatch.setattr(laplace, "_DIGIT", 1)
    source = Source(SeededCoins(17), bits=6)
    draws = draw_laplace(40.0, 10_000, source)
    assert source.refined > 10_000
    assert integer_fit(draws, *weights(40.0)) > 0.001


@pytest.mark.parametrize("scale", [0.2, 1.0, 1000.0, 2.0**22, 2.0**40])
def test_filter_and_exact_arithmetic_agree_draw_by_draw(monkeypatch, scale):
    quick = draw_laplace(scale, 2000, Source(SeededCoins(18)))
    monkeypatch.setattr(lazy, "RELATIVE", 1e9)
    monkeypatch.setattr("sfumato.mechanisms.sampling.flips.RELATIVE", 1e9)
    source = Source(SeededCoins(18))
    slow = draw_laplace(scale, 2000, source)
    assert source.refined >= 2000
    assert np.array_equal(quick, slow)


@pytest.mark.parametrize("scale", [0.2, 1.0, 1000.0, 2.0**22])
def test_words_next_to_a_threshold_fall_on_its_right_side(scale, scripted):
    """Where floating point cannot tell, the answer is still the exact one."""
    for k in {1, 2, math.ceil(scale / 3), math.ceil(3 * scale), math.ceil(11 * scale)}:
        threshold = laplace._folded_tail(scale, k)(64)
        gaps = [1 << j for j in range(3, 20, 2)]
        words = [threshold[0] - gap for gap in gaps] + [threshold[1] + gap for gap in gaps]
        if min(words) >= 0 and max(words) < 1 << 63:
            draws = draw_laplace(scale, len(words), Source(scripted(*words)))
            assert np.array_equal(draws >= k, [True] * len(gaps) + [False] * len(gaps))


def test_the_first_word_zero_is_the_far_tail(scripted):
    draw = draw_laplace(1.0, 1, Source(scripted(0, 1 << 63)))[0]
    assert draw == math.floor(65 * math.log(2) - math.log1p(math.exp(-1)))


@pytest.mark.parametrize("scale", [0, 0.0, -1.0, math.nan, math.inf, "1", None, 2.0**51, True])
def test_bad_scales_are_errors(scale):
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(scale, 1)


@pytest.mark.parametrize("size", [-1, 1.5, "2", math.nan])
def test_bad_sizes_are_errors(size):
    with pytest.raises(ValueError, match="size"):
        discrete_laplace(1.0, size)


def test_system_coins():
    draws = discrete_laplace(10.0, 100_000, SYSTEM)
    assert draws.dtype == np.int64
    assert draws.shape == (100_000,)
    assert abs(draws.mean()) < 1
    assert discrete_laplace(10.0, 0).shape == (0,)
