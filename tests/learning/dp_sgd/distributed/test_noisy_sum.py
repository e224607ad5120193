"""Noise across replicas, threads in the place of ranks: each coordinate once, by its own scale."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.learning.dp_sgd.distributed.noisy_sum import noisy_means
from sfumato.learning.dp_sgd.distributed.ranks import Alone, Ranks, TorchRanks, find_ranks
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.noise import CoinNoise


class Threads(Ranks):
    """Ranks that are threads of one process."""

    def __init__(self, rank, shared):
        self.rank, self.count, self._shared = rank, shared["count"], shared

    def _all(self, value):
        shared = self._shared
        shared["values"][self.rank] = value
        shared["barrier"].wait()
        everyone = list(shared["values"])
        shared["barrier"].wait()
        return everyone

    def leading(self, act):
        return self._all(act() if self.leads else None)[0]

    def gathered(self, value):
        return self._all(value)

    def total(self, values):
        return [sum(each) for each in zip(*self._all(values), strict=True)]

    def broadcast(self, tensor):
        tensor.copy_(self._all(tensor.clone())[0])

    def reduce_scatter(self, out, parts):
        out.copy_(sum(self._all(parts.clone())).view(self.count, -1)[self.rank])

    def all_gather(self, parts, own):
        parts.copy_(torch.cat(self._all(own.clone())))


def with_ranks(count, act):
    shared = {"count": count, "values": [None] * count, "barrier": threading.Barrier(count)}
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: act(Threads(rank, shared)), range(count)))


class Constant:
    """As many standard deviations as it is told, so that noise can be counted."""

    name, private = "constant", False

    def __init__(self, times=1.0):
        self.times = times

    def normal(self, like, std):
        return torch.full_like(like, self.times * std)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    count=st.integers(1, 5),
    bucket=st.integers(1, 12),
    wide=st.booleans(),
)
def test_every_coordinate_gets_its_own_noise_once(sizes, count, bucket, wide):
    kinds = [torch.float64 if wide and i % 2 else torch.float32 for i in range(len(sizes))]
    stds = [10.0 ** (i + 1) for i in range(len(sizes))]

    def act(ranks):
        sums = [
            torch.full((n, 2), 1.0 + ranks.rank, dtype=k) for n, k in zip(sizes, kinds, strict=True)
        ]
        _, spread = noisy_means(
            ranks, Constant(), [([s], std) for s, std in zip(sums, stds, strict=True)], 4.0,
            watched=True, bucket=bucket,
        )  # fmt: skip
        return sums, spread

    found = with_ranks(count, act)
    clean = count * (count + 1) / 2
    for sums, _ in found:  # the same everywhere: the clean total and one noise, over the lot size
        for tensor, std in zip(sums, stds, strict=True):
            assert torch.equal(tensor, torch.full_like(tensor, (clean + std) / 4.0))
    expected = sum(2 * n * std**2 for n, std in zip(sizes, stds, strict=True))
    assert sum(spread for _, spread in found) == pytest.approx(expected)


def test_signal_is_the_totals_length():
    def act(ranks):
        sums = [torch.arange(7.0), torch.ones(3)]
        signal, _ = noisy_means(ranks, Constant(), [(sums, 1.0)], 1.0, watched=True)
        return sum(float(s) ** 2 for s in signal)

    assert sum(with_ranks(3, act)) == pytest.approx(9 * (91 + 3))


def test_real_noise_has_the_plans_deviation_on_any_number_of_ranks():
    def act(ranks):
        sums = [torch.zeros(20_001)]
        noisy_means(ranks, CoinNoise(), [(sums, 3.0)], 10.0)
        return sums[0]

    for count in (1, 3):
        first, *others = with_ranks(count, act)
        assert float(first.std()) == pytest.approx(0.3, rel=0.03)
        assert all(torch.equal(first, other) for other in others)
        assert len(first.unique()) > 19_900


def test_alone_is_one_rank():
    ranks = Alone()
    sums = [torch.ones(3, 3)]
    noisy_means(ranks, Constant(2.0), [(sums, 0.5)], 2.0)
    assert torch.equal(sums[0], torch.ones(3, 3))
    assert ranks.total([1, 2.5]) == [1.0, 2.5]
    assert isinstance(find_ranks(), Alone)
    with pytest.raises(TrainingError, match="init_process_group"):
        TorchRanks()
