"""Noise and update in one pass on a GPU: as by torch's own optimizers, and without waiting."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import ChaChaNoise, Flat, PoissonLots, TrainingPlan, stepping, updating
from sfumato.learning.dp_sgd.kernels.here import triton_is_here
from sfumato.learning.dp_sgd.kernels.updates import Descent
from sfumato.learning.dp_sgd.noise import PlacedNoise
from sfumato.learning.dp_sgd.stepping import NoisyStep

pytestmark = [
    pytest.mark.skipif(
        not torch.cuda.is_available() or not triton_is_here(), reason="needs a GPU and Triton"
    ),
    pytest.mark.filterwarnings("ignore:.*capturable=True"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
]

STEPS, NEVER = 5, 1 << 60
SIZES = [(1,), (127,), (1025,), (33, 31), (600, 700), (1 << 18,), (1_000_003,)]


def parameters(sizes=SIZES):
    torch.manual_seed(0)
    held = {f"p{i}": torch.randn(*size).cuda() for i, size in enumerate(sizes)}
    held["kernel"] = torch.randn(64, 32, 3, 3).cuda().to(memory_format=torch.channels_last)
    held["turned"] = torch.randn(300, 200).cuda().T
    return {name: nn.Parameter(t) for name, t in held.items()}


class Run:
    """Steps whose clean sums are made up, each sum in memory of its own."""

    def __init__(self, make, noise=None):
        self.held = parameters()
        self.optimizer = make(list(self.held.values()))
        plan = TrainingPlan(PoissonLots(10, 100), Flat(1.0), 1.0, 50, 1e-5)
        noise = noise or ChaChaNoise(SeededCoins(5))
        self.step = NoisyStep(plan, self.held, self.optimizer, None, noise, 1.0)

    def one(self, number):
        torch.manual_seed(100 + number)
        sums = {name: 5 * torch.randn_like(p.detach()) for name, p in self.held.items()}
        self.step.sum.merge(sums, torch.ones(3, 1).cuda(), torch.ones(3).cuda(), whole=True)
        self.step.apply(number)

    def steps(self, monkeypatch, least):
        monkeypatch.setattr(updating, "LEAST_NUMBERS", least)
        for number in range(STEPS):
            self.one(number)
        return self


@pytest.fixture
def kernels(monkeypatch):
    """What went through the kernel."""
    done, run = [], ChaChaNoise.noisy_update

    def noted(self, by, total, std, size):
        done.append(by)
        run(self, by, total, std, size)

    monkeypatch.setattr(ChaChaNoise, "noisy_update", noted)
    return done


# A large eps: where the first gradient is nearly 0, Adam's first step is a matter of rounding.
ADAM = {"lr": 0.1, "eps": 1e-2, "weight_decay": 0.1}
VARIANTS = {
    "plain": (SGD, {"lr": 0.1}, 2e-5),
    "momentum": (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}, 2e-5),
    "nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "fused": True}, 2e-5),
    "adam": (Adam, ADAM, 2e-5),
    "adam, fused": (Adam, {**ADAM, "fused": True}, 2e-5),
    "adamw": (AdamW, ADAM, 2e-5),
    "adamw, fused": (AdamW, {**ADAM, "fused": True}, 2e-5),
    # torch takes powers of betas in float32 here: 1 - 0.999 is known to 6e-5 of itself.
    "adamw, capturable": (AdamW, {**ADAM, "capturable": True}, 2e-4),
}


def made(name):
    kind, options, _ = VARIANTS[name]
    return lambda held: kind(held, **options)


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_and_state_are_those_of_the_ordinary_way(name, monkeypatch, kernels):
    with monkeypatch.context() as patch:  # one launch for each, so both take the same keystream
        patch.setattr(stepping, "brought_together", lambda sums, parameters: dict(sums))
        ordinary = Run(made(name)).steps(patch, NEVER)
    assert not kernels
    fused = Run(made(name)).steps(monkeypatch, 1)
    assert len(kernels) == STEPS * len(fused.held)
    close = {"rtol": VARIANTS[name][2], "atol": VARIANTS[name][2]}
    for p, q in zip(fused.held.values(), ordinary.held.values(), strict=True):
        torch.testing.assert_close(p, q, **close)
    left, right = (run.optimizer.state_dict()["state"] for run in (fused, ordinary))
    assert left.keys() == right.keys()
    for key, held in left.items():
        assert list(held) == list(right[key])
        for kept, value in held.items():
            torch.testing.assert_close(value, right[key][kept], **close)  # types and places, too
            assert value.stride() == right[key][kept].stride()


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_waits_for_the_gpu(name, kernels):
    run = Run(made(name), PlacedNoise())
    run.one(0)
    run.one(1)
    torch.cuda.synchronize()
    sums = {n: torch.ones_like(p.detach()) for n, p in run.held.items()}
    norms, losses = torch.ones(3, 1).cuda(), torch.ones(3).cuda()
    try:  # also if the setting itself should fail: it would last for all tests that follow
        torch.cuda.set_sync_debug_mode("error")
        run.step.sum.merge(sums, norms, losses, whole=True)
        run.step.apply(2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    large = [p for p in run.held.values() if p.numel() >= updating.LEAST_NUMBERS]
    assert len(kernels) == 3 * len(large) == 9


def test_small_parameters_share_one_launch(monkeypatch, kernels):
    run = Run(made("momentum"))
    run.one(0)
    taken, take = [], run.step.noise._stream.take
    monkeypatch.setattr(run.step.noise._stream, "take", lambda n: taken.append(n) or take(n))
    run.one(1)
    assert sorted(taken)[1:] == [1 << 18, 600 * 700, 1_000_003]
    small = [p for p in run.held.values() if p.numel() < updating.LEAST_NUMBERS]
    assert min(taken) == sum(p.numel() for p in small)


def test_the_noise_has_its_standard_deviation():
    p, total = torch.zeros(3_000_001, device="cuda"), torch.full((3_000_001,), 6.0, device="cuda")
    ChaChaNoise().noisy_update(Descent(p, None, 1.0), total, 3.0, 6.0)
    assert float(p.mean()) == pytest.approx(-1.0, abs=4.5 * 0.5 / 3_000_001**0.5)
    assert float(p.std()) == pytest.approx(0.5, rel=4.5 / 6_000_002**0.5)
    assert bool((total == 6).all())


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_an_update_in_a_captured_graph_is_refused():
    source, p, total = ChaChaNoise(), torch.zeros(100).cuda(), torch.zeros(100).cuda()
    source.noisy_update(Descent(p, None, 1.0), total, 1.0, 1.0)
    before = p.clone()
    with (
        pytest.raises(RuntimeError, match="replays would repeat its noise"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        source.noisy_update(Descent(p, None, 1.0), total, 1.0, 1.0)
    assert torch.equal(p, before)
