"""What every rank of a world does; each function returns what a test is to look at."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    Flat,
    PerLayer,
    PoissonLots,
    TrainingError,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.distributed import Alone

ROWS = 40


class NoNoise:
    name, private = "none", False

    def __init__(self):
        self.stds = []

    def normal(self, like, std):
        self.stds.append(std)
        return torch.zeros_like(like)


class Words(nn.Module):
    """A small transformer whose head is its embedding, transposed by hand."""

    def __init__(self, words=11, width=6):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 7), nn.GELU(), nn.Linear(7, width))

    def forward(self, tokens):
        h = self.words(tokens)
        z = self.norm(h)
        h = h + self.attend(z, z, z, need_weights=False)[0]
        h = h + self.mlp(h)
        return (h @ self.words.weight.t()).mean(1)


def mlp():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 3))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip


MODELS = {
    "mlp": (mlp, lambda g: torch.randn(ROWS, 5, generator=g)),
    "cnn": (cnn, lambda g: torch.randn(ROWS, 1, 8, 8, generator=g)),
    "words": (Words, lambda g: torch.randint(0, 9, (ROWS, 5), generator=g)),
}


def loss(model, x, y, *_):
    return F.cross_entropy(model(x), y, reduction="none")


def case(kind, seed=3):
    make, inputs = MODELS[kind]
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(seed)
    x = inputs(generator)
    return make(), (x, torch.randint(0, 3, (ROWS,), generator=generator), torch.arange(ROWS))


def plan(clipping=None, lot=9.0, steps=4, z=1.0, n=ROWS):
    return TrainingPlan(PoissonLots(lot, n), clipping or Flat(0.5), z, steps, 1e-5)


def trainer(model, data, made=None, ranks=None, optimizer=torch.optim.Adam, **more):
    settings = {"noise": NoNoise(), "coins": SeededCoins(1), "progress": False} | more
    return DPSGD(
        model, optimizer(model.parameters(), lr=0.1), data, plan=made or plan(), ranks=ranks,
        **settings,
    )  # fmt: skip


def shard(model, every=True):
    if every:  # an embedding that is also the head stays with the root
        for child in [model.mlp] if isinstance(model, Words) else model.children():
            if any(True for _ in child.parameters()):
                fully_shard(child)
    return fully_shard(model)


def weights(model):
    held = {n: p.detach() for n, p in model.named_parameters()}
    return {n: (p.full_tensor() if isinstance(p, DTensor) else p).clone() for n, p in held.items()}


def distance(one, two):
    return max(float((one[n] - two[n]).abs().max()) for n in two)


def moved(model, kind):
    """How far a trained model is from its beginning."""
    return distance(weights(model), weights(case(kind)[0]))


def apart(kind, sharded=False, run=None, **more):
    """How far two ranks' result is from one process's, and how far that has moved."""
    fit = run or (lambda t: t.fit(loss))
    model, data = case(kind)
    fit(trainer(model, data, ranks=Alone(), **more))
    other, _ = case(kind)
    other = shard(other, every=sharded != "whole") if sharded else other
    fit(trainer(other, data, **more))
    return {"apart": distance(weights(other), weights(model)), "moved": moved(model, kind)}


# --- the same result ------------------------------------------------------------------------------


def equality(home):
    found = {}
    for sharded in (False, True, "whole"):
        for kind in MODELS:
            found[kind, sharded] = apart(kind, sharded)
        for clipping in (Adaptive(0.5, count_noise=3.0), PerLayer(0.5)):
            found[type(clipping).__name__, sharded] = apart("mlp", sharded, made=plan(clipping))
        found["parts", sharded] = apart("cnn", sharded, batch_size=2)
        owners = [i // 3 for i in range(ROWS)]
        made = TrainingPlan(PoissonLots(5, 14), Flat(0.5), 1.0, 4, 1e-5, unit="owner")
        found["owners", sharded] = apart(
            "mlp", sharded, made=made, owners=owners, rows_per_owner=2
        )  # fmt: skip
        found["small lots", sharded] = apart("mlp", sharded, made=plan(lot=0.7, steps=8))
        found["average", sharded] = apart("mlp", sharded, ema_decay=0.9, run=averaged)
    return found


def averaged(t):
    for batch in t:
        t.backward(loss(t.model, *batch))
        with torch.no_grad(), t.averaged() as model:  # looks at weights between steps
            model(batch[0])
    with t.averaged():
        kept = weights(t.model)
    with torch.no_grad():
        for name, p in t.model.named_parameters():
            if not isinstance(p, DTensor):
                p.copy_(kept[name])
