"""A world of one rank is one process: no exchange, the same noise and steps, correlated or not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    BandedNoise,
    ChaChaNoise,
    CyclicPoissonLots,
    Flat,
    PoissonLots,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.distributed import Alone, Ranks
from sfumato.learning.dp_sgd.stepping import NoisyStep

ROWS = 40


class OneRank(Ranks):
    """As torch.distributed's world of one, but nothing may be exchanged."""

    def leading(self, act):
        return act()

    def gathered(self, value):
        return [value]

    def total(self, values):
        raise AssertionError("waits for a device")

    def broadcast(self, tensor):
        raise AssertionError("nobody else")

    def reduce_scatter(self, out, parts):
        raise AssertionError("nobody else")

    def all_gather(self, parts, own):
        raise AssertionError("nobody else")


class Told:
    wanted = True

    def __init__(self):
        self.steps = []

    def update(self, step):
        self.steps.append(step)

    def close(self):
        pass


def trained(ranks, plan):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x, y = torch.randn(ROWS, 5), torch.randint(0, 3, (ROWS,))
    told = Told()
    DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (x, y), plan=plan, ranks=ranks,
        noise=ChaChaNoise(SeededCoins(2)), coins=SeededCoins(1), progress=told,
    ).fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"))  # fmt: skip
    return torch.cat([p.detach().flatten() for p in model.parameters()]), told.steps


PLANS = {
    "independent": TrainingPlan(PoissonLots(9.0, ROWS), Flat(0.5), 1.0, 3, 1e-5),
    "correlated": TrainingPlan(
        CyclicPoissonLots(4, ROWS, 3), Flat(0.5), 1.0, 3, 1e-5, correlation=BandedNoise(3)
    ),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_world_of_one_rank_is_one_process(kind):
    alone, told_alone = trained(Alone(), PLANS[kind])
    one, told = trained(OneRank(), PLANS[kind])
    assert torch.equal(one, alone)
    assert told == told_alone
    assert len(told) == 3


def test_one_process_does_not_wait_for_its_device_to_add_up_facts(monkeypatch):
    monkeypatch.setattr(NoisyStep, "_total_facts", None)
    assert len(trained(Alone(), PLANS["independent"])[1]) == 3
