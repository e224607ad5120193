"""An augment or a collate that looks where a row stands, how many there are, or rarely mixes."""

# ruff: noqa: NPY002
import itertools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, default_collate

from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingError
from sfumato.learning.dp_sgd.plan import TrainingPlan

pytestmark = pytest.mark.usefixtures("singles")
N, WIDTH = 24, 5
X = torch.randn(N, WIDTH, generator=torch.Generator().manual_seed(4))
Y = torch.arange(N) % 3


class Rows(Dataset):
    def __init__(self, change=lambda x: x):
        self.change = change

    def __len__(self):
        return N

    def __getitem__(self, row):
        return self.change(X[row]), Y[row]


def trained(where, change, workers=0):
    def collate(items):
        x, y = default_collate(items)
        return change(x), y

    more = {"augment": change} if where == "augment" else {"collate": collate}
    if where == "data set":
        more = {}
    data = {"augment": (X, Y), "collate": Rows(), "data set": Rows(change)}[where]
    model = nn.Linear(WIDTH, 3)
    DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, progress=False, workers=workers,
        plan=TrainingPlan(PoissonLots(N, N), Flat(1.0), 1.0, 1, 1e-5), **more,
    ).fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"))  # fmt: skip


def spread_out(draw):
    """Noise levels, as variational diffusion models have them."""

    def change(x):
        level = (draw() + torch.arange(len(x)) / len(x)) % 1
        return x * torch.cos(40 * level)[:, None]

    return change


PLACED = {
    "spread out": spread_out(lambda: torch.rand(())),
    "spread out by NumPy": spread_out(np.random.rand),
    "spread out by Python": spread_out(random.random),
    "by size": lambda x: x * (1 if len(x) % 2 else -1),
    "over the size": lambda x: x * 20 / len(x),
    "every other": lambda x: x * (1 - 2 * (torch.arange(len(x)) % 2))[:, None],
    "a line": lambda x: x * torch.linspace(-1, 1, len(x))[:, None],
    "half": lambda x: torch.cat([x[: len(x) // 2] * 2, x[len(x) // 2 :]]),
    "Sobol": lambda x: x * torch.quasirandom.SobolEngine(WIDTH).draw(len(x)),
    "among many": lambda x: x * (1 if len(x) % 2 or len(x) < 9 else -1),
}


@pytest.mark.parametrize("where", ["augment", "collate"])
@pytest.mark.parametrize("how", PLACED)
def test_what_looks_at_places_or_sizes(where, how):
    with pytest.raises(TrainingError, match=f"{where} makes something else of a row"):
        trained(where, PLACED[how])


def mixed(x):
    return 0.5 * x + 0.5 * x.roll(1, 0)


RARELY = {
    "NumPy": np.random.rand,
    "Python": random.random,
    "torch": lambda: float(torch.rand(())),
    "NumPy, after others": lambda: np.random.rand(40)[-1],
    "at the other end": lambda: 1 - np.random.rand(),
}


@pytest.mark.parametrize("where", ["augment", "collate"])
@pytest.mark.parametrize("how", RARELY)
def test_mixing_with_a_small_probability(where, how):
    with pytest.raises(TrainingError, match="mixes the"):
        trained(where, lambda x: mixed(x) if RARELY[how]() < 1e-3 else x)


@pytest.mark.parametrize("where", ["augment", "collate"])
def test_mixup_with_a_small_probability(where):
    def mixup(x):
        if np.random.rand() < 0.02:
            share = np.random.beta(0.8, 0.8)
            return share * x + (1 - share) * x[torch.randperm(len(x))]
        return x

    with pytest.raises(TrainingError, match=r"mixes the|deals something out"):
        trained(where, mixup)


HONEST = {
    "noise": lambda x: x + torch.randn_like(x),
    "noise by NumPy": lambda x: x + torch.from_numpy(np.random.randn(*x.shape)).float(),
    "noise by Python": lambda x: x + torch.tensor([[random.gauss(0, 1) for _ in r] for r in x]),
    "normalvariate": lambda x: x + torch.tensor([[random.normalvariate()] for _ in x]),
    "flips": lambda x: torch.where(torch.rand(len(x), 1) < 0.5, x, -x),
    "flips by Python": lambda x: x * torch.tensor([[random.choice([1, -1])] for _ in x]),
    "flips by NumPy": lambda x: x * torch.from_numpy(np.random.choice([1.0, -1.0], (len(x), 1))),
    "shifts": lambda x: torch.stack([r.roll(int(torch.randint(3, ()))) for r in x]),
    "shifts by NumPy": lambda x: torch.stack([r.roll(int(np.random.randint(3))) for r in x]),
    "gamma": lambda x: x * torch.distributions.Beta(2.0, 2.0).sample((len(x), 1)),
    "beta": lambda x: x * torch.from_numpy(np.random.beta(2, 2, (len(x), 1))),
    "shuffled within": lambda x: torch.stack([r[torch.randperm(WIDTH)] for r in x]),
    "dropout": lambda x: F.dropout(x, 0.5),
    "rejection": lambda x: x * torch.tensor([[_rejecting()] for _ in x]),
    "once for all": lambda x: x * (1 if random.random() < 0.5 else -1),
}


def _rejecting():
    return next(u for u in (random.random() for _ in itertools.count()) if u < 0.5)


@pytest.mark.parametrize("where", ["augment", "collate", "data set"])
@pytest.mark.parametrize("how", HONEST)
def test_honest_changes_pass(where, how):
    change = HONEST[how]
    if where == "data set":
        trained(where, lambda x: change(x[None])[0].float())
    else:
        trained(where, lambda x: change(x).float())


@pytest.mark.parametrize("where", ["augment", "collate", "data set"])
def test_what_comes_out_otherwise_the_second_time(where):
    count = itertools.count()
    with pytest.raises(TrainingError, match="a generator of its own"):
        trained(where, lambda x: x + next(count))


def test_an_error_of_a_worker_is_told_alone():
    def seeded(x):
        return x + np.random.default_rng(3).normal() if torch.utils.data.get_worker_info() else x

    with pytest.raises(TrainingError) as caught:
        trained("data set", seeded, workers=1)
    assert "Traceback" not in str(caught.value)
    assert "default_rng" in str(caught.value)
