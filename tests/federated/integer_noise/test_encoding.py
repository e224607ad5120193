import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.core.randomness import SeededCoins
from sfumato.federated.integer_noise import DistributedGaussian, DistributedSkellam, Encoding
from sfumato.federated.integer_noise.encoding import clipped


@settings(deadline=None, max_examples=100)
@given(arrays(np.float64, 6, elements=st.floats(allow_nan=True, allow_infinity=True)))
def test_no_update_moves_more_than_the_bound(update):
    encoding = Encoding(clip=2.0, granularity=0.1, bits=20, dimension=6)
    whole = encoding.encode(update, seed=3, coins=SeededCoins(1))
    assert whole.shape == (8,)
    assert int((whole * whole).sum()) <= encoding.squared_norm


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 8))
def test_without_noise_the_sum_comes_back(seed, dimension, clients):
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(clients, dimension))
    encoding = Encoding(clip=1.0, granularity=2.0**-8, bits=24, dimension=dimension)
    coins = SeededCoins(seed)
    sent = [encoding.wrap(encoding.encode(u, seed=seed, coins=coins)) for u in updates]
    found = encoding.decode(np.sum(sent, axis=0), seed=seed)
    truth = np.sum([clipped(u, 1.0) for u in updates], axis=0)
    most = clients * encoding.granularity * math.sqrt(encoding.padded)
    assert np.linalg.norm(found - truth) <= most


def test_the_mean_is_unbiased_where_no_draw_is_rejected():
    encoding = Encoding(1.0, 0.25, 12, 3, rejection=1e-30)
    coins = SeededCoins(4)
    update = [0.31, -0.2, 0.11]
    shown = np.stack(
        [
            encoding.decode(encoding.wrap(encoding.encode(update, seed=9, coins=coins)), seed=9)
            for _ in range(8000)
        ]
    )
    assert shown.mean(0) == pytest.approx(update, abs=4 * 0.125 / math.sqrt(8000))


def test_sums_wrap_modulo_and_are_centred():
    encoding = Encoding(1.0, 1.0, 4, 1)
    assert encoding.decode(np.array([7]), seed=0)[0] in (7.0, -7.0)
    assert abs(encoding.decode(np.array([8]), seed=0)[0]) == 8
    same = encoding.decode(np.array([3]), seed=0)
    assert encoding.decode(np.array([3 + 16 * 5], np.uint64), seed=0) == same
    assert encoding.wrap(np.array([-1, 17])).tolist() == [15, 1]


def test_clipping_survives_every_size():
    assert clipped(np.array([1e308, 1e308]), 1.0) == pytest.approx([0.5**0.5, 0.5**0.5])
    assert clipped(np.array([1e-308, 0.0]), 1.0).tolist() == [1e-308, 0.0]
    assert clipped(np.array([0.3, 0.4]), 1.0).tolist() == pytest.approx([0.3, 0.4])
    assert clipped(np.zeros(2), 1.0).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("kind", [DistributedGaussian, DistributedSkellam])
def test_the_bound_on_wrapping_is_one_and_not_a_wild_one(kind):
    """All clients push one way, on a grid on which wrapping is frequent enough to be counted."""
    noise = kind.with_bits(
        clip=1.0, dimension=64, clients=10, n_min=10, bits=10, noise_multiplier=1.0, wrap=0.5
    )
    assert 0.4 < noise.wrap_probability <= 0.5
    rng = np.random.default_rng(5)
    update = rng.normal(size=64)
    wrapped = 0
    coins = SeededCoins(6)
    for seed in range(60):
        whole = sum(noise.encoding.encode(update, seed=seed, coins=coins) for _ in range(10))
        whole = whole + noise._noise(64 * 10, coins).reshape(10, 64).sum(0)
        wrapped += bool(np.any((whole >= 512) | (whole < -512)))
    assert wrapped / 60 <= 0.5
    finer = kind(1.0, noise.granularity / 4, 10, 64, 10, 10, 1.0)
    assert finer.wrap_probability == 1.0
    assert finer.least_bits(0.5) == 12
    assert noise.least_bits(0.5) == 10


def test_bad_parameters():
    with pytest.raises(ValueError, match="clip"):
        Encoding(0.0, 0.1, 16, 3)
    with pytest.raises(ValueError, match="granularity"):
        Encoding(1.0, math.nan, 16, 3)
    with pytest.raises(ValueError, match="bits"):
        Encoding(1.0, 0.1, 63, 3)
    encoding = Encoding(1.0, 0.1, 16, 3)
    with pytest.raises(ValueError, match="update must be a vector of 3"):
        encoding.encode([1.0, 2.0], seed=0)
    with pytest.raises(ValueError, match="total must be a vector of 4 whole"):
        encoding.decode([1.0, 2.0, 3.0, 4.0], seed=0)
