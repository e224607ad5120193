"""Noise in shares: exact divergences, dropouts, calibration, the ledger."""

import math

import numpy as np
import pytest
from scipy.special import ive, logsumexp

from sfumato.accounting import account
from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import GaussianEvent, event_from_dict, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.federated.integer_noise import DistributedGaussian, DistributedSkellam, TooFewShares
from sfumato.ledger.charges import charge

BOTH = pytest.mark.parametrize("kind", [DistributedGaussian, DistributedSkellam])
WIDE = {"clip": 1.0, "dimension": 1000, "clients": 50, "n_min": 40, "bits": 20}


def share_law(noise, reach=260):
    k = np.arange(-reach, reach + 1)
    if isinstance(noise, DistributedSkellam):
        p = ive(np.abs(k), noise.share_deviation**2)
    else:
        p = np.exp(-(k**2) / (2 * noise.share_deviation**2))
    return p / p.sum()


def exact(noise, survivors, shift, order):
    """D_order between sums of shares, moved and not, by convolution."""
    part = share_law(noise)
    total = part
    for _ in range(survivors - 1):
        total = np.convolve(total, part)
    kept = np.flatnonzero(total > 1e-250)
    logs = np.log(total[kept[0] : kept[-1] + 1])
    return logsumexp(order * logs[:-shift] + (1 - order) * logs[shift:]) / (order - 1)


@BOTH
@pytest.mark.parametrize(("granularity", "z"), [(1.0, 1.0), (0.5, 2.0), (0.1, 1.5)])
@pytest.mark.parametrize("order", [2, 3, 5])
def test_one_number_against_the_exact_divergence(kind, granularity, z, order):
    """All that one client may send, from 1 to the largest: never above the event."""
    noise = kind(1.0, granularity, 16, 1, 4, 3, z)
    claimed = rdp_vector(noise.event(), Neighbours.ZERO_OUT, (float(order),)).values[0]
    for shift in range(1, math.isqrt(noise.encoding.squared_norm) + 1):
        assert exact(noise, 3, shift, order) <= claimed


@BOTH
def test_a_tenth_less_would_be_seen(kind):
    """On a fine grid the worst client is as bad as claimed, to a tenth."""
    noise = kind(1.0, 1 / 20, 16, 1, 4, 3, 2.0)
    claimed = rdp_vector(noise.event(), Neighbours.ZERO_OUT, (2.0,)).values[0]
    assert 0.9 * claimed < exact(noise, 3, math.isqrt(noise.encoding.squared_norm), 2) <= claimed


@BOTH
def test_more_survivors_are_no_worse_and_fewer_are(kind):
    noise = kind(1.0, 1 / 20, 16, 1, 6, 3, 2.0)
    claimed = rdp_vector(noise.event(), Neighbours.ZERO_OUT, (2.0,)).values[0]
    worst = [exact(noise, n, 20, 2) for n in range(1, 7)]
    assert worst == sorted(worst, reverse=True)
    assert worst[1] > claimed >= worst[2]


@BOTH
def test_too_few_survivors_are_refused(kind):
    noise = kind.with_bits(noise_multiplier=1.0, **WIDE)
    total = np.zeros(noise.encoding.padded, np.uint64)
    assert noise.release(total, survivors=45, colluders=5, seed=1).shape == (1000,)
    for survivors, colluders in ((39, 0), (45, 6), (0, 0), (3, 9)):
        with pytest.raises(TooFewShares, match="40 were promised"):
            noise.release(total, survivors=survivors, colluders=colluders, seed=1)


@BOTH
@pytest.mark.parametrize("rate", [1.0, 0.05])
def test_calibration_meets_its_target(kind, rate):
    noise = kind.calibrate(epsilon=2.0, delta=1e-6, rounds=100, sample_rate=rate, **WIDE)
    found = account(noise.event(100, rate), 1e-6, accountant="rdp")
    assert 1.99 < found.epsilon <= 2.0
    assert found.unit == "client"
    assert found.neighbours is Neighbours.ZERO_OUT
    assert noise.wrap_probability <= 1e-6
    assert event_from_dict(noise.event(100, rate).to_dict()) == noise.event(100, rate)


@BOTH
def test_a_fine_grid_costs_as_much_as_gaussian_noise(kind):
    noise = kind.with_bits(noise_multiplier=1.3, **WIDE)
    orders = tuple(float(order) for order in range(2, 40))
    mine = rdp_vector(noise.event(), Neighbours.ZERO_OUT, orders).values
    gaussian = GaussianEvent(1.3, Neighbours.ZERO_OUT, "client")
    ideal = rdp_vector(gaussian, Neighbours.ZERO_OUT, orders).values
    assert np.all(mine >= ideal)
    assert mine == pytest.approx(ideal, rel=1e-3)


@BOTH
def test_sampling_amplifies(kind):
    noise = kind.with_bits(noise_multiplier=1.0, **WIDE)
    whole = account(noise.event(200), 1e-6, accountant="rdp").epsilon
    sampled = account(noise.event(200, 0.01), 1e-6, accountant="rdp").epsilon
    assert sampled < whole / 50
    coins = SeededCoins(3)
    small = kind(1.0, 0.01, 16, 1, 2, 2, 0.05)
    seen = [int(small.message([1.0], seed=0, sample_rate=0.25, coins=coins)[0]) for _ in range(400)]
    sent = np.mean([32 < number < 2**16 - 32 for number in seen])
    assert abs(sent - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 400)


@BOTH
def test_the_noise_is_as_large_as_stated(kind):
    noise = kind.with_bits(noise_multiplier=0.7, **{**WIDE, "clients": 8, "n_min": 6})
    coins = SeededCoins(4)
    sums = [
        noise.release(
            np.sum([noise.blank(coins=coins) for _ in range(8)], axis=0), survivors=8, seed=seed
        )
        for seed in range(20)
    ]
    measured = np.concatenate(sums)
    stated = noise.standard_deviation(8)
    assert stated == pytest.approx(0.7 * math.sqrt(8 / 6), rel=1e-3)
    assert measured.std() == pytest.approx(stated, rel=4 / math.sqrt(2 * measured.size))
    assert noise.standard_deviation() == pytest.approx(0.7, rel=1e-3)


@BOTH
def test_the_sum_is_there_under_the_noise(kind):
    noise = kind.with_bits(noise_multiplier=0.01, **WIDE)
    coins = SeededCoins(5)
    updates = np.random.default_rng(5).normal(size=(40, 1000)) / 100
    total = np.sum([noise.message(u, seed=7, coins=coins) for u in updates], axis=0)
    assert noise.release(total, survivors=40, seed=7) == pytest.approx(updates.sum(0), abs=0.06)


@BOTH
def test_bad_updates_look_like_others(kind):
    noise = kind.with_bits(noise_multiplier=1.0, **WIDE)
    zeros = noise.message(np.zeros(1000), seed=1, coins=SeededCoins(6))
    bad = noise.message(np.full(1000, np.nan), seed=1, coins=SeededCoins(6))
    assert np.array_equal(zeros, bad)
    assert bad.dtype == np.uint64
    assert int(bad.max()) < 2**20
    assert not np.array_equal(noise.blank(), noise.blank())


@BOTH
def test_a_ledger_can_charge_it(kind):
    noise = kind.with_bits(noise_multiplier=5.0, **WIDE)
    event = repeat(noise.event(), 3)
    vector = charge(event, Neighbours.ZERO_OUT, (1.5, 2.0, 7.0, 300.0))
    assert all(0 < amount < 10**14 for amount in vector.orders[1:])
    with pytest.raises(ValueError, match="zero-out guarantee says nothing about add-remove"):
        charge(event, Neighbours.ADD_REMOVE, (2.0,))


@BOTH
def test_bad_parameters(kind):
    with pytest.raises(ValueError, match="n_min must be at most clients"):
        kind(1.0, 0.1, 16, 3, clients=4, n_min=5, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="noise_multiplier"):
        kind(1.0, 0.1, 16, 3, clients=4, n_min=3, noise_multiplier=0.0)
    with pytest.raises(ValueError, match="noise_multiplier"):
        kind(1.0, 1.0, 16, 3, clients=4, n_min=3, noise_multiplier=1e15)
    with pytest.raises(ValueError, match="bits must be more"):
        kind.with_bits(noise_multiplier=1.0, **{**WIDE, "bits": 5})
    with pytest.raises(ValueError, match="more bits than 9"):
        kind.calibrate(epsilon=0.1, delta=1e-6, rounds=1000, **{**WIDE, "bits": 9})
    with pytest.raises(ValueError, match="sample_rate"):
        kind.with_bits(noise_multiplier=1.0, **WIDE).event(1, 0.0)
