"""One unit more or less moves a lot's sum by at most its clip norm, whatever the unit's data."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    Automatic,
    Flat,
    PerLayer,
    PoissonLots,
    TrainingError,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE

pytestmark = pytest.mark.usefixtures("singles", "short_rehearsals")


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(6, 4, padding_idx=0)
        self.mix = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        """The first numbers choose words, the others are added to them."""
        chosen = x[:, :3].nan_to_num(0, 5, 5).abs().clamp(max=5).long()
        h = self.words(chosen) + x[:, 3:7].unsqueeze(1)
        h = self.norm(self.mix(h)).mean(1)
        return F.linear(h, self.words.weight)[:, :3]


class Image(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.a = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = norm
        self.b = nn.Conv1d(4, 2, 2, stride=2, groups=2, bias=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        h = self.norm(self.a(x.unsqueeze(1))).relu()
        return self.head(self.b(h).flatten(1))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.GRU(2, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x):
        return self.head(self.body(x.view(-1, 4, 2))[0][:, -1])


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3, bias=False)),
    "deep": lambda: nn.Sequential(nn.Linear(8, 4), nn.Softplus(), nn.Linear(4, 4), nn.Linear(4, 3)),
    "scaled": lambda: nn.Sequential(
        nn.LayerNorm(8), nn.Linear(8, 4), nn.RMSNorm(4), nn.Linear(4, 3)
    ),
    "conv": lambda: Image(nn.GroupNorm(2, 4)),
    "instances": lambda: Image(nn.InstanceNorm1d(4, affine=True)),
    "words": Words,
    "recurrent": Sequence,
}
CLIPPINGS = {
    "flat": lambda c: Flat(c),
    "per-layer": lambda c: PerLayer(c),
    "automatic": lambda c: Automatic(c, gamma=0.01),
    "adaptive": lambda c: Adaptive(c, count_noise=1e3),
}
LOSSES = {
    "entropy": lambda out, y: F.cross_entropy(out, y[:, :3].softmax(1), reduction="none"),
    "squares": lambda out, y: (out - y[:, :3]).square().sum(1),
    "logarithm": lambda out, y: -(out.softmax(1)[:, 0] * y[:, 0]).log(),
    "exploding": lambda out, y: (y[:, 0] * out.square().sum(1)).exp(),
}
EXTREMES = [0.0, 1.0, -3.0, 1e4, -1e10, 1e18, 1e30, -1e38, 1e-30, math.inf, -math.inf, math.nan]

rows = st.lists(st.sampled_from(EXTREMES), min_size=8, max_size=8)
units = st.tuples(rows, st.lists(st.sampled_from(EXTREMES), min_size=3, max_size=3))


class Spy:
    name, private = "spy", False

    def __init__(self):
        self.sums = []

    def normal(self, like, std):
        self.sums.append(like.clone())
        return torch.zeros_like(like)


def ordinary(count, seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 8, generator=generator, dtype=dtype)
    y = torch.randn(count, 3, generator=generator, dtype=dtype).abs()
    return x, y


def clipped_sum(model, loss, clipping, x, y, owners=None, rows_per_owner=1, batch_size=None):
    """The sum of a lot that holds everybody, by groups; and the count, if the norm adapts."""
    own, spy = copy.deepcopy(model), Spy()
    unit = "record" if owners is None else "user"
    plan = TrainingPlan(PoissonLots(1, 1), clipping, 1.0, 1, 1e-5, unit=unit)
    trainer = DPSGD(
        own, torch.optim.SGD(own.parameters(), lr=0.0), (x, y), plan=plan, noise=spy,
        coins=SeededCoins(1), progress=False, owners=owners, rows_per_owner=rows_per_owner,
        batch_size=batch_size, example=ordinary(3, 99, x.dtype),
    )  # fmt: skip
    for inputs, labels in trainer:
        try:
            trainer.backward(loss(own(inputs), labels))
        except TrainingError as error:
            if "not finite" in str(error):
                reject()  # a model that cannot be checked
            raise
    groups, found = trainer._step.sum.groups, iter(spy.sums)
    sums = [torch.cat([next(found).flatten().double() for _ in group]) for group in groups]
    return sums, next(found, None), plan.clipping.bounds(groups)


def assert_close_by(with_unit, without, clipping):
    """At most C_l apart in each group, and C in all; finite; a count at most 1/2 apart."""
    (one, count, bounds), (two, other, _) = with_unit, without
    gaps = []
    for a, b, bound in zip(one, two, bounds, strict=True):
        assert bool(a.isfinite().all())
        assert bool(b.isfinite().all())
        gaps.append(float((a - b).norm()))
        assert gaps[-1] <= bound
    total = math.sqrt(sum(bound**2 for bound in bounds))
    assert math.hypot(*gaps) <= total
    assert total == pytest.approx(clipping.clip)
    if count is not None:
        assert abs(float(count - other)) == 0.5


SOME_SLOWLY = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("deep", "instances", "scaled") else name
    for name in MODELS
]


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize("model", SOME_SLOWLY)
@settings(max_examples=30)
@given(
    clipping=st.sampled_from(sorted(CLIPPINGS)),
    loss=st.sampled_from(sorted(LOSSES)),
    clip=st.sampled_from([1e-3, 0.5, 3.0]),
    others=st.integers(0, 4),
    unit=units,
    at=st.integers(0, 4),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    seed=st.integers(0, 50),
)
def test_one_record(model, dtype, clipping, loss, clip, others, unit, at, scale, seed):
    torch.manual_seed(seed)
    net = MODELS[model]().to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(scale)
    x, y = ordinary(others, seed, dtype)
    row, label = (torch.tensor([part], dtype=torch.float64).to(dtype) for part in unit)
    at = min(at, others)
    more = torch.cat([x[:at], row, x[at:]]), torch.cat([y[:at], label, y[at:]])
    how, rule = LOSSES[loss], CLIPPINGS[clipping](clip)
    less = clipped_sum(net, how, rule, x, y)
    assert_close_by(clipped_sum(net, how, rule, *more), less, rule)
    split = clipped_sum(net, how, rule, *more, batch_size=2)
    assert_close_by(split, less, rule)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@settings(max_examples=30)
@given(
    model=st.sampled_from(sorted(MODELS)),
    loss=st.sampled_from(sorted(LOSSES)),
    added=st.lists(units, min_size=1, max_size=5),
    most=st.integers(1, 4),
    seed=st.integers(0, 50),
)
def test_one_user_with_any_rows(clipping, model, loss, added, most, seed):
    torch.manual_seed(seed)
    net, rule = MODELS[model](), CLIPPINGS[clipping](0.5)
    x, y = ordinary(5, seed, torch.float32)
    owners = [0, 1, 1, 2, 2]
    new = [torch.tensor(part, dtype=torch.float64).float() for part in zip(*added, strict=True)]
    how = LOSSES[loss]
    less = clipped_sum(net, how, rule, x, y, owners, most)
    more = clipped_sum(
        net, how, rule, torch.cat([x, new[0]]), torch.cat([y, new[1]]),
        [*owners, *[7] * len(added)], most,
    )  # fmt: skip
    assert_close_by(more, less, rule)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_the_bound_is_reached(clipping, dtype):
    """A record with a long gradient moves the sum by C, but for the allowance: no C is wasted."""
    net, rule = MODELS["mlp"]().to(dtype), CLIPPINGS[clipping](0.5)
    x, y = ordinary(4, 3, dtype)
    x, y = torch.cat([x, 100 * torch.ones(1, 8, dtype=dtype)]), torch.cat([y, 100 + y[:1]])
    how = LOSSES["squares"]
    (more, _, bounds), (less, _, _) = (clipped_sum(net, how, rule, x[:n], y[:n]) for n in (5, 4))
    for a, b, bound in zip(more, less, bounds, strict=True):
        assert bound * (1 - 2e-4 - ALLOWANCE["float32"]) <= float((a - b).norm()) <= bound


def test_a_record_that_is_not_finite_adds_exactly_nothing():
    net, rule = MODELS["mlp"](), Flat(0.5)
    x, y = ordinary(4, 3, torch.float32)
    less = clipped_sum(net, LOSSES["squares"], rule, x, y)[0][0]
    for bad in (math.nan, math.inf, 1e30):
        row = torch.full((1, 8), bad)
        more = clipped_sum(
            net, LOSSES["squares"], rule, torch.cat([x, row]), torch.cat([y, y[:1]])
        )[0][0]
        torch.testing.assert_close(more, less, rtol=1e-6, atol=1e-7)


def test_a_user_among_whose_rows_one_is_not_finite_adds_nothing():
    net, rule = MODELS["mlp"](), Flat(0.5)
    x, y = ordinary(6, 3, torch.float32)
    owners = np.array([0, 0, 1, 1, 2, 2])
    less = clipped_sum(net, LOSSES["squares"], rule, x[:4], y[:4], owners[:4], 2)[0][0]
    x[5] = math.nan
    more = clipped_sum(net, LOSSES["squares"], rule, x, y, owners, 2)[0][0]
    torch.testing.assert_close(more, less, rtol=1e-6, atol=1e-7)
