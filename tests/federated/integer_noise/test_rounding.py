import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.core.randomness import SeededCoins
from sfumato.federated.integer_noise.rounding import round_within, squared_norm_bound


@settings(deadline=None, max_examples=200)
@given(
    arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=True, allow_infinity=True)),
    st.integers(0, 10**6),
    st.integers(0, 3),
)
def test_the_bound_holds_whatever_comes(values, most, attempts):
    whole = round_within(values, most, coins=SeededCoins(1), attempts=attempts)
    assert sum(int(n) ** 2 for n in whole) <= most


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 64), st.floats(0.1, 100.0))
def test_towards_zero_is_always_within(seed, dimension, norm):
    values = np.random.default_rng(seed).normal(size=dimension)
    values *= norm / np.linalg.norm(values)
    whole = round_within(values, squared_norm_bound(norm, dimension), attempts=0)
    assert np.array_equal(whole, np.trunc(values))


def test_neighbouring_integers_and_no_others():
    values = np.array([0.0, 0.25, -0.25, 1.75, 3.0, -7.5])
    draws = np.stack([round_within(values, 10**6, coins=SeededCoins(s)) for s in range(300)])
    assert np.all(np.abs(draws - values) < 1)
    assert set(draws[:, 4]) == {3}


def test_unbiased_where_no_draw_is_too_long():
    values = np.array([0.1, -0.7, 0.5, 2.3])
    norm = float(np.linalg.norm(values))
    most = squared_norm_bound(norm, 4, rejection=1e-12)
    assert most == math.floor((norm + 2) ** 2)
    coins = SeededCoins(2)
    draws = np.stack([round_within(values, most, coins=coins) for _ in range(20_000)])
    assert draws.mean(0) == pytest.approx(values, abs=4 * 0.5 / math.sqrt(20_000))


def test_draws_are_rejected_less_often_than_stated():
    rng = np.random.default_rng(3)
    for dimension, norm in ((16, 1.0), (256, 5.0), (64, 40.0)):
        for rejection in (math.exp(-0.5), 0.05):
            most = squared_norm_bound(norm, dimension, rejection)
            values = rng.normal(size=dimension)
            values *= norm / np.linalg.norm(values)
            drawn = np.floor(values + rng.uniform(size=(4000, dimension)))
            assert np.mean((drawn**2).sum(1) > most) <= rejection


def test_what_the_bound_is():
    assert squared_norm_bound(20.0, 1) == 420  # 400 + 1/4 + 20.5
    assert squared_norm_bound(1.0, 1) == 2
    assert squared_norm_bound(3.0, 4, rejection=1e-9) == 25
    with pytest.raises(ValueError, match="coarser"):
        squared_norm_bound(2.0**25, 1)
    with pytest.raises(ValueError, match="rejection"):
        squared_norm_bound(1.0, 1, 1.0)
