"""Laplace SGD: the noise it states, the steps it counts, the epsilon it was calibrated to."""

import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from sfumato.accounting import account
from sfumato.core.events import LaplaceEvent, PoissonSampledEvent, repeat
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.core.records import Record
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.naive import LaplaceSGD
from sfumato.learning.naive.examples import vector_of

FIELDS = {"lot_size": 20, "public_size": 100, "steps": 5, "noise_multiplier": 2.0}


def model(width=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


def rows(count=100):
    torch.manual_seed(1)
    return torch.randn(count, 5), torch.randint(0, 3, (count,))


def test_the_event_is_known_before_data_is_read():
    way = LaplaceSGD(**FIELDS)
    assert way.event == repeat(PoissonSampledEvent(LaplaceEvent(2.0), 0.2), 5)
    assert LaplaceSGD(**(FIELDS | {"lot_size": 100})).event == repeat(LaplaceEvent(2.0), 5)


def test_at_delta_zero_amplified_epsilons_add():
    way = LaplaceSGD(**FIELDS)
    expected = 5 * math.log1p(0.2 * math.expm1(0.5))
    assert way.guarantee.epsilon == pytest.approx(expected, rel=1e-12)
    assert way.guarantee.delta == 0
    assert way.pure == way.guarantee
    at_delta = LaplaceSGD(**FIELDS, delta=1e-5)
    assert at_delta.guarantee.epsilon < expected
    assert at_delta.guarantee.accountant == "pld"


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_calibration_meets_its_target_and_no_more(epsilon, delta):
    way = LaplaceSGD.calibrate(
        epsilon=epsilon, delta=delta, lot_size=2000, public_size=60_000, steps=60
    )
    assert 0.999 * epsilon <= way.guarantee.epsilon <= epsilon
    assert account(way.event, delta).epsilon == way.guarantee.epsilon
    if delta:
        assert way.pure.epsilon > epsilon


@pytest.mark.parametrize("clip", [0.5, 4.0])
def test_the_noise_has_the_stated_scale_and_law(clip):
    """With no data, a step of rate 1 writes noise over the lot size into 20,000 weights."""
    wide = nn.Sequential(nn.Linear(5, 2500), nn.Tanh(), nn.Linear(2500, 3))
    way = LaplaceSGD(**(FIELDS | {"steps": 1}), clip=clip, learning_rate=1.0)
    x, y = rows(0)
    out, _ = way.run(wide, x, y, coins=SeededCoins(3))
    noise = ((vector_of(wide) - vector_of(out)) * 20).numpy()
    assert len(noise) > 20_000
    # |Laplace| has mean b and deviation b: the mean of n is within 4 / sqrt(n) = 2.8 % of it.
    scale = 2.0 * clip
    assert np.abs(noise).mean() == pytest.approx(scale, rel=4 / math.sqrt(len(noise)))
    assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > 1e-4
    assert stats.kstest(noise, stats.laplace(scale=0.9 * scale).cdf).pvalue < 1e-9


def test_empty_lots_are_steps():
    way = LaplaceSGD(**FIELDS)
    x, y = rows(0)
    start = model()
    out, record = way.run(start, x, y, coins=SeededCoins(1))
    assert not torch.equal(vector_of(out), vector_of(start))
    assert record.event == way.event


def test_with_hardly_any_noise_it_is_sgd():
    way = LaplaceSGD(100, 100, 3, 0.01, clip=1e3, learning_rate=0.05, momentum=0.5)
    x, y = rows()
    x = x.double()
    start = model().double()
    out, _ = way.run(start, x, y, coins=SeededCoins(1))
    plain = model().double()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()
        optimizer.step()
    spread = 0.05 * 3 * 2 * 10 / 100  # learning rate, steps, momentum, scale over size
    torch.testing.assert_close(vector_of(out), vector_of(plain), rtol=0, atol=20 * spread)
    assert float((vector_of(out) - vector_of(plain)).abs().mean()) < 2 * spread


def test_physical_batches_change_nothing():
    x, y = rows()
    results = [
        LaplaceSGD(**FIELDS, batch_size=size).run(model(), x, y, coins=SeededCoins(5))[0]
        for size in (1, 7, 1000)
    ]
    for other in results[1:]:
        torch.testing.assert_close(vector_of(results[0]), vector_of(other), rtol=1e-4, atol=1e-5)


def test_neighbours_with_the_same_coins_leave_the_same_record():
    way = LaplaceSGD(**FIELDS)
    x, y = rows()
    bad = x.clone()
    bad[4] = math.nan
    worse = y.clone()
    worse[4] = -7
    records = [
        way.run(model(), inputs, labels, coins=SeededCoins(2))[1].to_dict()
        for inputs, labels in [(x, y), (x[:-1], y[:-1]), (bad, y), (x, worse)]
    ]
    assert all(record == records[0] for record in records)


def test_the_record_is_public_and_comes_back():
    x, y = rows()
    _, record = LaplaceSGD(**FIELDS, delta=1e-5).run(model(), x, y)
    assert record.private
    assert record.curator_view() == {}
    data = json.loads(json.dumps(record.to_dict()))
    assert Record.from_dict(data).to_dict() == record.to_dict()
    assert data["facts"]["pure_epsilon"] > data["guarantee"]["epsilon"]


def test_buffers_and_the_given_model_stay_as_they_were():
    x, y = rows()
    start = model()
    start.register_buffer("mark", torch.ones(2))
    before = vector_of(start)
    out, _ = LaplaceSGD(**FIELDS).run(start, x, y)
    assert torch.equal(vector_of(start), before)
    assert torch.equal(out.mark, torch.ones(2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"lot_size": 0},
        {"lot_size": 101},
        {"steps": 0},
        {"noise_multiplier": 0.0},
        {"noise_multiplier": 1e-3},
        {"clip": -1.0},
        {"learning_rate": math.nan},
        {"momentum": 1.0},
        {"delta": 1.0},
        {"neighbours": "replace-one"},
        {"unit": ""},
        {"batch_size": 0},
    ],
    ids=lambda wrong: "-".join(map(str, wrong.items())),
)
def test_bad_parameters_are_errors(wrong):
    with pytest.raises(ValueError, match="must be"):
        LaplaceSGD(**(FIELDS | wrong))


def test_what_does_not_fit_is_an_error_before_anything_is_read():
    way = LaplaceSGD(**FIELDS)
    x, y = rows()
    mixing = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    for wrong, match in [
        ((model(), x.long(), y), "inputs must be"),
        ((model(), x, y.float()), "labels must be"),
        ((model(), x, y[:-1]), "as many rows"),
        ((nn.Identity(), x, y), "trainable"),
        ((nn.Sequential(nn.Linear(5, 3), nn.Flatten(0)), x, y), "row of scores"),
        ((mixing, x, y), "one example at a time"),
        ((model().half(), x.half(), y), "float32 or float64"),
    ]:
        with pytest.raises(ValueError, match=match):
            way.run(*wrong)


def test_what_a_model_draws_comes_from_the_coins():
    """Whoever knows torch's seed knows no mask."""
    x, y = rows()
    way = LaplaceSGD(**(FIELDS | {"lot_size": 100, "noise_multiplier": 0.01, "steps": 3}))
    moved = []
    for coins in (SeededCoins(1), SeededCoins(1), SYSTEM, SYSTEM):
        torch.manual_seed(0)
        drawn = nn.Sequential(nn.Linear(5, 50), nn.Dropout(0.5), nn.Linear(50, 3))
        masks = Masks()
        with masks:
            way.run(drawn, x, y, coins=coins)
        moved.append(masks.seen)
    assert moved[0] == moved[1]
    assert len({str(each) for each in moved}) == 3


class Masks(TorchDispatchMode):
    """Sees what dropout draws."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if "bernoulli" in str(func) and out.numel() > 1000:
            self.seen.append(out.flatten().tolist())
        return out


@pytest.mark.parametrize("draw", [lambda: torch.manual_seed(0), lambda: np.random.default_rng(0)])
def test_seeds_in_a_model_are_refused(draw):
    class Seeded(nn.Linear):
        def forward(self, x):
            draw()
            return super().forward(x)

    with pytest.raises(TrainingError, match="while a batch was out"):
        LaplaceSGD(**FIELDS).run(Seeded(5, 3), *rows(), coins=SeededCoins(1))
