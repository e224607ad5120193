"""Bugs that broke the privacy of other engines: one test each, named after the bug.

Numbers are of Opacus issues unless another project is named.
"""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, PoissonSampledEvent, repeat
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    CoinNoise,
    FixedSizeLots,
    Flat,
    PerLayer,
    PoissonLots,
    ShuffledLots,
    TorchNoise,
    TrainingError,
)

pytestmark = pytest.mark.usefixtures("doubles")


def single(model, losses):
    """Each example's gradient by itself, as one row."""
    own = [p for p in model.parameters() if p.requires_grad]
    grads = [torch.autograd.grad(v, own, retain_graph=True, materialize_grads=True) for v in losses]
    return torch.stack([torch.cat([g.flatten() for g in each]) for each in grads])


def clipped_sum(model, losses, clip):
    rows = single(model, losses)
    return (rows * (clip / rows.norm(dim=1)).clamp(max=1)[:, None]).sum(0)


def flat(sums):
    return torch.cat([s.flatten() for s in sums.values()])


# --- sampling -----------------------------------------------------------------------------------


def test_shuffled_accounted_as_poisson(kit):
    """80; arXiv:2411.10614: such lots are a Gaussian each epoch, several times dearer."""
    lots = ShuffledLots(6, 24)
    plan = kit.plan(lots=lots, steps=8, neighbours="zero-out", z=2.0)
    assert plan.event == repeat(GaussianEvent(2.0, "zero-out"), 2)
    poisson = kit.plan(lots=PoissonLots(6, 24), steps=8, neighbours="zero-out", z=2.0)
    assert plan.guarantee.epsilon > 1.25 * poisson.guarantee.epsilon
    model, data, loss = kit.case("mlp")
    seen = []
    kit.run(
        kit.trainer(model, data, plan=plan), loss,
        lambda t, batch: seen.append((t.steps_taken, batch[2].tolist())),
    )  # fmt: skip
    for epoch in range(2):  # and the sampler is the one that is accounted
        rows = [row for step, lot in seen if (step - 1) // 4 == epoch for row in lot]
        assert sorted(rows) == list(range(24))
    with pytest.raises(ValueError, match="use PoissonLots"):
        kit.plan(lots=lots, steps=8)  # under add/remove there is no guarantee


def test_poisson_lots_are_poisson(kit):
    """80: everybody by an own coin; sizes vary as a binomial's, and pairs meet as chance has it."""
    model = nn.Linear(1, 1)
    n, steps, rate = 40, 400, 0.25
    data = (torch.zeros(n, 1), torch.arange(n))
    trainer = kit.trainer(model, data, plan=kit.plan(n=n, lot=10, steps=steps), coins=11)
    present = np.zeros((steps, n))
    for x, row in trainer:
        if not trainer.rehearsing:
            present[trainer.steps_taken - 1, row.numpy()] = 1
        trainer.backward(model(x)[:, 0])
    sizes = present.sum(1)
    assert abs(sizes.mean() - 10) < 5 * math.sqrt(n * rate * (1 - rate) / steps)
    assert 0.75 < sizes.var() / (n * rate * (1 - rate)) < 1.3
    together = (present.T @ present)[np.triu_indices(n, 1)] / steps
    assert abs(together.mean() - rate**2) < 0.004


def test_a_rate_of_one_over_the_number_of_batches():
    """N = 50,000 and B = 8192 silently became a rate of 1/7."""
    model = nn.Linear(2, 1)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (torch.zeros(9, 2),), steps=3,
        public_size=50_000, lot_size=8192, delta=1e-6, noise_multiplier=2.0,
    )  # fmt: skip
    assert trainer.plan.lots.sample_rate == 8192 / 50_000 != 1 / 7
    step = PoissonSampledEvent(GaussianEvent(2.0), 8192 / 50_000)
    assert trainer.plan.event == repeat(step, 3)
    assert trainer.plan.lots.expected_size == 8192


# --- the normaliser -----------------------------------------------------------------------------


@pytest.mark.parametrize("true_size", [12, 24, 90])
def test_a_normaliser_of_the_realised_size(kit, true_size):
    """571, 819: neither the lot's nor the data set's true size may show."""
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    data = (torch.ones(true_size, 1),)
    plan = kit.plan(n=24, lot=8, steps=1, clipping=Flat(1.0))
    spy = kit.Spy()
    sizes = []
    trainer = kit.trainer(model, data, plan=plan, noise=spy)
    for (x,) in trainer:
        if not trainer.rehearsing:
            sizes.append(len(x))
        trainer.backward(5 * model(x)[:, 0])  # each gradient is clipped to 1
    assert sizes[0] != 8
    assert float(spy.sums[0]) == pytest.approx(sizes[0])
    assert before - model.weight.item() == pytest.approx(0.5 * sizes[0] / 8)
    assert trainer.plan == plan


@pytest.mark.parametrize("factor", [1.0, 7.0])
def test_sum_and_mean_mixed_up(kit, factor):
    """jax_privacy 383; arXiv:2202.12219: noise is over a sum, divided after it was added."""
    model = nn.Linear(1, 1, bias=False)
    data = (torch.ones(24, 1),)
    spy = kit.Spy()
    plan = kit.plan(lots=PoissonLots(24, 24), steps=1, clipping=Flat(2.0), z=3.0)
    kit.run(kit.trainer(model, data, plan=plan, noise=spy), lambda m, x: factor * m(x)[:, 0])
    assert float(spy.sums[0]) == pytest.approx(24 * min(factor, 2.0))  # a sum of 24
    assert spy.stds == [6.0]  # sigma C, for that sum


def test_accumulated_iterations_fixed_at_one(kit):
    """683: a lot in several physical batches was divided, or had noise, as if it were one."""
    ends = []
    for size in (None, 2):
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        spy = kit.Spy()
        plan = kit.plan(lots=PoissonLots(24, 24), steps=2)
        trainer = kit.trainer(model, (torch.ones(24, 1),), plan=plan, noise=spy, batch_size=size)
        kit.run(trainer, lambda m, x: m(x)[:, 0])
        ends.append(model.weight.item())
        assert [float(s) for s in spy.sums] == pytest.approx([24.0, 24.0])
    assert ends == pytest.approx([-1.0, -1.0])


# --- norms --------------------------------------------------------------------------------------


def test_ghost_accumulation_aliasing(kit):
    """707: sums of earlier physical batches were overwritten through shared memory."""
    model, data, loss = kit.case("cnn")
    whole, _ = kit.sums(data, model, loss, Flat(0.2))
    for size in (1, 5, 11):
        parts, trainer = kit.sums(data, model, loss, Flat(0.2), batch_size=size)
        torch.testing.assert_close(flat(parts), flat(whole), rtol=1e-12, atol=1e-13)
    memory = [s.untyped_storage().data_ptr() for s in trainer._step.sum.sums.values()]
    assert len(set(memory)) == len(memory)


def test_a_bias_left_out_of_the_norm(kit):
    """751: the bias gradient is a part of the norm, here nearly all of it."""
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    x, y = 1e-3 * torch.randn(6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    sums, _ = kit.sums((x, y), model, kit.classify, Flat(0.1))
    losses = kit.classify(model, x, y)
    torch.testing.assert_close(flat(sums), clipped_sum(model, losses, 0.1), rtol=1e-8, atol=1e-12)
    assert float(flat(sums).norm()) <= 6 * 0.1


def test_the_reduction_of_ignored_labels(kit):
    """808: examples with many ignored labels were scaled by the count of the whole batch."""
    model = nn.Linear(4, 3)
    x = torch.randn(5, 6, 4)
    y = torch.randint(0, 3, (5, 6))
    for row in range(5):
        y[row, : row + 1] = -100

    def loss(m, x, y):
        each = F.cross_entropy(m(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="none")
        kept = (y != -100).sum(1).clamp(min=1)
        return each.view(len(x), -1).sum(1) / kept

    sums, _ = kit.sums((x, y), model, loss, Flat(0.3))
    alone = torch.cat([loss(model, x[i : i + 1], y[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(flat(sums), clipped_sum(model, alone, 0.3), rtol=1e-8, atol=1e-12)

    def over_the_batch(m, x, y):
        return loss(m, x, y) * 5 / (y != -100).sum()

    with pytest.raises(TrainingError, match="depends on the other examples"):
        kit.sums((x, y), model, over_the_batch, Flat(0.3))


@pytest.mark.parametrize("padding", [0, 3, -1])
def test_a_padding_embedding(kit, padding):
    """Ghost clipping counted the padding row, which has no gradient, in the norm or the sum."""

    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.out = nn.Embedding(6, 4, padding_idx=padding), nn.Linear(4, 3)

        def forward(self, x):
            return self.out(self.words(x).sum(1))

    model = Bag()
    x, y = torch.randint(0, 6, (8, 7)), torch.randint(0, 3, (8,))
    x[:, 0] = padding % 6
    sums, _ = kit.sums((x, y), model, kit.classify, Flat(0.5))
    losses = kit.classify(model, x, y)
    torch.testing.assert_close(flat(sums), clipped_sum(model, losses, 0.5), rtol=1e-8, atol=1e-12)
    assert not sums["words.weight"][padding].any()


def test_tied_weights_counted_as_a_new_batch(kit):
    """413: a weight used twice has one gradient, whose norm is that of the sum."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            return self.a(torch.tanh(self.a(x)))

    model, tied = Twice(), copy.deepcopy(kit.models["transformer"][0]())
    x = torch.randn(6, 4)
    sums, trainer = kit.sums((x,), model, lambda m, x: m(x).square().sum(1), Flat(0.4))
    expected = clipped_sum(model, model(x).square().sum(1), 0.4)
    torch.testing.assert_close(flat(sums), expected, rtol=1e-8, atol=1e-12)
    assert trainer._step._facts.units == 6
    tokens, loss = torch.randint(0, 11, (6, 5)), kit.models["transformer"][2]
    sums, trainer = kit.sums((tokens,), tied, loss, Flat(0.4))
    expected = clipped_sum(tied, loss(tied, tokens), 0.4)
    torch.testing.assert_close(flat(sums), expected, rtol=1e-8, atol=1e-12)
    assert trainer._step._facts.units == 6


def test_one_gradient_that_is_not_finite_poisons_the_sum(kit):
    """One NaN or infinity made the whole sum, and then every weight, NaN."""
    model, (x, y, _), loss = kit.case("cnn")
    clean, _ = kit.sums((x[1:], y[1:]), model, loss, Flat(0.3))
    for bad in (math.nan, math.inf, -math.inf, 1e300):
        x[0, 0, 0, 0] = bad
        for size in (None, 4):
            sums, trainer = kit.sums((x, y), model, loss, Flat(0.3), batch_size=size)
            torch.testing.assert_close(flat(sums), flat(clean), rtol=1e-8, atol=1e-12)
            assert all(bool(p.isfinite().all()) for p in trainer.model.parameters())


def test_batch_norm_mixes_examples(kit):
    """567: refused when the trainer is made; its statistics would also leave without noise."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
    _, data, _ = kit.case("cnn")
    with pytest.raises(TrainingError, match=r"'1' is a BatchNorm2d.*nn\.GroupNorm\(2, 4\)"):
        kit.trainer(model, data)


def test_microbatches_double_the_sensitivity(kit):
    """TF Privacy 620: the mean of a microbatch was clipped, not each example."""
    model = nn.Linear(1, 1, bias=False)
    data = torch.tensor([[10.0], [-1.0], [0.1], [-10.0]])
    for size in (1, 2, 4):
        sums, _ = kit.sums((data,), model, lambda m, x: m(x)[:, 0], Flat(1.0), batch_size=size)
        assert float(sums["weight"]) == pytest.approx(1.0 - 1.0 + 0.1 - 1.0)
        less, _ = kit.sums((data[:3],), model, lambda m, x: m(x)[:, 0], Flat(1.0), batch_size=size)
        assert abs(float(sums["weight"]) - float(less["weight"])) <= 1


# --- accounting ---------------------------------------------------------------------------------


def test_adaptive_clippings_own_cost_missing(kit):
    """779, 807: the count is a second release; together they cost what the plan says."""
    model, data, loss = kit.case("mlp")
    plan = kit.plan(clipping=Adaptive(1.0, count_noise=0.8), z=1.5, steps=2)
    found = kit.watched(model, data, loss, plan=plan)
    clips = [s for i, s in enumerate(found.spy.stds) if i % 5 < 4]
    counts = found.spy.stds[4::5]
    assert counts == [0.8, 0.8]  # the count has noise, in every lot
    z = 1 / math.sqrt(clips[0] ** -2 + (0.5 / 0.8) ** 2)  # of both, for C = 1
    assert z == pytest.approx(1.5)
    assert plan.event == kit.plan(clipping=Flat(1.0), z=1.5, steps=2).event
    free = account(GaussianEvent(clips[0]), 1e-5).epsilon
    assert account(GaussianEvent(1.5), 1e-5).epsilon > 2 * free  # what it would have missed


def test_layers_accounted_one_by_one(kit):
    """Noise sigma C_l on each of k layers is a multiplier of sigma / sqrt(k) only."""
    model, data, loss = kit.case("mlp")
    plan = kit.plan(clipping=PerLayer({"0": 1.0, "2": 3.0}), z=2.0, steps=1)
    found = kit.watched(model, data, loss, plan=plan)
    signal = sum((c / s) ** 2 for c, s in zip((1.0, 3.0), found.spy.stds[::2], strict=True))
    assert signal == pytest.approx(1 / 2.0**2)


def test_replace_one_with_the_sensitivity_of_add_remove(kit):
    """google/differential-privacy PR 464: replacing moves a sum by 2C."""
    whole = PoissonLots(24, 24)
    replaced = kit.plan(lots=whole, steps=5, z=3.0, neighbours="replace-one")
    added = kit.plan(lots=whole, steps=5, z=1.5)
    assert replaced.guarantee.epsilon == pytest.approx(added.guarantee.epsilon, rel=1e-3)
    for lots in (FixedSizeLots(6, 24), ShuffledLots(6, 24)):
        zeroed, swapped = (
            kit.plan(lots=lots, steps=4, z=3.0, neighbours=n).guarantee.epsilon
            for n in ("zero-out", "replace-one")
        )
        assert swapped >= zeroed
    poisson = [
        kit.plan(z=3.0, neighbours=n).guarantee.epsilon for n in ("add-remove", "replace-one")
    ]
    assert poisson[1] > 1.5 * poisson[0]


def test_a_crash_or_a_skip_on_an_empty_lot(kit):
    """161, 530, 812: whether a lot was empty showed; it steps, with noise, and counts."""
    torch.manual_seed(1)
    model, data, loss = kit.case("mlp")
    plan = kit.plan(n=24, lot=1.0, steps=30)
    spy = kit.Spy()
    trainer = kit.trainer(model, data, plan=plan, noise=spy, ema_decay=0.9)
    lots = kit.lots_of(trainer, 24)
    assert 5 < sum(not lot for lot in lots) < 25
    kit.run(trainer, loss)
    assert len(spy.stds) == 30 * 4
    assert set(spy.stds) == {1.0}
    assert trainer._average.updates == 30
    for lot, first in zip(lots, spy.sums[::4], strict=True):
        assert bool(first.any()) == bool(lot)


# --- noise --------------------------------------------------------------------------------------


def updates(kit, noise):
    """The noise of each parameter at each step, in standard deviations."""
    model = nn.Sequential(*(nn.Linear(30, 30, bias=False) for _ in range(3)))
    found, last = [], [p.detach().clone() for p in model.parameters()]
    trainer = kit.trainer(model, (torch.randn(24, 30),), plan=kit.plan(steps=3), noise=noise)
    step = trainer._step.apply

    def apply(number):
        step(number)
        found.extend(
            (p.detach() - b).flatten() * 16 for p, b in zip(model.parameters(), last, strict=True)
        )
        last[:] = [p.detach().clone() for p in model.parameters()]

    trainer._step.apply = apply
    kit.run(trainer, lambda m, x: 0 * m(x).sum(1))
    return found


@pytest.mark.parametrize("noise", [CoinNoise, TorchNoise])
def test_noise_keys_reused_across_parameters_or_steps(kit, noise):
    """jax PR 3646: parameters of one shape had the same noise, and their difference none."""
    found = updates(kit, noise())
    assert len(found) == 9
    correlation = np.corrcoef(torch.stack(found).numpy())
    assert np.abs(correlation - np.eye(9)).max() < 7 / math.sqrt(900)
    again = updates(kit, noise())  # nor across runs
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 0.23 for a, b in zip(found, again, strict=True))


def test_noise_that_is_not_cryptographic(kit):
    """616, 504: the operating system's entropy by default; anything else is asked for, and told."""
    model, (x, _, _), _ = kit.case("mlp")

    def made(**more):
        own = copy.deepcopy(model)
        return DPSGD(
            own,
            torch.optim.SGD(own.parameters(), lr=0.1),
            (x,),
            plan=kit.plan(),
            progress=False,
            **more,
        )

    usual = made()
    assert isinstance(usual._noise, CoinNoise)
    assert usual._noise.coins is usual._coins is SYSTEM
    assert (usual.record.private, usual.record.facts["noise_source"]) == (True, "coins")
    assert "floating point" in usual.record.facts["arithmetic"]
    asked = made(noise=TorchNoise()).record
    assert asked.facts["noise_source"] == "torch"
    assert not made(noise=TorchNoise(torch.Generator())).record.private
    assert not made(coins=SeededCoins(1)).record.private
    assert not made(noise=CoinNoise(SeededCoins(1))).record.private
