"""Noise: normal to the last test, every word once, in the tensor's own type and place."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import noise
from sfumato.learning.dp_sgd.noise import LARGEST_COIN_NOISE, CoinNoise, TorchNoise

SOURCES = {
    "coins": lambda: CoinNoise(SeededCoins(11)),
    "torch": lambda: TorchNoise(coins=SeededCoins(12)),
}
sources = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
DOUBLE = torch.empty(1_000_000, dtype=torch.float64)


class Counting:
    """Seeded coins that remember how many words they gave, and which."""

    private = False

    def __init__(self):
        self.inner, self.given = SeededCoins(5), []

    def words(self, count):
        got = self.inner.words(count)
        self.given.append(got)
        return got


class Constant:
    """Coins that give one word for the radius and one for the angle."""

    private = False

    def __init__(self, radius, angle):
        self.pair = radius, angle

    def words(self, count):
        return np.repeat(np.array(self.pair, dtype=np.uint64), count // 2)


@sources
def test_the_law(make):
    drawn = make().normal(DOUBLE, 3.0).numpy() / 3.0
    assert drawn.mean() == pytest.approx(0, abs=4e-3)
    assert drawn.var() == pytest.approx(1, rel=0.01)
    assert stats.kstest(drawn[:200_000], "norm").pvalue > 1e-3
    edges = stats.norm.ppf(np.linspace(0, 1, 1001))
    counts = np.histogram(drawn, edges)[0]
    assert stats.chisquare(counts).pvalue > 1e-3
    assert (drawn**3).mean() == pytest.approx(0, abs=0.02)
    assert (drawn**4).mean() == pytest.approx(3, rel=0.02)


@sources
def test_the_tails(make):
    drawn = np.abs(make().normal(DOUBLE, 1.0).numpy())
    for at in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(at) * len(drawn)
        assert abs((drawn > at).sum() - expected) < 4.5 * math.sqrt(expected)


def test_box_muller_at_its_ends():
    like = torch.empty(2, dtype=torch.float64)
    assert pytest.approx(9.4925, abs=1e-4) == LARGEST_COIN_NOISE
    far = CoinNoise(Constant(0, 0)).normal(like, 1.0)
    assert float(far[0]) == pytest.approx(LARGEST_COIN_NOISE)
    assert float(far[1]) == pytest.approx(0, abs=1e-12)
    near = CoinNoise(Constant(2**64 - 1, 123)).normal(like, 1.0)
    assert bool(near.isfinite().all())
    assert float(near.abs().max()) < 1e-6
    quarter = CoinNoise(Constant(2**63, 2**62)).normal(like, 2.0)
    assert float(quarter[1]) == pytest.approx(2 * math.sqrt(2 * math.log(2)))
    half_turn = CoinNoise(Constant(2**63, 2**63)).normal(like, 1.0)
    assert half_turn.tolist() == pytest.approx([-math.sqrt(2 * math.log(2)), 0], abs=1e-12)
    assert 2 * stats.norm.sf(LARGEST_COIN_NOISE) == pytest.approx(2.3e-21, rel=0.05)


def test_box_and_mullers_formula():
    coins = Counting()
    found = CoinNoise(coins).normal(torch.empty(20_000, dtype=torch.float64), 1.5).numpy()
    u, v = ((word.astype(np.float64) + 0.5) / 2**64 for word in np.split(coins.given[0], 2))
    radius = 1.5 * np.sqrt(-2 * np.log(u))
    turn = 2 * np.pi * v
    exact = np.concatenate([radius * np.cos(turn), radius * np.sin(turn)])
    assert np.abs(found - exact).max() < 1e-14


@sources
def test_tensors_get_independent_draws(make):
    source = make()
    like = torch.empty(100_000, dtype=torch.float64)
    first, second = source.normal(like, 1.0), source.normal(like, 1.0)
    both = torch.stack([first, second, first.roll(1), first.roll(50_000), second.roll(1)])
    apart = torch.corrcoef(both) - torch.eye(5)
    assert float(apart.abs().max()) < 4.5 / math.sqrt(100_000)
    squares = torch.corrcoef(both**2) - torch.eye(5)
    assert float(squares.abs().max()) < 4.5 / math.sqrt(100_000)


def test_the_two_halves_of_a_pair_are_independent():
    drawn = CoinNoise(SeededCoins(8)).normal(torch.empty(32_768, dtype=torch.float64), 1.0)
    cos, sin = drawn[:16_384], drawn[16_384:]
    assert abs(float(torch.corrcoef(torch.stack([cos, sin]))[0, 1])) < 4.5 / 128
    assert abs(float(torch.corrcoef(torch.stack([cos**2, sin**2]))[0, 1])) < 4.5 / 128


@pytest.mark.parametrize("size", [0, 1, 2, 7, 32_768, 32_769, 100_001])
def test_every_word_is_used_once(size):
    coins = Counting()
    source = CoinNoise(coins)
    first = source.normal(torch.empty(size), 1.0)
    assert first.shape == (size,)
    drawn = sum(map(len, coins.given))
    assert size <= drawn <= size + 1 + size // noise._BLOCK
    source.normal(torch.empty(size), 1.0)
    assert sum(map(len, coins.given)) == 2 * drawn  # nothing kept from before
    every = np.concatenate([np.zeros(0, np.uint64), *coins.given])
    assert len(np.unique(every)) == len(every)
    assert len(first.unique()) > 0.99 * size - 1


@sources
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_type_shape_and_place(make, dtype):
    like = torch.zeros(40, 5, 20, dtype=dtype, requires_grad=True)
    drawn = make().normal(like, 0.25)
    assert (drawn.dtype, drawn.shape, drawn.device) == (dtype, like.shape, like.device)
    assert not drawn.requires_grad
    assert float(drawn.double().std()) == pytest.approx(0.25, rel=0.05)
    assert make().normal(torch.empty(()), 1.0).shape == ()
    assert make().normal(torch.empty(3, 0), 1.0).shape == (3, 0)
    apart = torch.zeros(6, 4, dtype=dtype).T  # not contiguous
    assert make().normal(apart, 1.0).shape == (4, 6)


def test_a_small_type_gets_the_rounded_double():
    exact = CoinNoise(SeededCoins(3)).normal(torch.empty(1000, dtype=torch.float64), 0.1)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = CoinNoise(SeededCoins(3)).normal(torch.empty(1000, dtype=dtype), 0.1)
        assert torch.equal(rounded, exact.to(dtype))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@sources
def test_on_a_gpu(make):
    drawn = make().normal(torch.empty(100_000, device="cuda"), 2.0)
    assert drawn.is_cuda
    assert float(drawn.std()) == pytest.approx(2.0, rel=0.02)


@sources
def test_bad_parameters(make):
    for std in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="std must be"):
            make().normal(torch.empty(3), std)
    with pytest.raises(ValueError, match="like must be a tensor of floating-point numbers"):
        make().normal(torch.empty(3, dtype=torch.int64), 1.0)
    assert float(make().normal(torch.empty(3), 0.0).abs().sum()) == 0.0


# --- who may call it private --------------------------------------------------------------------


def test_names_and_privacy():
    assert (CoinNoise().name, CoinNoise().private) == ("coins", True)
    assert not CoinNoise(SeededCoins(1)).private
    assert (TorchNoise().name, TorchNoise().private) == ("torch", True)
    assert not TorchNoise(coins=SeededCoins(1)).private
    assert not TorchNoise(torch.Generator()).private  # whoever made it may know its state


def test_many_threads_give_the_same_law():
    drawn = CoinNoise(SYSTEM).normal(torch.empty(noise._MANY * 4 + 3, dtype=torch.float64), 1.0)
    assert len(drawn.unique()) == len(drawn)
    assert float(drawn.var()) == pytest.approx(1, rel=0.01)
    assert float(drawn.mean()) == pytest.approx(0, abs=6e-3)


def test_the_global_seed_of_torch_changes_nothing():
    like = torch.empty(8)
    for source in (CoinNoise(), TorchNoise()):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        first = source.normal(like, 1.0)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(0)
        assert not torch.equal(source.normal(like, 1.0), first)
    assert not torch.equal(TorchNoise().normal(like, 1.0), TorchNoise().normal(like, 1.0))
    given = [TorchNoise(torch.Generator().manual_seed(3)).normal(like, 1.0) for _ in range(2)]
    assert torch.equal(*given)


def test_fresh_generators_take_all_their_state_from_coins():
    generator = torch.Generator().manual_seed(2**32 + 5)
    at = slice(noise._STATE_AT, noise._STATE_AT + 8)
    assert generator.get_state()[at].view(torch.int64).tolist() == [5]  # 32 bits alone
    coins = Counting()
    started = noise._started(torch.device("cpu"), coins)
    words = started.get_state()[noise._STATE_AT :][: 8 * noise._STATE_WORDS].view(torch.int64)
    assert words.tolist() == (coins.given[1] & np.uint64(0xFFFFFFFF)).tolist()
    same = noise._started(torch.device("cpu"), SeededCoins(5))
    other = noise._started(torch.device("cpu"), SeededCoins(6))
    draws = [torch.randn(4, generator=g) for g in (started, same, other)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
