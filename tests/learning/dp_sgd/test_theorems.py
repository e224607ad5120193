"""A step is what the papers say: without noise plain descent, with it exactly the stated noise."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    Adaptive,
    Automatic,
    CoinNoise,
    FixedSizeLots,
    Flat,
    NoiseSchedule,
    PerLayer,
    PoissonLots,
)

pytestmark = pytest.mark.usefixtures("doubles")

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
}
CLIPPINGS = {
    "flat": Flat(0.3),
    "per-layer": PerLayer(0.4),
    "automatic": Automatic(0.5, gamma=0.05),
    "adaptive": Adaptive(0.3, quantile=0.6, learning_rate=0.3, count_noise=50.0),
}


def near(one, two, tolerance):
    for name, value in one.items():
        gap = float((value - two[name]).detach().abs().max())
        assert gap <= tolerance, (name, gap)


# --- no noise -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [("mlp", "sgd"), ("mlp", "momentum"), ("mlp", "adam"), ("mlp", "adamw"), ("cnn", "sgd"),
     ("cnn", "adam"), ("transformer", "sgd"), ("transformer", "adamw"), ("lstm", "momentum"),
     ("unet", "sgd")],
)  # fmt: skip
def test_without_noise_and_clipping_a_step_is_plain_descent(kit, name, optimizer):
    """On the sum of the lot's losses over the expected lot size."""
    model, data, loss = kit.case(name)
    plain = copy.deepcopy(model)
    descent = OPTIMIZERS[optimizer](plain.parameters())
    plan = kit.plan(clipping=Flat(1e6))
    found = kit.watched(
        model, data, loss, plan=plan, optimizer=OPTIMIZERS[optimizer](model.parameters())
    )
    lots = kit.lots_of(found.trainer, 24)
    assert {len(lot) for lot in lots} != {8}  # or the expected size could not be told apart
    for lot, weights in zip(lots, found.weights, strict=True):
        descent.zero_grad()
        (loss(plain, *(leaf[lot] for leaf in data)).sum() / 8).backward()
        descent.step()
        near(weights, dict(plain.named_parameters()), 1e-9)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_steps_are_those_of_a_loop_over_single_examples(kit, loop, one, name, clipping):
    model, data, loss = kit.case(name)
    same = copy.deepcopy(model)
    plan = kit.plan(clipping=CLIPPINGS[clipping])
    reference = loop(same, torch.optim.SGD(same.parameters(), lr=0.5), loss, plan.clipping, 8)
    found = kit.watched(model, data, loss, plan=plan, batch_size=5)
    for lot, weights in zip(kit.lots_of(found.trainer, 24), found.weights, strict=True):
        reference.step([[(one(data, row), 1.0)] for row in lot])
        near(weights, dict(same.named_parameters()), 1e-9)
    if clipping == "adaptive":
        assert found.trainer._step.sum.bounds[0] == pytest.approx(reference.clip, rel=1e-9)
        assert reference.clip != 0.3


def test_an_adapted_clip_norm_stays_near_the_first_however_long_it_runs(kit):
    model, data, loss = kit.case("mlp")
    clipping = Adaptive(1.0, quantile=0.99, learning_rate=50.0, count_noise=50.0)
    plan = kit.plan(clipping=clipping, steps=8)
    found = kit.watched(model, data, lambda m, *b: 1e20 * loss(m, *b), plan=plan)
    assert found.trainer._step.sum.bounds[0] == pytest.approx(1e6)


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm"])
@pytest.mark.usefixtures("short_rehearsals")
def test_physical_batches_of_any_size_give_the_same_steps(kit, name, clipping):
    results = []
    model, data, loss = kit.case(name)
    for size in (1, 3, 7, None):
        same = copy.deepcopy(model)
        plan = kit.plan(clipping=CLIPPINGS[clipping])
        results.append(kit.watched(same, data, loss, plan=plan, batch_size=size))
    for other in results[1:]:
        for a, b in zip(results[0].weights, other.weights, strict=True):
            near(a, b, 1e-12)
        assert other.spy.stds == pytest.approx(results[0].spy.stds, rel=1e-12)


def test_physical_batches_hold_at_most_batch_size_rows(kit):
    model, data, loss = kit.case("mlp")
    seen = []
    trainer = kit.trainer(model, data, batch_size=3)
    kit.run(trainer, loss, lambda t, batch: seen.append((t.steps_taken, len(batch[0]))))
    assert max(rows for _, rows in seen) == 3
    lots = kit.lots_of(trainer, 24)
    for step, lot in enumerate(lots, 1):
        assert sum(rows for at, rows in seen if at == step) == len(lot)


# --- the noise ----------------------------------------------------------------------------------


def nothing(model, x, *_):
    """Losses without a gradient."""
    return 0 * model(x).sum(1)


def noisy_update(kit, model, clipping, *, z=1.7, lot=8.0, steps=1, rate=0.25, **more):
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    plan = kit.plan(clipping=clipping, z=z, lot=lot, steps=steps, **more.pop("plan", {}))
    trainer = kit.trainer(
        model, (torch.randn(24, 150),), plan=plan, noise=CoinNoise(SeededCoins(5)),
        optimizer=torch.optim.SGD(model.parameters(), lr=rate), **more,
    )  # fmt: skip
    kit.run(trainer, nothing)
    return {n: (p.detach() - before[n]).flatten() for n, p in model.named_parameters()}


def is_normal(values, std):
    """Whether they are N(0, std^2): by the Kolmogorov-Smirnov distance and by their variance."""
    values = values.numpy()
    chi = float((values / std) @ (values / std))
    tail = stats.chi2.cdf(chi, len(values))
    return stats.kstest(values / std, "norm").pvalue > 1e-3 and 5e-4 < tail < 1 - 5e-4


def shown(values, std):
    """And that a tenth more or less would have been seen."""
    return (
        is_normal(values, std)
        and not is_normal(values, 1.1 * std)
        and (not is_normal(values, std / 1.1))
    )


@pytest.mark.parametrize("batch_size", [None, 1])
def test_zero_gradients_give_an_update_of_exactly_the_noise(kit, batch_size):
    """Of standard deviation learning rate x sigma x C / L, whatever the physical batches."""
    model = nn.Linear(150, 100)
    for clipping in (Flat(3.0), Automatic(3.0)):
        moved = noisy_update(kit, model, clipping, batch_size=batch_size)
        assert shown(torch.cat(list(moved.values())), 0.25 * 1.7 * 3.0 / 8)
    assert abs(float(moved["bias"].std()) / (0.25 * 1.7 * 3 / 8) - 1) < 0.4


def test_the_noise_of_each_layer(kit):
    """sqrt(k) z C_l: the layers are one release."""
    model = nn.Sequential(nn.Linear(150, 80), nn.Linear(80, 120))
    moved = noisy_update(kit, model, PerLayer({"0": 0.5, "1": 4.0}), lot=6.0)
    for layer, clip in (("0", 0.5), ("1", 4.0)):
        layers = torch.cat([v for n, v in moved.items() if n.startswith(layer)])
        assert shown(layers, 0.25 * math.sqrt(2) * 1.7 * clip / 6)


def test_the_noise_beside_a_noisy_count(kit):
    """The gradient's own multiplier is (z^-2 - (2 sigma_b)^-2)^(-1/2)."""
    model = nn.Linear(150, 100)
    moved = noisy_update(kit, model, Adaptive(3.0, count_noise=1.0))
    own = (1.7**-2 - 2.0**-2) ** -0.5
    assert own > 1.8 * 1.7
    assert shown(torch.cat(list(moved.values())), 0.25 * own * 3.0 / 8)


def test_noise_of_a_parameter_in_bfloat16_is_added_in_float64(kit):
    model = nn.Linear(150, 100).bfloat16()
    spy = kit.Spy()
    trainer = kit.trainer(model, (torch.randn(24, 150).bfloat16(),), noise=spy)
    kit.run(trainer, lambda m, x: m(x).square().sum(1))
    assert {s.dtype for s in spy.sums} == {torch.float64}


@pytest.mark.parametrize("batch_size", [None, 3, 1])
def test_noise_is_added_once_a_lot(kit, batch_size):
    model, data, loss = kit.case("mlp")
    plan = kit.plan(steps=5)
    found = kit.watched(model, data, loss, plan=plan, batch_size=batch_size)
    assert len(found.spy.stds) == 5 * 4  # five lots, four parameters
    assert set(found.spy.stds) == {1.0}


def test_noise_follows_its_schedule_as_it_is_accounted(kit):
    model, data, loss = kit.case("mlp")
    schedule = NoiseSchedule(((0.5, 2.0), (0.25, 1.0), (0.25, 3.0)))
    plan = kit.plan(steps=8, z=1.5, clipping=Flat(0.5), schedule=schedule)
    found = kit.watched(model, data, loss, plan=plan)
    added = [std / 0.5 for std in found.spy.stds[::4]]
    assert added == pytest.approx([3.0] * 4 + [1.5] * 2 + [4.5] * 2)
    accounted = [
        event.event.event.noise_multiplier
        for event in plan.event.events
        for _ in range(event.count)
    ]
    assert accounted == added


# --- lots ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lots", [PoissonLots(8, 24), PoissonLots(8.5, 30), FixedSizeLots(8, 24)], ids=repr
)
def test_sums_are_divided_by_the_expected_size(kit, lots):
    model, data, loss = kit.case("mlp")
    relation = "add-remove" if isinstance(lots, PoissonLots) else "zero-out"
    plan = kit.plan(lots=lots, steps=1, neighbours=relation)
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    found = kit.watched(model, data, loss, plan=plan)
    for (name, p), total in zip(model.named_parameters(), found.spy.sums, strict=True):
        expected = before[name] - 0.5 * total / lots.size
        near({name: p.detach()}, {name: expected}, 1e-15)


@pytest.mark.parametrize("rows", [0, 3])
def test_empty_lots_take_a_noisy_step_and_count(kit, rows):
    model = nn.Linear(5, 3)
    data = (torch.randn(rows, 5), torch.zeros(rows, dtype=torch.long))
    plan = kit.plan(n=1000, lot=1.0, steps=6)
    trainer = kit.trainer(model, data, plan=plan, noise=CoinNoise(SeededCoins(2)), ema_decay=0.5)
    weights = []
    step = trainer._step.apply
    trainer._step.apply = lambda n: (step(n), weights.append(model.weight.detach().clone()))
    kit.run(trainer, kit.classify, lambda *_: pytest.fail("a lot had somebody in it"))
    assert trainer.steps_taken == len(weights) == 6
    assert trainer._average.updates == 6
    for one, two in itertools.pairwise(weights):
        assert float((one - two).abs().min()) > 0


# --- besides the step ---------------------------------------------------------------------------


def test_the_learning_rate_schedule_moves_once_a_lot(kit):
    model, data, loss = kit.case("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    found = kit.watched(
        model, data, loss, plan=kit.plan(steps=4), optimizer=optimizer, scheduler=scheduler,
        batch_size=2,
    )  # fmt: skip
    assert optimizer.param_groups[0]["lr"] == 0.5**4
    for i, (one, two) in enumerate(zip(found.weights, found.weights[1:], strict=False), 1):
        moved = {
            n: one[n] - 0.5**i * s / 8 for n, s in zip(one, found.spy.sums[4 * i :], strict=False)
        }
        near(two, moved, 1e-14)


def test_the_average_of_the_weights(kit):
    model, data, loss = kit.case("mlp")
    average = {n: p.detach().clone() for n, p in model.named_parameters()}
    found = kit.watched(model, data, loss, plan=kit.plan(steps=6), ema_decay=0.3, batch_size=3)
    for step, weights in enumerate(found.weights):
        keep = min(0.3, (1 + step) / (10 + step))
        average = {n: keep * a + (1 - keep) * weights[n] for n, a in average.items()}
    with found.trainer.averaged() as averaged:
        near(dict(averaged.named_parameters()), average, 1e-12)
    near(dict(model.named_parameters()), found.weights[-1], 0)


@pytest.mark.parametrize("clip", [0.3, 1e3])  # the first hides a sum in the place of a mean
def test_copies_of_a_record_are_averaged_before_clipping(kit, loop, clip):
    model, data, loss = kit.case("cnn")
    same = copy.deepcopy(model)
    plan = kit.plan(clipping=Flat(clip))
    trainer = kit.trainer(
        model, data, plan=plan, batch_size=9, augment=lambda x: x + torch.randn_like(x),
        augmentations=4,
    )  # fmt: skip
    seen = {}
    kit.run(trainer, loss, lambda t, batch: seen.setdefault(t.steps_taken, []).append(batch))
    reference = loop(same, torch.optim.SGD(same.parameters(), lr=0.5), loss, plan.clipping, 8)
    for step, lot in enumerate(kit.lots_of(trainer, 24), 1):
        rows = [tuple(leaf[i : i + 1] for leaf in b) for b in seen[step] for i in range(len(b[0]))]
        assert [int(row[2]) for row in rows] == [i for i in lot for _ in range(4)]
        units = [[(row, 0.25) for row in rows[i : i + 4]] for i in range(0, len(rows), 4)]
        assert not torch.equal(units[0][0][0][0], units[0][1][0][0])
        reference.step(units)
    near(dict(model.named_parameters()), dict(same.named_parameters()), 1e-9)


@pytest.mark.parametrize("clip", [0.3, 1e3])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_mean_over_a_users_rows_is_clipped_once(kit, loop, one, batch_size, clip):
    model, data, loss = kit.case("mlp")
    same = copy.deepcopy(model)
    owners = np.repeat([4, 9, 1, 7, 5, 2], [1, 3, 2, 2, 7, 9])  # at most 9 rows
    plan = kit.plan(n=6, lot=3, clipping=Flat(clip), unit="owner")
    found = kit.watched(
        model, data, loss, plan=plan, owners=owners, rows_per_owner=9, batch_size=batch_size
    )
    reference = loop(same, torch.optim.SGD(same.parameters(), lr=0.5), loss, plan.clipping, 3)
    names = np.unique(owners)
    for lot, weights in zip(kit.lots_of(found.trainer, 6), found.weights, strict=True):
        own = [np.flatnonzero(owners == names[u]) for u in lot]
        reference.step([[(one(data, int(r)), 1 / len(rows)) for r in rows] for rows in own])
        near(weights, dict(same.named_parameters()), 1e-9)


# --- precision, and a peer ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "lstm", "unet"])
def test_mixed_precision_sums_in_full(kit, name):
    torch.set_default_dtype(torch.float32)
    model, data, loss = kit.case(name)
    data = tuple(leaf.float() if leaf.is_floating_point() else leaf for leaf in data)

    def mixed(m, *batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(m, *batch)

    sums = {}
    for key, how in (("float32", loss), ("bfloat16", mixed)):
        sums[key], _ = kit.sums(data, model, how, Flat(1e3))
    for parameter, total in sums["bfloat16"].items():
        assert total.dtype == torch.float64
        exact = sums["float32"][parameter]
        assert float((total - exact).norm()) <= 0.2 * float(exact.norm()) + 1e-2, parameter


def test_one_steps_clipped_sum_is_that_of_opacus(kit):
    opacus = pytest.importorskip("opacus")
    model, data, loss = kit.case("cnn")
    peer = opacus.GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    x, y = data[0].requires_grad_(), data[1]  # or its hooks warn
    F.cross_entropy(peer(x), y, reduction="sum").backward()
    for clip in (0.1, 0.7, 1e6):
        sums, _ = kit.sums((x.detach(), y), model, loss, Flat(clip))
        flat = torch.cat([p.grad_sample.flatten(1) for p in peer.parameters()], 1)
        factors = (clip / flat.norm(dim=1)).clamp(max=1.0)
        for name, p in peer._module.named_parameters():
            expected = torch.einsum("b,b...->...", factors, p.grad_sample)
            near({name: sums[name]}, {name: expected}, 1e-8)
