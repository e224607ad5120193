"""What tests of whole runs share: a watched run without noise, small models, and a plain loop."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Flat,
    PoissonLots,
    TrainingError,
    TrainingPlan,
    rehearsal,
)
from sfumato.learning.dp_sgd.clipping import ROUNDING, Adaptive, Automatic
from sfumato.ledger import Budget, Ledger


@pytest.fixture
def doubles():
    """Doubles by default, and one thread: these tensors are too small to share out."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


@pytest.fixture
def singles():
    """One thread, and repeatable weights."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def short_rehearsals(monkeypatch):
    """Rehearsals end when the batch's place is learned: for laws of what is done with real rows.

    The other turns take nearly all the time of a run of a step. They have tests of their own.
    """
    for turn in ("play", "with_own_coins", "among_strangers", "among_classes"):
        monkeypatch.setattr(rehearsal._Rehearsal, turn, lambda *_: ())
    monkeypatch.setattr(rehearsal, "_among_lengths", lambda *_: ())


class Spy:
    """No noise; remembers the sums that noise was asked for, and its standard deviations."""

    name, private = "spy", False

    def __init__(self):
        self.sums, self.stds = [], []

    def normal(self, like, std):
        self.sums.append(like.clone())
        self.stds.append(std)
        return torch.zeros_like(like)


# --- models: each with a batch and a loss -------------------------------------------------------


class Tied(nn.Module):
    """A small causal transformer whose head is its embedding."""

    def __init__(self, words=11, width=6, length=5):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 8), nn.GELU(), nn.Linear(8, width))
        self.register_buffer("mask", torch.ones(length, length).triu(1).bool())

    def forward(self, tokens):
        h = self.words(tokens) + self.places
        z = self.norms[0](h)
        h = h + self.attend(z, z, z, attn_mask=self.mask, need_weights=False)[0]
        h = h + self.mlp(self.norms[1](h))
        return F.linear(self.norms[2](h), self.words.weight)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 4, padding_idx=0)
        self.body = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens):
        return self.head(self.body(self.words(tokens))[0][:, -1])


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.low = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        h = self.norm(self.down(x)).relu()
        return self.out(torch.cat([h, self.up(self.low(h).relu())], 1))


def mlp():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


def classify(model, x, y, *_):
    return F.cross_entropy(model(x), y, reduction="none")


def next_words(model, x, *_):
    out = model(x)[:, :-1]
    return (
        F.cross_entropy(out.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
        .view(len(x), -1)
        .mean(1)
    )


def redraw(model, x, *_):
    return (model(x) - x).square().flatten(1).mean(1)


def _images(n, generator):
    return torch.randn(n, 1, 8, 8, generator=generator)


def _tokens(n, generator):
    return torch.randint(0, 9, (n, 5), generator=generator)


MODELS = {
    "mlp": (mlp, lambda n, g: torch.randn(n, 5, generator=g), classify),
    "cnn": (cnn, _images, classify),
    "transformer": (Tied, _tokens, next_words),
    "lstm": (Recurrent, _tokens, classify),
    "unet": (UNet, _images, redraw),
}


# --- runs ---------------------------------------------------------------------------------------


class Kit:
    """Makes data, models and trainers, and steps a copy of a model by a plain loop."""

    Spy, models = Spy, MODELS
    mlp, cnn, classify = staticmethod(mlp), staticmethod(cnn), staticmethod(classify)

    def case(self, name, n=24, seed=3):
        """A model, its data with row numbers, and its loss."""
        make, inputs, loss = MODELS[name]
        generator = torch.Generator().manual_seed(seed)
        x = inputs(n, generator)
        y = torch.randint(0, 3, (n,), generator=generator)
        return make(), (x, y, torch.arange(n)), loss

    def plan(self, n=24, lot=8.0, steps=3, clipping=None, z=1.0, **more):
        """Without the time that calibration takes."""
        lots = more.pop("lots", None) or PoissonLots(lot, n)
        return TrainingPlan(lots, clipping or Flat(1.0), z, steps, 1e-5, **more)

    def trainer(self, model, data, *, plan=None, optimizer=None, noise=None, coins=1, **more):
        """A run with repeatable coins; by default without noise."""
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.5)
        return DPSGD(
            model, optimizer, data, plan=plan or self.plan(), noise=noise or Spy(),
            coins=SeededCoins(coins), progress=False, **more,
        )  # fmt: skip

    def run(self, trainer, loss, after=None):
        """The whole loop; ``after(trainer, batch)`` follows each private batch."""
        for batch in trainer:
            rehearsing = trainer.rehearsing
            trainer.backward(loss(trainer.model, *batch))
            if after is not None and not rehearsing:
                after(trainer, batch)
        return trainer

    def lots_of(self, trainer, n, seed=1):
        """The lots that a run of ``trainer`` without noise draws from its coins."""
        sampler = trainer.plan.lots.sampler(n, SeededCoins(seed))
        return [next(sampler).tolist() for _ in range(trainer.plan.steps)]

    def watched(self, model, data, loss, **more):
        """Runs; returns the trainer, and weights and clean sums after each step."""
        spy = Spy()
        trainer = self.trainer(model, data, noise=spy, **more)
        weights = []
        step = trainer._step.apply

        def apply(number):
            step(number)
            weights.append({n: p.detach().clone() for n, p in model.named_parameters()})

        trainer._step.apply = apply
        self.run(trainer, loss)
        return SimpleNamespace(trainer=trainer, weights=weights, spy=spy)

    def sums(self, data, model, loss, clipping, *, rows=None, **more):
        """By name, the clipped sum of a lot that holds everybody; the model stays as it was."""
        own, spy = copy.deepcopy(model), Spy()
        count = rows if rows is not None else len(data[0])
        plan = self.plan(lots=PoissonLots(max(count, 1), max(count, 1)), steps=1, clipping=clipping)
        trainer = self.trainer(own, data, plan=plan, noise=spy, **more)
        for batch in trainer:
            trainer.backward(loss(own, *batch))
        names = [n for group in trainer._step.sum.groups for n in group]
        return dict(zip(names, spy.sums, strict=False)), trainer


def gradient(model, losses):
    own = [p for p in model.parameters() if p.requires_grad]
    found = torch.autograd.grad(losses.sum(), own, allow_unused=True, materialize_grads=True)
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    return dict(zip(names, found, strict=True))


def clipped(grads, clipping, clip):
    """One unit's contribution, written as in the papers."""
    groups = clipping.groups(list(grads))
    bounds = (clip,) if isinstance(clipping, Adaptive) else clipping.bounds(groups)
    out, norms = {}, []
    for group, bound in zip(groups, bounds, strict=True):
        norm = math.sqrt(sum(float(grads[n].double().square().sum()) for n in group))
        norms.append(norm)
        limit = bound * (1 - ROUNDING["float64"])
        if isinstance(clipping, Automatic):
            factor = limit / (norm + clipping.gamma)
        else:
            factor = min(1.0, limit / norm) if norm else 1.0
        out |= {n: factor * grads[n] for n in group}
    return out, norms


class Loop:
    """DP-SGD without noise, one example after the other: what a run is compared with."""

    def __init__(self, model, optimizer, loss, clipping, size):
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.clipping, self.size = clipping, size
        self.clip = getattr(clipping, "clip", None)

    def step(self, units):
        """``units``: for each a list of (batch of one row, weight)."""
        total = {n: torch.zeros_like(p) for n, p in self.model.named_parameters()}
        count = 0.0
        for unit in units:
            losses = sum(weight * self.loss(self.model, *row).sum() for row, weight in unit)
            part, norms = clipped(gradient(self.model, losses), self.clipping, self.clip)
            for name, value in part.items():
                total[name] += value
            if isinstance(self.clipping, Adaptive):
                count += 0.5 if norms[0] <= self.clip else -0.5
        for name, p in self.model.named_parameters():
            p.grad = total[name] / self.size
        self.optimizer.step()
        self.optimizer.zero_grad()
        if isinstance(self.clipping, Adaptive):
            share = count / self.size + 0.5
            move = -self.clipping.learning_rate * (share - self.clipping.quantile)
            self.clip *= math.exp(move)
        return total


@pytest.fixture
def kit():
    return Kit()


@pytest.fixture
def loop():
    return Loop


@pytest.fixture
def one():
    """One row of a batch, as a batch."""
    return lambda data, row: tuple(leaf[row : row + 1] for leaf in data)


@pytest.fixture
def ledger(tmp_path):
    """A real ledger with a budget for one data set."""
    opened = Ledger(f"sqlite:///{tmp_path / 'privacy.db'}")
    opened.create("people", Budget(1000.0, 1e-3), unit="record")
    yield opened
    opened.close()


# --- wrong uses ---------------------------------------------------------------------------------


class Wrong:
    """A small problem on a real ledger, in which whatever is refused must have cost nothing."""

    rows = 24

    def __init__(self, ledger):
        self.ledger = ledger

    def data(self):
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(self.rows, 5, generator=generator)
        return x, torch.randint(0, 3, (self.rows,), generator=generator)

    def plan(self, **more):
        return TrainingPlan(PoissonLots(8, self.rows), Flat(1.0), 1.0, 3, 1e-5, **more)

    def start(self, model, rows=None, optimizer=None, **more):
        """A trainer; nothing is charged yet."""
        chosen = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
        own = {"plan": self.plan(), **more}
        return DPSGD(
            model, chosen, self.data() if rows is None else rows, ledger=self.ledger,
            dataset="people", progress=False, **own,
        )  # fmt: skip

    @staticmethod
    def model():
        return nn.Linear(5, 3)

    @staticmethod
    def classify(model):
        return lambda x, y: F.cross_entropy(model(x), y, reduction="none")

    @staticmethod
    def loop(trainer, loss):
        for batch in trainer:
            trainer.backward(loss(*batch))

    @property
    def charges(self):
        """Everything that the ledger holds since the budget was opened."""
        return [entry.kind for entry in self.ledger.history("people")][1:]

    def refused(self, model, loss, message, rows=None, **more):
        """By the trainer or its loop, with nothing spent."""
        with pytest.raises(TrainingError, match=message):
            self.loop(self.start(model, rows, **more), loss)
        assert self.charges == []


@pytest.fixture
def wrong(ledger):
    return Wrong(ledger)
