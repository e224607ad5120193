import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import ive

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import skellam
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.sampling.skellam import _first_ratio, _half_sums, draw_skellam, log_tail

MILLION = 1_000_000


def weights(variance):
    reach = math.ceil(12 * math.sqrt(variance)) + 12
    return -reach, ive(np.abs(np.arange(-reach, reach + 1)), variance)


@pytest.mark.parametrize("variance", [0.05, 0.7, 9.0, 150.0, 62_500.0, 1e6])
def test_law_at_a_million_draws(variance, integer_fit):
    draws = skellam(variance, MILLION, SeededCoins(31))
    assert integer_fit(draws, *weights(variance)) > 0.001
    assert integer_fit(draws, *weights(1.04 * variance)) < 1e-6


def test_it_is_the_difference_of_two_poisson_numbers(integer_fit):
    rng = np.random.default_rng(32)
    difference = rng.poisson(3.0, MILLION) - rng.poisson(3.0, MILLION)
    assert integer_fit(difference, *weights(6.0)) > 0.001


@pytest.mark.parametrize("variance", [2.0**24, 2.0**26])
def test_large_variances_are_drawn_in_pieces(variance, continuous_fit):
    draws = skellam(variance, 200_000, SeededCoins(33)) + 0.0
    assert continuous_fit(draws, stats.norm(scale=math.sqrt(variance))) > 0.001
    assert abs(draws.var() / variance - 1) < 4 * math.sqrt(2 / draws.size)


@pytest.mark.parametrize(("variance", "bits"), [(0.8, 4), (9.0, 6), (400.0, 8)])
def test_short_first_words_give_the_law_through_refinement(variance, bits, integer_fit):
    source = Source(SeededCoins(34), bits)
    draws = draw_skellam(variance, 20_000, source)
    assert source.refined > 2000
    assert integer_fit(draws, *weights(variance)) > 0.001


@pytest.mark.parametrize("variance", [2.0**-40, 0.001, 0.75, 4.0, 90.0])
@pytest.mark.parametrize("prec", [64, 128, 200])
def test_cumulative_probabilities_are_certified(variance, prec):
    """Within [-1, 2] units of the truth, which mpmath's Bessel functions give."""
    with mpmath.workprec(prec + 80):
        v = mpmath.mpf(variance)
        scaled = [
            mpmath.besseli(k, v) * mpmath.exp(-v) for k in range(len(_half_sums(variance, prec)))
        ]
        total = scaled[0] / 2
        for k, found in enumerate(_half_sums(variance, prec)[1:], start=1):
            truth = total * mpmath.mpf(2) ** prec
            assert found - 1 <= truth <= found + 2
            total += scaled[k] if k < len(scaled) else 0
        assert 1 - 2 * total < mpmath.mpf(2) ** -(prec + 28)


def test_the_first_ratio_lies_between_its_bounds():
    with mpmath.workprec(400):
        for variance, steps in ((Fraction(1, 3), 5), (Fraction(50), 60), (Fraction(4000), 500)):
            low, high = _first_ratio(variance, steps, 200)
            v = mpmath.mpf(variance.numerator) / variance.denominator
            ratio = mpmath.besseli(steps + 1, v) / mpmath.besseli(steps, v)
            assert low <= ratio * mpmath.mpf(2) ** 200 <= high


@pytest.mark.parametrize("variance", [0.3, 7.0, 300.0])
def test_the_tail_bound_is_one(variance):
    low, p = weights(variance)
    for t in range(0, -low, 3):
        assert math.log(p[t - low :].sum()) <= log_tail(variance, t) + 1e-12


@pytest.mark.parametrize("variance", [0, -1.0, math.nan, math.inf, "1", None, 2.0**31, 2.0**-41])
def test_bad_variances_are_errors(variance):
    with pytest.raises(ValueError, match="variance"):
        skellam(variance, 1)


def test_system_coins_and_sizes():
    assert skellam(5.0, 0).shape == (0,)
    draws = skellam(100.0, 100_000, SYSTEM)
    assert draws.dtype == np.int64
    assert abs(draws.mean()) < 1
    with pytest.raises(ValueError, match="size"):
        skellam(1.0, -1)
