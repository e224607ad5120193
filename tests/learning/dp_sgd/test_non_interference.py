"""Non-interference: on neighbouring tables, with the same coins, only released values differ.

Released are the weights (and what is computed from them: averages, the optimizer's state) and, if
the clip norm adapts, that. Everything else a run leaves behind must be the same for every table:
records, logs, screens, ledger entries, files, errors, the number of steps, the noise that is asked
for, the torch operations and their order.

Tables of different sizes (add or remove) draw one coin for each row they have, and hold other rows
at the same coin; so lot sizes differ, which the operator may see and nothing else shows. There the
sequence of operations and of coins is not compared.
"""

import itertools
import json
import logging
from datetime import UTC, datetime
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    BandedNoise,
    CoinNoise,
    CyclicPoissonLots,
    FixedSizeLots,
    Flat,
    PerLayer,
    PoissonLots,
    ShuffledLots,
    StreamedLots,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.clipping import CLIP_RANGE
from sfumato.ledger import Budget, Ledger

pytestmark = pytest.mark.usefixtures("singles")

ROWS, STEPS = 12, 6
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
generator = torch.Generator().manual_seed(5)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)


class Counted:
    """Seeded coins that note how many words were asked for at a time."""

    private = False

    def __init__(self, seed):
        self._inner = SeededCoins(seed)
        self.asked = []

    def words(self, count):
        self.asked.append(count)
        return self._inner.words(count)


class Noted:
    """A noise source that notes what was asked of it."""

    name, private = "noted", False

    def __init__(self, seed):
        self._inner = CoinNoise(SeededCoins(seed))
        self.asked = []

    def normal(self, like, std):
        self.asked.append((tuple(like.shape), like.dtype, std))
        return self._inner.normal(like, std)


class Operations(TorchDispatchMode):
    """The names of all torch operations, in order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def observe(data, folder, plan, capture, *, loss=None, unit_of_budget="record", **options):
    """Trains, and returns everything but what was released; and the weights."""
    capsys, caplog = capture
    caplog.clear()
    capsys.readouterr()
    folder.mkdir()
    ledger = Ledger(folder / "ledger.db", clock=lambda: NOON)
    ledger.create("people", Budget(1e5, 1e-2), neighbours=plan.neighbours, unit=unit_of_budget)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)
    coins, noise = Counted(1), Noted(2)
    operations = Operations()
    numbers = itertools.count()  # for names and tokens, which are drawn for each run
    named = mock.patch("secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
    with caplog.at_level(logging.DEBUG), operations, named:
        trainer = DPSGD(
            model, optimizer, data, plan=plan, scheduler=scheduler, ema_decay=0.9, coins=coins,
            noise=noise, ledger=ledger, dataset="people", progress=False,
            checkpoints=folder / "run", checkpoint_every=2, **options,
        )  # fmt: skip
        for x, y in trainer:
            out = F.cross_entropy(model(x), y, reduction="none")
            trainer.backward(out if loss is None else loss(out, x))
    screen = capsys.readouterr()
    seen = {
        "logs": [(r.name, r.levelno, r.getMessage()) for r in caplog.records],
        "screen": (screen.out, screen.err),
        "record": trainer.record.to_dict(),
        "repr": repr(trainer),
        "steps": trainer.steps_taken,
        "entries": [(e.kind, e.data) for e in ledger.history("people")],
        "head": ledger.head("people").hash,
        "files": files_of(folder / "run"),
        "noise": noise.asked,
        "words": coins.asked,
        "operations": operations.names,
    }
    ledger.close()
    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert weights.isfinite().all()
    return seen, weights


def files_of(folder):
    """Names and contents; of tensors, names, shapes and types."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix != ".safetensors":
            found[path.name] = path.read_bytes()
            continue
        with safe_open(path, framework="pt") as file:
            header = dict(file.metadata())
            header.pop("sha256")
            header["facts"] = json.loads(header["facts"])
            tensors = {n: file.get_slice(n) for n in file.keys()}  # noqa: SIM118
            shapes = {n: (t.get_shape(), t.get_dtype()) for n, t in tensors.items()}
        found[path.name] = (header, shapes, path.stat().st_mode)
    return found


def without(seen, *names):
    return {name: value for name, value in seen.items() if name not in names}


def plan_for(clip=None, lots=None, neighbours="add-remove", delta=1e-5, **more):
    lots = lots or PoissonLots(4, ROWS)
    return TrainingPlan(lots, clip or Flat(1.0), 2.0, STEPS, delta, neighbours=neighbours, **more)


@pytest.fixture
def capture(capsys, caplog):
    return capsys, caplog


def changed(row, value=None, label=None):
    x, y = X.clone(), Y.clone()
    if value is not None:
        x[row] = value
    if label is not None:
        y[row] = label
    return x, y


REPLACED = {
    "nan": changed(0, torch.nan),
    "one nan": changed(3, torch.tensor([0.0, torch.nan, 0.0])),
    "infinite": changed(11, -torch.inf),
    "extreme": changed(5, 3e38),
    "tiny": changed(5, 1e-42),
    "zero": changed(7, 0.0),
    "label flipped": changed(2, label=1 - int(Y[2])),
    "a copy of another": (X[[0, *range(1, 11), 0]], Y[[0, *range(1, 11), 0]]),
    "all nan": (torch.full_like(X, torch.nan), Y),
    "all infinite": (torch.full_like(X, torch.inf), Y),
}
FEWER = {name: REPLACED[name] for name in ("nan", "extreme", "label flipped", "all nan")}
KINDS = {
    "flat": plan_for(),
    "per-layer": plan_for(PerLayer(1.0)),
    "fixed size": plan_for(lots=FixedSizeLots(4, ROWS), neighbours="replace-one"),
    "shuffled": plan_for(lots=ShuffledLots(5, ROWS), neighbours="zero-out"),
    "cut": plan_for(lots=PoissonLots(4, ROWS, max_size=11), delta=1e-3),
    "rare": plan_for(lots=PoissonLots(0.3, ROWS)),  # most lots are empty
    "streamed": plan_for(
        lots=StreamedLots(5, ROWS), neighbours="zero-out", correlation=BandedNoise(5)
    ),
    "in turns": plan_for(lots=CyclicPoissonLots(2, ROWS, 3), correlation=BandedNoise(3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_row_changes_released_values_only(kind, tmp_path, capture):
    plan = KINDS[kind]
    expected, weights = observe((X, Y), tmp_path / "as it is", plan, capture)
    assert expected["steps"] == STEPS
    assert expected["logs"] == []
    assert expected["screen"] == ("", "")
    assert len(expected["noise"]) == STEPS * 4
    moved = 0
    for name, data in (REPLACED if kind == "flat" else FEWER).items():
        seen, other = observe(data, tmp_path / name, plan, capture)
        for part in expected:
            assert seen[part] == expected[part], (name, part)
        moved += not torch.equal(weights, other)
    assert moved > 0


def test_physical_batches_are_the_same_too(tmp_path, capture):
    plan = KINDS["flat"]
    expected, _ = observe((X, Y), tmp_path / "as it is", plan, capture, batch_size=2)
    for name, data in FEWER.items():
        seen, _ = observe(data, tmp_path / name, plan, capture, batch_size=2)
        assert seen == expected, name


def test_an_adapting_clip_norm_differs_and_nothing_else(tmp_path, capture):
    """The clip norm is released, and with it the noise's spread from the second step on."""
    plan = plan_for(Adaptive(1.0, count_noise=2.0))

    def parts(seen):
        stds = [std for _, _, std in seen["noise"]]
        shapes = [(shape, dtype) for shape, dtype, _ in seen["noise"]]
        clips = []
        for name, content in seen["files"].items():
            if name.endswith(".safetensors"):
                clips.append(content[0]["facts"].pop("clip"))
        return without(seen, "noise") | {"shapes": shapes}, stds, clips

    first, _ = observe((X, Y), tmp_path / "as it is", plan, capture)
    expected, stds, clips = parts(first)
    assert len(expected["shapes"]) == STEPS * 5
    differing = 0
    for name, data in FEWER.items():
        second, _ = observe(data, tmp_path / name, plan, capture)
        seen, other_stds, other_clips = parts(second)
        assert seen == expected, name
        assert other_stds[:5] == stds[:5]
        assert other_stds[4::5] == [2.0] * STEPS  # the count's own noise never moves
        differing += other_clips != clips
    assert differing > 0


SHORTER = {
    "removed": (X[1:], Y[1:]),
    "added": (torch.cat([X, X[:1]]), torch.cat([Y, Y[:1]])),
    "added nan": (torch.cat([X, X[:1] * torch.nan]), torch.cat([Y, Y[:1]])),
    "one row": (X[:1], Y[:1]),
    "empty": (X[:0], Y[:0]),
}
SIZED = ("words", "operations")


@pytest.mark.parametrize("kind", ["flat", "per-layer", "cut", "rare"])
def test_a_row_more_or_less_changes_released_values_only(kind, tmp_path, capture):
    """Also from none to many: an empty table trains, on noise alone, with the same trace."""
    plan = KINDS[kind]
    expected, _ = observe((X, Y), tmp_path / "as it is", plan, capture)
    for name, data in SHORTER.items():
        seen, _ = observe(data, tmp_path / name, plan, capture)
        for part in without(expected, *SIZED):
            assert seen[part] == expected[part], (name, part)


def test_the_sampler_asks_for_coins_by_the_number_of_rows_alone(tmp_path, capture):
    """Four rows share a word; an undecided one takes one more, and each drawn one a place's."""
    plan = KINDS["flat"]
    for name, data in ({"as it is": (X, Y)} | SHORTER).items():
        seen, _ = observe(data, tmp_path / name, plan, capture)
        sampled, undecided, drawn = (seen["words"][i::3] for i in range(3))
        assert (sampled, undecided) == ([-(-len(data[0]) // 4)] * STEPS, [0] * STEPS), name
        lots = plan.lots.sampler(len(data[0]), SeededCoins(1))
        assert drawn == [len(next(lots)) for _ in range(STEPS)], name


class Rows(Dataset):
    """A data set, some of whose rows cannot be read."""

    def __init__(self, x, y, broken=()):
        self.x, self.y, self.broken = x, y, set(broken)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        if index in self.broken:
            raise OSError(f"row {index} is on a bad sector")
        return self.x[index], self.y[index]


def test_a_row_that_cannot_be_read_leaves_no_trace(tmp_path, capture):
    example = [(torch.zeros(3), torch.tensor(0)), (torch.ones(3), torch.tensor(1))]
    plan = KINDS["flat"]
    options = {"example": example}
    expected, _ = observe(Rows(X, Y), tmp_path / "as it is", plan, capture, **options)
    tables = {
        "unreadable": Rows(X, Y, [4]),
        "wrong shape": Rows([*X[:4], torch.zeros(7), *X[5:]], Y),
        "all unreadable": Rows(X, Y, range(ROWS)),
        "nan": Rows(*changed(4, torch.nan)),
    }
    for name, data in tables.items():
        seen, _ = observe(data, tmp_path / name, plan, capture, **options)
        assert without(seen, "operations") == without(expected, "operations"), name


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_loss_that_is_not_finite_leaves_no_trace(bad, tmp_path, capture):
    """Whatever the user's loss makes of a row: NaN, infinities."""
    plan = KINDS["flat"]

    def spoiled(losses, x):
        return losses * torch.where(x[:, 0] > 100, bad, 1.0)

    expected, _ = observe((X, Y), tmp_path / "as it is", plan, capture, loss=spoiled)
    seen, _ = observe(changed(4, 1e3), tmp_path / "bad", plan, capture, loss=spoiled)
    assert seen == expected


def test_the_bad_rows_themselves_contribute_nothing(tmp_path, capture):
    """A table whose every row is NaN trains as the empty table does: on the same noise alone."""
    plan = KINDS["flat"]
    _, bad = observe(REPLACED["all nan"], tmp_path / "nan", plan, capture)
    _, empty = observe(SHORTER["empty"], tmp_path / "empty", plan, capture)
    assert torch.equal(bad, empty)


def test_owners_change_released_values_only(tmp_path, capture):
    """Whose a row is is private too. How many rows an owner has shows in coins, and only there."""
    plan = TrainingPlan(PoissonLots(2, 4), Flat(1.0), 2.0, STEPS, 1e-5, unit="owner")
    ids = np.arange(ROWS) % 4
    options = {"rows_per_owner": 2, "unit_of_budget": "owner"}
    expected, _ = observe((X, Y), tmp_path / "as it is", plan, capture, owners=ids, **options)
    tables = {
        "another's": np.where(np.arange(ROWS) == 5, 2, ids),
        "a new one's": np.where(np.arange(ROWS) == 5, 99, ids),
        "nobody's": np.where(np.arange(ROWS) == 5, np.nan, ids),
        "all of one": np.zeros(ROWS),
        "all nobody's": np.full(ROWS, np.nan),
    }
    for name, owners in tables.items():
        seen, _ = observe((X, Y), tmp_path / name, plan, capture, owners=owners, **options)
        for part in without(expected, *SIZED):
            assert seen[part] == expected[part], (name, part)


@pytest.mark.parametrize("value", [torch.nan, 0.0, 1e30])
def test_an_adapting_clip_norm_ends_well_on_every_table(value):
    """Norms all too large, all zero, or no number: the clip norm stays in its declared range."""
    model = nn.Linear(3, 2)
    plan = TrainingPlan(PoissonLots(4, ROWS), Adaptive(1.0, learning_rate=5.0), 0.3, 300, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1e-9), (torch.full_like(X, value), Y),
        plan=plan, coins=SeededCoins(3), progress=False,
    )  # fmt: skip
    trainer.fit(lambda model, x, y: model(x)[:, 0] * x[:, 0])
    assert all(p.isfinite().all() for p in model.parameters())
    assert 1 / CLIP_RANGE <= trainer._step.sum.bounds[0] <= CLIP_RANGE
