"""Where sums lie in memory: every parameter's noise is its own."""

import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    ChaChaNoise,
    Flat,
    PerLayer,
    PoissonLots,
    TorchNoise,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.neighbouring import in_one_piece, views_like
from sfumato.learning.dp_sgd.stepping import NoisyStep


def parameters():
    torch.manual_seed(0)
    kernel = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    return {"kernel": kernel, "matrix": torch.randn(5, 2), "bias": torch.randn(7)}


def test_views_share_a_vector_and_are_laid_out_like_the_parameters():
    held = parameters()
    vector = torch.arange(sum(p.numel() for p in held.values()), dtype=torch.float32)
    views = views_like(vector, held)
    for name, p in held.items():
        assert views[name].stride() == p.stride()
        assert views[name].shape == p.shape
    everything = torch.cat([v.flatten() for v in views.values()])
    assert everything.sort().values.tolist() == vector.tolist()


def test_neighbours_in_memory_are_one_piece_and_strangers_are_not():
    vector = torch.zeros(30)
    views = views_like(vector, {"a": torch.empty(3, 4), "b": torch.empty(6), "c": torch.empty(12)})
    alone, gap = torch.zeros(5), torch.zeros(20)
    pieces = in_one_piece([views["b"], alone, views["a"], views["c"], gap[:4], gap[6:9]])
    assert sorted(p.numel() for p in pieces) == [3, 4, 5, 30]
    for piece in pieces:
        piece += 1
    assert vector.eq(1).all()
    assert gap.tolist() == [1] * 4 + [0] * 2 + [1] * 3 + [0] * 11


def test_one_result_for_two_parameters_is_copied_before_noise():
    held = {"one": torch.zeros(40, requires_grad=True), "two": torch.zeros(40, requires_grad=True)}
    optimizer = torch.optim.SGD(held.values(), lr=1.0)
    plan = TrainingPlan(PoissonLots(10, 100), Flat(1.0), 1.0, 5, 1e-5)
    step = NoisyStep(plan, held, optimizer, None, ChaChaNoise(SeededCoins(5)), 1.0)
    shared = torch.ones(40)
    step.sum.merge({"one": shared, "two": shared}, torch.ones(3, 1), torch.ones(3), whole=True)
    step.apply(0)
    one, two = (p.detach() * -10 for p in held.values())  # sums and noise
    assert not torch.equal(one, two)
    assert abs(float(torch.corrcoef(torch.stack([one, two]))[0, 1])) < 0.5
    for noisy in (one, two):
        assert 0.6 < float(noisy.std()) < 1.4
        assert 0.3 < float(noisy.mean()) < 1.7


@pytest.mark.parametrize("clipping", [Flat(1.0), PerLayer({"kernel": 1.0, "": 2.0})])
def test_parts_of_a_lot_add_up_and_a_whole_lot_is_kept(clipping):
    held = parameters()
    total = ClippedSum(held, clipping)
    sums = {name: torch.randn_like(p) for name, p in held.items()}
    total.merge(
        {n: s.clone() for n, s in sums.items()}, torch.ones(2, len(total.groups)), torch.ones(2)
    )
    total.merge({"bias": sums["bias"]}, torch.ones(2, len(total.groups)), torch.ones(2), whole=True)
    assert torch.equal(total.sums["bias"], 2 * sums["bias"])
    assert torch.equal(total.sums["kernel"], sums["kernel"])
    assert total.facts.units == 4
    total.start()
    assert not any(s.any() for s in total.sums.values())
    total.start()
    total.merge(sums, torch.ones(2, len(total.groups)), torch.ones(2), whole=True)
    assert total.sums["matrix"].data_ptr() == sums["matrix"].data_ptr()


class Looks(torch.optim.SGD):
    """Notes how gradients lie in memory."""

    def step(self, closure=None):
        self.strides = [p.grad.stride() for group in self.param_groups for p in group["params"]]
        return super().step(closure)


@pytest.mark.parametrize("noise", [TorchNoise, ChaChaNoise])
def test_gradients_lie_in_memory_as_their_parameters_do(noise):
    """Sums may not, after a compiled step with channels last; fused optimizers insist on it."""
    held = {name: torch.nn.Parameter(p.contiguous()) for name, p in parameters().items()}
    optimizer = Looks(held.values(), lr=0.1)
    plan = TrainingPlan(PoissonLots(4, 100), Flat(1.0), 1.0, 5, 1e-5)
    step = NoisyStep(plan, held, optimizer, None, noise(coins=SeededCoins(1)), 1.0)
    found = {name: torch.zeros_like(p) for name, p in parameters().items()}  # channels last
    step.sum.merge(found, torch.ones(4, 1), torch.zeros(4), whole=True)
    step.apply(0)
    assert optimizer.strides == [p.stride() for p in held.values()]


class Given:
    """Gradients of each unit, as a tape would hold them."""

    def __init__(self, each):
        self.units = len(next(iter(each.values())))
        self.pieces = {name: Piece(value) for name, value in each.items()}

    def squared_norms(self, name):
        return self.pieces[name].each.flatten(1).double().square().sum(1)


class Piece:
    def __init__(self, each):
        self.each = each

    def weighted_sum(self, scales):
        return torch.einsum("u,u...->...", scales.double(), self.each.double())


@pytest.mark.parametrize("clipping", [Flat(1.0), Flat(0.01), PerLayer({"kernel": 1.0, "": 2.0})])
@pytest.mark.parametrize("scaled_by", [1.0, 0.125, 64.0])
def test_a_factor_in_the_gradients_is_taken_out_before_and_after_clipping(clipping, scaled_by):
    """A mean over the lot divides each unit's gradient; what it may move is the clip norm still."""
    held, units = parameters(), 6
    each = {name: torch.randn(units, *p.shape) * 10 for name, p in held.items()}
    for value in each.values():
        value[-1] *= 1e-6  # not clipped at all
    plain, scaled, alone = (ClippedSum(held, clipping) for _ in range(3))
    plain.add(Given(each), torch.ones(units))
    several = Given({name: value * scaled_by for name, value in each.items()})
    scaled.add(several, torch.ones(units), scaled_by)
    for name, total in plain.sums.items():
        assert torch.allclose(scaled.sums[name], total, rtol=1e-6)
    first = {name: value[:1] * scaled_by for name, value in each.items()}
    alone.add(Given(first), torch.ones(1), scaled_by)
    for group, bound in zip(alone.groups, alone.bounds, strict=True):
        moved = sum(float(alone.sums[name].square().sum()) for name in group) ** 0.5
        assert bound * 0.97 < moved <= bound
