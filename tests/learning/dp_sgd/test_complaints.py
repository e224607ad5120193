"""What users of Opacus complain about, where no other test shows how it goes here.

docs/complaints.md lists all of it, each row with its test; the last tests here read that page.
"""

import ast
import contextlib
import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import WeightedRandomSampler

from sfumato.core.events import GaussianEvent, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, CoinNoise, Flat, TrainingError
from sfumato.learning.dp_sgd.gradients import convolution, pieces
from sfumato.learning.dp_sgd.lots import Lots

pytestmark = pytest.mark.usefixtures("doubles")

ROOT = Path(__file__).parents[3]


def clipped_sum(model, losses, clip):
    """Each example's gradient by autograd, clipped as a whole and added up, as one vector."""
    own = [p for p in model.parameters() if p.requires_grad]
    total = 0.0
    for loss in losses:
        grads = torch.autograd.grad(loss, own, retain_graph=True, materialize_grads=True)
        row = torch.cat([g.flatten() for g in grads])
        total = total + row * (clip / row.norm()).clamp(max=1)
    return total


def flat(sums):
    return torch.cat([s.flatten() for s in sums.values()])


@contextlib.contextmanager
def choosing(ghost):
    """One way to per-example norms: by Gram matrices, or by writing gradients out."""
    with contextlib.ExitStack() as stack:
        for module in (pieces, convolution):
            stack.enter_context(patch.object(module, "prefer_ghost", lambda *_, **__: ghost))
        yield


# --- 1: "Per sample gradient is not initialized" --------------------------------------------------


class TwoHeads(nn.Module):
    """Of which one is never used."""

    def __init__(self):
        super().__init__()
        self.body, self.used, self.unused = nn.Linear(5, 4), nn.Linear(4, 3), nn.Linear(4, 2)

    def forward(self, x):
        return self.used(torch.tanh(self.body(x)))


def test_a_parameter_without_a_gradient_is_trained_by_noise_alone(kit):
    """And not an error in the first step: whether something is used is no reason to stop."""
    model, (_, data, loss) = TwoHeads(), kit.case("mlp")
    sums, trainer = kit.sums(data, model, loss, Flat(0.3))
    assert trainer.steps_taken == 1
    assert not sums["unused.weight"].any()
    assert sums["used.weight"].any()
    spy = kit.Spy()
    kit.run(kit.trainer(model, data, noise=spy, plan=kit.plan(clipping=Flat(0.3), z=2.0)), loss)
    assert spy.stds == [0.6] * (3 * 6)  # each of six parameters, in every step


# --- 3 and 4: a model stays its owner's; low-rank adapters ----------------------------------------


class Adapted(nn.Module):
    """x W^T + b with W and b frozen, and a low-rank change that is trained: LoRA, by hand."""

    def __init__(self, base, rank=2, scale=4.0):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), scale
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features) / 3)
        self.lora_b = nn.Parameter(torch.randn(base.out_features, rank) / 3)

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_a.T) @ self.lora_b.T


class Words(nn.Module):
    """A frozen language model with adapters, and a method of its own."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 6).requires_grad_(False)
        self.first, self.second = Adapted(nn.Linear(6, 8)), Adapted(nn.Linear(8, 9))

    def forward(self, tokens):
        return self.second(F.gelu(self.first(self.words(tokens))))

    def next_word(self, tokens):
        return self(tokens)[:, -1].argmax(-1)


def next_words(model, tokens):
    each = F.cross_entropy(model(tokens)[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")
    return each.mean(1)


@pytest.mark.parametrize("ghost", [True, False])
def test_adapters_are_clipped_and_summed_exactly(kit, ghost):
    """A gradient that only looks right trains for hours, and the model is useless."""
    model, tokens = Words(), torch.randint(0, 9, (7, 5))
    with choosing(ghost):
        sums, _ = kit.sums((tokens,), model, next_words, Flat(0.3))
    assert set(sums) == {f"{part}.lora_{x}" for part in ("first", "second") for x in "ab"}
    expected = clipped_sum(model, next_words(model, tokens), 0.3)
    torch.testing.assert_close(flat(sums), expected, rtol=1e-8, atol=1e-12)


def test_adapters_learn_and_what_is_frozen_stays(kit):
    torch.manual_seed(4)
    model = Words()
    before = copy.deepcopy(model.state_dict())
    tokens = torch.arange(5).repeat(48, 1)  # 0 1 2 3 4: a row that can be learnt
    plan = kit.plan(n=48, lot=24, steps=40, clipping=Flat(1.0), z=0.5)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    noise = CoinNoise(SeededCoins(2))
    trainer = kit.trainer(model, (tokens,), plan=plan, optimizer=optimizer, noise=noise)
    first = next_words(model, tokens).mean().item()
    trainer.fit(next_words)
    assert next_words(model, tokens).mean().item() < 0.3 * first
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) != ("lora" in name), name


def test_a_model_in_training_is_its_own_class_with_its_own_names(kit):
    """No wrapper: methods, attributes and stored weights are as they were, in the loop as well."""
    model = Words()
    names = list(model.state_dict())
    trainer = kit.trainer(model, (torch.randint(0, 9, (24, 5)),))
    for batch in trainer:
        trainer.backward(next_words(model, *batch))
        assert (type(model), trainer.model) == (Words, model)
        assert model.next_word(torch.zeros(2, 3, dtype=torch.long)).shape == (2,)
        assert [name for name, _ in model.named_parameters()] == names
    fresh = Words()
    fresh.load_state_dict(model.state_dict())  # strict: no name more, no name less
    assert list(model.state_dict()) == names
    tokens = torch.randint(0, 9, (3, 5))
    assert torch.equal(fresh(tokens), model(tokens))


# --- 12: GANs, several optimizers, several backwards ----------------------------------------------

MEAN = torch.tensor([2.0, -1.0])


class Gan:
    """A private discriminator, and a generator that learns from it and from public noise alone.

    A made-up row belongs to a real one, and is made by ``augment``: so one record's contribution is
    that of one pair. The generator never sees a record; it takes its step in ``after``, also where
    a lot was empty, on a fixed number of rows: a function of released weights and public coins.
    """

    def __init__(self, kit, plan, rows, noise=None, **more):
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.generator.parameters(), lr=5e-3)
        self.steps: list[int] = []
        optimizer = torch.optim.SGD(self.judge.parameters(), lr=0.5)
        self.trainer = kit.trainer(
            self.judge, (rows,), plan=plan, optimizer=optimizer, noise=noise,
            augment=self.beside_made_up, **more,
        )  # fmt: skip

    @torch.no_grad()
    def beside_made_up(self, real):
        return torch.stack([real, self.generator(torch.randn(len(real), 4))], 1)

    @staticmethod
    def loss(judge, pairs):
        return (F.softplus(-judge(pairs[:, 0])) + F.softplus(judge(pairs[:, 1])))[:, 0]

    def teach(self, step):
        fooled = F.softplus(-self.judge(self.generator(torch.randn(64, 4)))).mean()
        self.optimizer.zero_grad()
        fooled.backward(inputs=list(self.generator.parameters()))
        self.optimizer.step()
        self.steps.append(step)

    def distance(self):
        return float((self.generator(torch.randn(500, 4)).mean(0) - MEAN).norm().detach())


def test_a_gan_with_a_private_discriminator(kit):
    real = 0.3 * torch.randn(400, 2) + MEAN
    plan = kit.plan(n=400, lot=100, steps=60, clipping=Flat(1.0), z=1.0)
    gan = Gan(kit, plan, real, CoinNoise(SeededCoins(3)))
    before = gan.distance()
    gan.trainer.fit(gan.loss, after=gan.teach)
    assert gan.steps == list(range(1, 61))
    assert gan.distance() < 0.5 * before
    assert all(p.grad is None for p in gan.judge.parameters())


def test_a_pair_of_a_gan_is_clipped_as_one(kit):
    gan = Gan(kit, kit.plan(), torch.randn(1, 2))
    for model, longer in ((gan.judge, False), (copy.deepcopy(gan.judge), True)):
        loss = (lambda m, x: 100 * gan.loss(m, x)) if longer else gan.loss
        sums, _ = kit.sums((1 + torch.zeros(1, 2),), model, loss, Flat(0.3),
                           augment=gan.beside_made_up)  # fmt: skip
        assert float(flat(sums).norm()) == pytest.approx(0.3)  # real and made-up row together


def test_the_generator_cannot_tell_that_a_lot_was_empty(kit):
    plan = kit.plan(n=24, lot=1.0, steps=20)
    gan = Gan(kit, plan, torch.randn(24, 2))
    assert any(not lot for lot in kit.lots_of(gan.trainer, 24))
    gan.trainer.fit(gan.loss, after=gan.teach)
    assert gan.steps == list(range(1, 21))


def test_a_plain_backward_through_the_discriminator_is_refused_with_the_remedy(kit):
    gan = Gan(kit, kit.plan(), torch.randn(24, 2))
    before = copy.deepcopy(gan.judge.state_dict())

    def teach(step):
        gan.judge(gan.generator(torch.randn(8, 4))).mean().backward()

    with pytest.raises(TrainingError, match=r"backward\(inputs=list\(other\.parameters\(\)\)\)"):
        gan.trainer.fit(gan.loss, after=teach)
    assert gan.trainer.steps_taken == 2
    assert all(p.grad is None for p in gan.judge.parameters())
    assert any(not torch.equal(v, before[k]) for k, v in gan.judge.state_dict().items())


def test_made_up_rows_drawn_in_the_loss_are_refused_with_the_remedy(kit):
    """Whose contribution they are could not be checked."""
    gan = Gan(kit, kit.plan(), torch.randn(24, 2))

    def loss(judge, pairs):
        made_up = gan.generator(torch.randn(len(pairs), 4)).detach()
        return F.softplus(judge(made_up))[:, 0] + gan.loss(judge, pairs)

    with pytest.raises(TrainingError, match=r"numbers drawn outside of the model \(draw those of"):
        gan.trainer.fit(loss)
    assert gan.trainer.steps_taken == 0


def test_a_gradient_penalty_is_refused(kit):
    """It differentiates twice, which rules for per-example gradients do not follow."""
    gan = Gan(kit, kit.plan(), torch.randn(24, 2))

    def penalised(judge, pairs):
        middle = pairs.mean(1).requires_grad_()
        slope = torch.autograd.grad(judge(middle).sum(), middle, create_graph=True)[0]
        return gan.loss(judge, pairs) + 10 * (slope.norm(dim=1) - 1).square()

    with pytest.raises(TrainingError, match="could not be confirmed"):
        gan.trainer.fit(penalised)
    assert gan.trainer.steps_taken == 0


def test_several_losses_are_one_and_several_optimizers_are_groups(kit):
    """What would be two backwards is one sum: a record is clipped once, not once for each."""
    model, (_, data, _) = TwoHeads(), kit.case("mlp")

    def both(m, x, y, *_):
        return F.cross_entropy(m(x), y, reduction="none") + m(x).square().mean(1)

    sums, _ = kit.sums(data, model, both, Flat(0.2))
    expected = clipped_sum(model, both(model, *data), 0.2)
    torch.testing.assert_close(flat(sums), expected, rtol=1e-8, atol=1e-12)
    groups = [
        {"params": model.body.parameters(), "lr": 0.0},
        {"params": [*model.used.parameters(), *model.unused.parameters()], "lr": 0.5},
    ]
    before = copy.deepcopy(model.state_dict())
    kit.run(kit.trainer(model, data, optimizer=torch.optim.SGD(groups, lr=0.1)), both)
    assert torch.equal(model.body.weight, before["body.weight"])
    assert not torch.equal(model.used.weight, before["used.weight"])


# --- 13: samplers of one's own --------------------------------------------------------------------


@final
@dataclass(frozen=True)
class HalvesLots(Lots):
    """The first half of the units and the second by turns: fixed, so nothing is amplified.

    A unit is in every second lot: of T steps it is in at most ceil(T / 2), each a Gaussian release.
    """

    kind: ClassVar[str] = "halves-of-a-test"
    relations: ClassVar[frozenset[Neighbours]] = frozenset({Neighbours.ZERO_OUT})
    size: int
    population: int

    @property
    def sample_rate(self) -> float:
        return 1.0

    def _draw(self, available, coins) -> Iterator[np.ndarray]:
        while True:
            yield np.arange(self.size)
            yield np.arange(self.size, available)

    def mechanism(self, noise, neighbours, unit, first=0):
        ((z, steps),) = noise
        return repeat(GaussianEvent(z, neighbours, unit), math.ceil(steps / 2))

    def _most_records(self, neighbours):
        return 1


def test_a_sampler_of_ones_own_comes_with_what_it_costs(kit):
    plan = kit.plan(lots=HalvesLots(12, 24), steps=5, z=4.0, neighbours="zero-out")
    assert plan.event == repeat(GaussianEvent(4.0, "zero-out"), 3)
    model, data, loss = kit.case("mlp")
    seen = []
    kit.run(
        kit.trainer(model, data, plan=plan),
        loss,
        lambda _, batch: seen.append(sorted(batch[2].tolist())),
    )
    halves = [list(range(12)), list(range(12, 24))]
    assert seen == [*halves, *halves, halves[0]]


def test_a_sampler_that_nobody_accounts_for_is_refused_not_dropped(kit):
    """600: weights for rare classes were thrown away without a word."""
    model, data, _ = kit.case("mlp")
    sampler = WeightedRandomSampler(torch.ones(24), 24)
    with pytest.raises(ValueError, match=r"lots must be Lots.*weigh their losses"):
        DPSGD(
            model, torch.optim.SGD(model.parameters()), data, lots=sampler, steps=3, epsilon=3,
            delta=1e-3,
        )  # fmt: skip


# --- 17: both ways to a norm give the same --------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer", "lstm", "unet"])
def test_whole_runs_by_either_way_end_at_the_same_weights(kit, name):
    """692: ghost clipping was 10 points of accuracy below hooks."""
    ends = []
    model, data, loss = kit.case(name)
    for ghost in (True, False):
        own = copy.deepcopy(model)
        noise, plan = CoinNoise(SeededCoins(5)), kit.plan(clipping=Flat(0.2), steps=4)
        with choosing(ghost):
            kit.run(kit.trainer(own, data, noise=noise, plan=plan), loss)
        ends.append(torch.cat([p.detach().flatten() for p in own.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-8, atol=1e-10)
    start = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert not torch.allclose(start, ends[0], atol=1e-2)


# --- the page -------------------------------------------------------------------------------------

NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows_of(heading):
    """The cells of each row of the table below a heading of docs/complaints.md."""
    text = (ROOT / "docs" / "complaints.md").read_text(encoding="utf-8")
    part = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def functions_of(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "heading", ["Complaints", "Bugs that broke privacy elsewhere", "Awkward elsewhere"]
)
def test_every_row_of_the_page_names_tests_that_there_are(heading):
    known: dict[Path, set[str]] = {}
    rows = rows_of(heading)
    assert rows
    for row in rows:
        named = NAMED.findall(row[-1])
        assert named, row[0]
        for file, name in named:
            path = ROOT / "tests" / file
            found = known.setdefault(path, functions_of(path))
            assert name in found, f"{file}::{name}"


def test_every_name_elsewhere_on_the_page_is_a_test():
    text = (ROOT / "docs" / "complaints.md").read_text(encoding="utf-8")
    for file, name in NAMED.findall(text):
        assert name in functions_of(ROOT / "tests" / file), f"{file}::{name}"


def test_the_page_lists_all_eighteen():
    assert [int(row[0]) for row in rows_of("Complaints")] == list(range(1, 19))
