from fractions import Fraction
from functools import partial
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.randomness import SeededCoins
from sfumato.mechanisms.sampling.lazy import (
    RELATIVE,
    LazyUniform,
    Source,
    blocks,
    locate,
    settle_floor,
)
from sfumato.mechanisms.sampling.precise import exp_bounds, rational_bounds


@given(answer=st.integers(-(10**6), 10**6), guess=st.integers(-(10**6), 10**6))
def test_locate_finds_the_last_true_whatever_the_guess(answer, guess):
    assert locate(lambda k: k <= answer, guess) == answer


@given(size=st.integers(0, 200_000))
def test_blocks_cover_each_draw_once(size):
    slices = list(blocks(size))
    assert sum(s.stop - s.start for s in slices) == size
    assert all(a.stop == b.start for a, b in pairwise(slices))


def test_a_uniform_is_extended_only_while_open(scripted):
    third = partial(rational_bounds, Fraction(1, 3))
    first = (1 << 64) // 3
    below = LazyUniform(first, 64, scripted(0))
    assert below.below(third)
    assert below.bits == 128
    above = LazyUniform(first, 64, scripted((1 << 64) - 1))
    assert not above.below(third)
    clear = LazyUniform(first + 1, 64, scripted())
    assert not clear.below(third)
    assert clear.bits == 64


def test_a_dyadic_threshold_is_never_open(scripted):
    half = partial(rational_bounds, Fraction(1, 2))
    uniform = LazyUniform(1 << 63, 64, scripted())
    assert not uniform.below(half)
    assert uniform.bits == 64


@pytest.mark.parametrize("bits", [2, 8, 40, 64])
def test_signed_words_are_a_sign_and_a_tail(bits):
    words = SeededCoins(3).words(1000) >> np.uint64(64 - bits)
    sign, numerators = Source(SeededCoins(3), bits).signed(1000)
    uniform = words.astype(object)
    assert set(sign.tolist()) == {0, -1}
    expected = [u if s == 0 else 2**bits - 1 - u for u, s in zip(uniform, sign, strict=True)]
    assert numerators.tolist() == expected
    assert numerators.min() >= 0
    assert numerators.max() < 2 ** (bits - 1)


@pytest.mark.parametrize("scale", [2.0**20, 2.0**39, 2.0**41, 2.0**46])
@pytest.mark.parametrize("sign", [-1, 1])
def test_floors_are_exact_however_wrong_the_functions_may_be(scale, sign):
    """Laplace magnitudes -ln(2 q), computed with nearly all of the relative error allowed."""
    away = np.linspace(0.05, 0.6, 200)
    numerators = np.rint(2.0**63 * np.exp(-away)).astype(np.int64)
    with mpmath.workprec(200):
        true = [-mpmath.log(mpmath.mpf(int(a)) / 2**63) for a in numerators]
        exact = [mpmath.mpf(scale) * z for z in true]
        clear = np.array([abs(x - mpmath.nint(x)) > 1e-4 for x in exact])
        floors = np.array([int(mpmath.floor(x)) for x in exact])
    quantile = np.array([float(z) for z in true]) * (1 + sign * 0.99 * RELATIVE)

    def tail(_, k):
        step = Fraction(max(k, 0)) / Fraction(scale)

        def halved(prec):
            low, high = exp_bounds(step, prec)
            return low // 2, -(-high // 2)

        return halved

    found = settle_floor(quantile, scale, 0.0, numerators, tail, Source(SeededCoins(1), 64))
    assert clear.sum() > 150
    assert np.array_equal(found[clear], floors[clear])
