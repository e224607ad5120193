"""Correlated noise on a GPU: the same law, in full precision, without waiting for the device."""

import numpy as np
import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import ChaChaNoise, TrainingPlan
from sfumato.learning.dp_sgd.correlated.drawing import CorrelatedNoise
from sfumato.learning.dp_sgd.stepping import NoisyStep

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]
ALL = [sf.BandedNoise(4), sf.BandedNoise(16), sf.BufferedNoise(3), sf.TreeNoise()]
STEPS = 10


@pytest.fixture(params=["highest", "medium"])
def products(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("products")
@pytest.mark.parametrize("correlation", ALL)
def test_covariance_where_the_sums_are(correlation):
    """Also where the user allows short products."""
    noise = CorrelatedNoise(correlation.recursion(STEPS), ChaChaNoise(SeededCoins(4)))
    like, std = torch.zeros(1000, 300, device="cuda"), 2.0
    seen = [noise.noise_for("w", like, std).flatten().double().cpu().numpy() for _ in range(STEPS)]
    inverse = np.linalg.inv(correlation.matrix(STEPS))
    wanted = std**2 * inverse @ inverse.T
    spread = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / np.sqrt(3e5)
    assert (np.abs(np.cov(np.array(seen)) - wanted) < 5 * spread).all()


@pytest.mark.parametrize("correlation", ALL)
def test_a_step_does_not_wait(correlation):
    shapes = {"a": (700, 700), "b": (5,)}
    held = {name: nn.Parameter(torch.zeros(shape).cuda()) for name, shape in shapes.items()}
    plan = TrainingPlan(
        sf.StreamedLots(10, 100), sf.Flat(1.0), 1.0, STEPS, 1e-5, sf.Neighbours.ZERO_OUT,
        correlation=correlation,
    )  # fmt: skip
    optimizer = torch.optim.SGD(held.values(), lr=0.1)
    step = NoisyStep(plan, held, optimizer, None, ChaChaNoise(SeededCoins(4)), 1.0)
    step.watched = False  # a report does wait
    for number in range(STEPS):
        sums = {name: torch.randn_like(p.detach()) for name, p in held.items()}
        step.sum.merge(sums, torch.ones(3, 1).cuda(), torch.ones(3).cuda(), whole=True)
        if number >= 2:  # what is made once was made
            torch.cuda.set_sync_debug_mode("error")
        try:
            step.apply(number)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert all(p.isfinite().all() for p in held.values())
    assert held["a"].any()
