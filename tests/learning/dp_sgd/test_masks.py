"""What a model draws for its rows: secret, fresh in every batch, each row's own."""

# ruff: noqa: NPY002
import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD

pytestmark = pytest.mark.usefixtures("singles")

ROWS, WIDTH = 40, 64
X = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (ROWS,), generator=torch.Generator().manual_seed(2))


class NoNoise:
    """Shows sums as they are."""

    name, private = "none", False

    def normal(self, like, std):
        return torch.zeros_like(like)


class Masks(nn.Module):
    """Rows times a weight, behind dropout; keeps what it saw in training."""

    def __init__(self, draw=None):
        super().__init__()
        self.weight, self.seen = nn.Linear(WIDTH, 3), []
        self.draw = draw or F.dropout

    def forward(self, x):
        dropped = self.draw(x)
        self.seen.append(tuple(map(tuple, (dropped.detach() == 0).tolist())))
        return self.weight(dropped)


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def public_seed():
    """What any script, or library, may do first."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def trainer_of(model, data=(X, Y), *, steps=2, lot=ROWS, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DPSGD(
        model, optimizer, data, public_size=ROWS, lot_size=lot, steps=steps, noise_multiplier=1.0,
        delta=1e-5, noise=NoNoise(), progress=False, **options,
    )  # fmt: skip


def released(make, **options):
    public_seed()
    model = make()
    own = options.pop("fit", {})
    trainer_of(model, **options).fit(losses, **own)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def dropping():
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))


class Checkpointed(nn.Module):
    """The same, the first half of it computed again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.parts = dropping()

    def forward(self, x):
        return self.parts[3](checkpoint(self.parts[:3], x, use_reentrant=False))


class Uniform(nn.Module):
    """Dropout by hand, by which a compiler may draw as it likes."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 32), nn.Linear(32, 3)

    def forward(self, x):
        h = self.first(x)
        return self.last(h * (torch.rand_like(h) < 0.5))


def noisy(x):
    return x + torch.randn_like(x)


def numeric(x):
    return x + torch.from_numpy(np.random.standard_normal(x.shape).astype(np.float32))


def plain(x):
    return x + torch.tensor([[random.gauss(0, 1) for _ in row] for row in x])


class Changed(Dataset):
    """Rows that are changed at random when they are read."""

    def __init__(self, change):
        self.change = change

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return self.change(X[row : row + 1])[0], Y[row]


def mixed_up(items):
    x, y = torch.utils.data.default_collate(items)
    return x * (torch.rand_like(x) < 0.5), y


EXAMPLE = [(torch.ones(WIDTH) * i, torch.tensor(i)) for i in range(3)]
CASES = {
    "dropout": (dropping, {}),
    "in several batches": (dropping, {"batch_size": 7}),
    "compiled": (dropping, {"fit": {"compile": True}}),
    "checkpointed": (Checkpointed, {}),
    "augment by torch": (lambda: nn.Linear(WIDTH, 3), {"augment": noisy}),
    "augment by NumPy": (lambda: nn.Linear(WIDTH, 3), {"augment": numeric}),
    "augment by Python": (lambda: nn.Linear(WIDTH, 3), {"augment": plain, "augmentations": 2}),
    "collate": (lambda: nn.Linear(WIDTH, 3), {"data": Changed(lambda x: x), "collate": mixed_up}),
    "rows by torch": (lambda: nn.Linear(WIDTH, 3), {"data": Changed(noisy)}),
    "rows by NumPy": (lambda: nn.Linear(WIDTH, 3), {"data": Changed(numeric)}),
    "rows by Python": (lambda: nn.Linear(WIDTH, 3), {"data": Changed(plain), "example": EXAMPLE}),
    "workers": (lambda: nn.Linear(WIDTH, 3), {"data": Changed(plain), "workers": 1}),
}


def as_traced(graph, **options):
    """In place of ``torch.compile``, which takes long."""
    return graph


@pytest.mark.parametrize("case", CASES)
def test_a_public_seed_does_not_tell_what_is_drawn(case, monkeypatch):
    monkeypatch.setattr(torch, "compile", as_traced)
    make, options = CASES[case]
    one, two = (released(make, **copy.copy(options)) for _ in range(2))
    assert not torch.equal(one, two)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_nor_does_it_in_a_step_that_torch_compiles(monkeypatch, tmp_path):
    """Which draws as torch does: on the CPU its compiler would draw by keys of 32 bits."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    one, two = (released(Uniform, fit={"compile": True}) for _ in range(2))
    assert not torch.equal(one, two)
    compiled = released(Uniform, fit={"compile": True}, coins=SeededCoins(3))
    monkeypatch.setattr(torch, "compile", as_traced)
    traced = released(Uniform, fit={"compile": True}, coins=SeededCoins(3))
    assert torch.allclose(compiled, traced, atol=1e-6)
    assert not torch.allclose(one, traced, atol=1e-3)


@pytest.mark.parametrize("case", ["dropout", "checkpointed", "augment by Python", "workers"])
def test_test_coins_tell_all_of_it(case):
    make, options = CASES[case]
    found = [released(make, coins=SeededCoins(seed), **options) for seed in (3, 3, 4)]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_checkpointed_part_draws_the_same_twice():
    one, two = (released(make, coins=SeededCoins(3)) for make in (dropping, Checkpointed))
    assert torch.allclose(one, two)


@pytest.mark.parametrize("batch_size", [None, 10])
def test_no_batch_has_another_ones_masks(batch_size):
    model = Masks()
    trainer = trainer_of(model, steps=3, batch_size=batch_size)

    def of_private_rows(model, x, y):
        found = losses(model, x, y)
        if trainer.rehearsing:
            model.seen.clear()
        return found

    trainer.fit(of_private_rows)
    drawn = [mask for batch in model.seen for mask in batch if any(mask)]
    assert len(drawn) == 3 * ROWS
    assert len(set(drawn)) == len(drawn)


def states():
    numeric = np.random.get_state()
    return torch.get_rng_state().tolist(), numeric[1].tolist(), numeric[2:], random.getstate()


def test_the_users_generators_are_left_alone():
    public_seed()
    model, before = dropping(), None
    trainer = trainer_of(model, augment=plain)
    before, during = states(), []
    trainer.fit(losses, after=lambda _: during.append(states() == before))
    assert during == [True, True]
    assert states() == before


def test_they_are_back_after_each_backward_of_a_loop_of_ones_own():
    model = dropping()
    trainer, before = trainer_of(model), states()
    for x, y in trainer:
        assert states() != before
        trainer.backward(losses(model, x, y))
        assert states() == before
    assert states() == before


@pytest.mark.parametrize("end", ["break", "raise", "close"])
def test_they_are_back_when_a_loop_ends_early(end):
    model = dropping()
    trainer, before = trainer_of(model), states()
    batches = iter(trainer)
    with pytest.raises(KeyError) if end == "raise" else pytest.MonkeyPatch.context():
        for x, y in batches:
            if not trainer.rehearsing:
                if end == "break":
                    break
                if end == "raise":
                    raise KeyError
                batches.close()
                break
            trainer.backward(losses(model, x, y))
    del batches
    assert states() == before


def test_the_record_says_where_masks_come_from():
    trainer = trainer_of(dropping())
    assert "operating system" in trainer.record.facts["coins_of_the_model"]
    trainer = trainer_of(dropping(), coins=SeededCoins(1))
    assert trainer.record.facts["coins_of_the_model"] == "test coins"
    assert trainer.record.private is False
