"""Noise: normal to the last test, every word once, in the tensor's own type and place."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import noise
from sfumato.learning.dp_sgd.kernels.updates import Descent
from sfumato.learning.dp_sgd.noise import (
    LARGEST_COIN_NOISE,
    ChaChaNoise,
    CoinNoise,
    PlacedNoise,
    TorchNoise,
    default_noise,
    noisy_mean,
)

SOURCES = {
    "coins": lambda: CoinNoise(SeededCoins(11)),
    "torch": lambda: TorchNoise(coins=SeededCoins(12)),
    "chacha20": lambda: ChaChaNoise(SeededCoins(13)),
    "placed": lambda: PlacedNoise(SeededCoins(14)),
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
    for made in (ChaChaNoise, PlacedNoise):
        assert (made().name, made().private) == ("chacha20", True)
        assert not made(SeededCoins(1)).private
        assert repr(made()) == f"{made.__name__}(SystemCoins())"


def test_many_threads_give_the_same_law():
    drawn = CoinNoise(SYSTEM).normal(torch.empty(noise._MANY * 4 + 3, dtype=torch.float64), 1.0)
    assert len(drawn.unique()) > len(drawn) - 3  # of 10^6 doubles two are alike once in 10^5 times
    assert float(drawn.var()) == pytest.approx(1, rel=0.01)
    assert float(drawn.mean()) == pytest.approx(0, abs=6e-3)


def test_the_global_seed_of_torch_changes_nothing():
    like = torch.empty(8)
    for source in (CoinNoise(), TorchNoise(), ChaChaNoise()):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        first = source.normal(like, 1.0)
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(0)
        assert not torch.equal(source.normal(like, 1.0), first)
    assert not torch.equal(TorchNoise().normal(like, 1.0), TorchNoise().normal(like, 1.0))
    given = [TorchNoise(torch.Generator().manual_seed(3)).normal(like, 1.0) for _ in range(2)]
    assert torch.equal(*given)


# --- a sum, its noise, and the expected lot size --------------------------------------------------


class Plain:
    """A source with nothing but ``normal``."""

    name, private = "plain", False

    def __init__(self):
        self.inner = CoinNoise(SeededCoins(11))

    def normal(self, like, std):
        return self.inner.normal(like, std)


MEANS = {**SOURCES, "plain": Plain}


@pytest.mark.parametrize("make", MEANS.values(), ids=MEANS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noisy_mean_is_the_sum_and_normal_noise_divided(make, dtype):
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    total = torch.linspace(-3, 3, 2500, dtype=exact).view(50, 50)
    expected = (total + make().normal(total, 0.5)) / 7
    out = torch.empty(50, 50, dtype=dtype, requires_grad=True)
    noisy_mean(make(), total, 0.5, 7, out)
    apart = (out.detach().to(exact) - expected).abs().max()
    assert float(apart) <= 2 * torch.finfo(dtype).eps
    noisy_mean(make(), total, 0.5, 7.0, total)  # in place
    assert float((total - expected).abs().max()) <= 2 * torch.finfo(exact).eps
    noisy_mean(make(), total, 0.0, 2.0, total)
    assert float((total - expected / 2).abs().max()) <= 2 * torch.finfo(exact).eps


@pytest.mark.parametrize("make", MEANS.values(), ids=MEANS)
def test_noisy_mean_of_any_layout(make):
    total = torch.full((40, 30), 12.0).T
    for out in (torch.empty(40, 30).T, torch.empty(30, 40), torch.empty(30, 80)[:, ::2]):
        noisy_mean(make(), total, 3.0, 6.0, out)
        assert float(out.mean()) == pytest.approx(2.0, abs=4 * 0.5 / math.sqrt(1200))
        assert float(out.std()) == pytest.approx(0.5, rel=0.09)
    for empty in (torch.empty(0), torch.empty(3, 0)):
        noisy_mean(make(), empty, 1.0, 6.0, empty)
    noisy_mean(make(), torch.tensor(1.0), 0.0, 4.0, one := torch.tensor(0.0))
    assert float(one) == 0.25


@pytest.mark.parametrize("make", MEANS.values(), ids=MEANS)
def test_noisy_mean_refuses(make):
    total = torch.zeros(4)
    for size in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="size must be"):
            noisy_mean(make(), total, 1.0, size, total)
    with pytest.raises(ValueError, match="std must be"):
        noisy_mean(make(), total, -1.0, 1.0, total)
    for out in (torch.zeros(3), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"out must be floating point, \(4,\) on cpu"):
            noisy_mean(make(), total, 1.0, 1.0, out)
    assert not total.any()


# --- ChaCha20 -------------------------------------------------------------------------------------


def spied(monkeypatch, source):
    """Every segment the source takes from now on."""
    taken, take = [], source._stream.take
    monkeypatch.setattr(source._stream, "take", lambda n: taken.append(take(n)) or taken[-1])
    return taken


def blocks_of(taken):
    return [(s.words, b) for s in taken for b in range(s.counter, s.counter + s.blocks)]


def test_parameters_steps_ranks_and_resumed_runs_share_no_block(monkeypatch):
    ranks = [ChaChaNoise() for _ in range(2)] + [ChaChaNoise()]  # and one that was resumed
    kept = [spied(monkeypatch, source) for source in ranks]
    for source in ranks:
        for _ in range(3):
            for shape in ((3,), (3,), (40, 50)):
                total = torch.zeros(shape)
                noisy_mean(source, total, 1.0, 2.0, total)
                source.normal(total.double(), 1.0)
    used = [block for taken in kept for block in blocks_of(taken)]
    assert len(used) == len(set(used)) > 3 * 3 * 6 * 100


def test_the_counter_grows_before_the_noise_is_made(monkeypatch):
    source = ChaChaNoise()
    taken = spied(monkeypatch, source)

    def fails(*arguments):
        raise RuntimeError("no memory left")

    source.normal(torch.empty(5), 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(noise.chacha, "fill", fails)
        with pytest.raises(RuntimeError, match="no memory left"):
            source.normal(torch.empty(5), 1.0)
    source.normal(torch.empty(5), 1.0)
    used = blocks_of(taken)
    assert len(taken) == 3
    assert len(used) == len(set(used))


def test_a_source_with_a_key_cannot_be_copied():
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            attempt(ChaChaNoise())
    for attempt in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            attempt(PlacedNoise())
    placed = PlacedNoise()
    assert copy.copy(placed)._far is placed._far  # and so the counter


def test_standard_deviations_that_float32_cannot_hold():
    source, like = ChaChaNoise(), torch.zeros(3)
    for std in (1e-31, 1e31):
        with pytest.raises(ValueError, match="std must be 0, or from 1e-30 to 1e\\+30"):
            source.normal(like, std)
        assert bool(source.normal(like.double(), std).isfinite().all())
    assert float(source.normal(like, 1e-30).abs().min()) > 0


def test_smaller_types_get_the_rounded_float32():
    exact = ChaChaNoise(SeededCoins(3)).normal(torch.empty(1000), 0.1)
    rounded = ChaChaNoise(SeededCoins(3)).normal(torch.empty(1000, dtype=torch.bfloat16), 0.1)
    assert torch.equal(rounded, exact.bfloat16())
    double = ChaChaNoise(SeededCoins(3)).normal(torch.empty(1000, dtype=torch.float64), 0.1)
    assert float((exact.double() / double - 1).abs().max()) < 2**-20


def test_the_default_is_coins_on_a_cpu():
    coins = SeededCoins(1)
    chosen = default_noise(coins, [torch.zeros(3)])
    assert isinstance(chosen, CoinNoise)
    assert chosen.coins is coins
    placed = PlacedNoise(SeededCoins(2)).normal(torch.empty(9), 1.0)
    assert torch.equal(placed, CoinNoise(SeededCoins(2)).normal(torch.empty(9), 1.0))


def test_an_update_takes_the_same_noise_as_a_mean():
    total = torch.linspace(-3, 3, 2500)
    noisy_mean(ChaChaNoise(SeededCoins(2)), total, 0.5, 7.0, mean := torch.empty(2500))
    for source in (ChaChaNoise(SeededCoins(2)), PlacedNoise(SeededCoins(2))):
        assert not source.updates(total)  # not worth it here
        source.noisy_update(Descent(p := torch.zeros(2500), None, lr=1.0), total, 0.5, 7.0)
        assert torch.equal(p, -mean)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_default_is_chacha_on_a_gpu(monkeypatch):
    total = torch.zeros(1_000_000, device="cuda")
    chosen = default_noise(SYSTEM, [torch.zeros(3), total])
    assert isinstance(chosen, PlacedNoise)
    taken = spied(monkeypatch, chosen._far)
    noisy_mean(chosen, total, 3.0, 6.0, total)
    assert float(total.std()) == pytest.approx(0.5, rel=0.01)
    double = chosen.normal(total.double(), 2.0)
    assert float(double.std()) == pytest.approx(2.0, rel=0.01)
    chosen.normal(torch.zeros(3), 1.0)
    assert len(taken) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_noise_in_a_captured_graph_is_refused():
    source, total = ChaChaNoise(), torch.zeros(100, device="cuda")
    source.normal(total, 1.0)
    with (
        pytest.raises(RuntimeError, match="replays would repeat its noise"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        source.noisy_mean(total, 1.0, 1.0, total)
