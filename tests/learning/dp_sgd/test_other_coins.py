"""Seeds inside a loop, and generators of one's own: refused before anything is charged."""

# ruff: noqa: NPY002
import contextlib
import functools
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, TrainingError
from sfumato.learning.dp_sgd.lot_sums import LotSums
from sfumato.ledger import Budget, Ledger

pytestmark = pytest.mark.usefixtures("singles")

ROWS, WIDTH = 40, 6
X = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
Y = torch.randint(0, 3, (ROWS,), generator=torch.Generator().manual_seed(2))
SEEDED, OTHERS = r"while a batch was out|was seeded", r"coins|seed"
EXAMPLE = [(torch.ones(WIDTH) * i, torch.tensor(i)) for i in range(3)]


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger.db")
    made.create("people", Budget(1e5, 1e-2))
    return made


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def trainer_of(ledger, model, data=(X, Y), **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = {"public_size": ROWS, "lot_size": 20, "steps": 2, "noise_multiplier": 5.0}
    given |= {"ledger": ledger, "dataset": "people"}
    return DPSGD(model, optimizer, data, delta=1e-5, progress=False, **(given | options))


def refused(ledger, message, model=None, loss=losses, **options):
    trainer = trainer_of(ledger, model or net(), **options)
    before = len(ledger.history("people"))
    with pytest.raises(TrainingError, match=message):
        trainer.fit(loss)
    assert len(ledger.history("people")) == before


def accepted(ledger, model=None, loss=losses, **options):
    trainer = trainer_of(ledger, model or net(), **options).fit(loss)
    assert trainer.steps_taken == 2


class Drawing(nn.Module):
    """Does something of its own to its hidden layer."""

    def __init__(self, draw):
        super().__init__()
        self.first, self.last, self.draw = nn.Linear(WIDTH, 8), nn.Linear(8, 3), draw

    def forward(self, x):
        return self.last(self.draw(self.first(x)))


def net():
    return Drawing(lambda h: F.dropout(h, 0.5))


def masked(h, **options):
    return h * (torch.rand(h.shape, **options) < 0.5)


@contextlib.contextmanager
def numpy_seed(seed):
    """A common idiom."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


# --- seeds ----------------------------------------------------------------------------------------

BEFORE = torch.get_rng_state()
SEEDS = {
    "torch": lambda: torch.manual_seed(0),
    "torch.random": lambda: torch.random.manual_seed(0),
    "torch's state": lambda: torch.random.set_rng_state(BEFORE),
    "torch's generator": lambda: torch.default_generator.manual_seed(0),
    "torch.seed": torch.seed,
    "CUDA": lambda: torch.cuda.manual_seed(0),
    "all GPUs": lambda: torch.cuda.manual_seed_all(0),
    "NumPy": lambda: np.random.seed(0),
    "NumPy's state": lambda: np.random.set_state(np.random.RandomState(1).get_state()),
    "Python": lambda: random.seed("a"),
    "Python's state": lambda: random.setstate(random.Random(1).getstate()),
}


def everything():
    transformers = pytest.importorskip("transformers")
    transformers.set_seed(42)


SEEDS["transformers"] = everything


@pytest.mark.parametrize("where", ["loss", "model"])
@pytest.mark.parametrize("how", SEEDS)
def test_a_seed_in_the_loss_or_the_model(ledger, how, where):
    def seeding(model, x, y):
        SEEDS[how]()
        return losses(model, x, y)

    def forward(h):
        SEEDS[how]()
        return F.dropout(h, 0.5)

    if where == "loss":
        refused(ledger, SEEDED, loss=seeding)
    else:
        refused(ledger, SEEDED, Drawing(forward))


@pytest.mark.parametrize("how", SEEDS)
def test_a_seed_in_a_loop_of_ones_own(ledger, how):
    model = net()
    trainer = trainer_of(ledger, model)

    def loop():
        for x, y in trainer:
            SEEDS[how]()
            trainer.backward(losses(model, x, y))

    with pytest.raises(TrainingError, match=SEEDED):
        loop()
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_a_seed_that_is_taken_back(ledger):
    def forked(h):
        with torch.random.fork_rng():
            torch.default_generator.manual_seed(0)
            return F.dropout(h, 0.5)

    refused(ledger, "after torch's generator on the CPU was seeded", Drawing(forked))

    def noisy(model, x, y):
        with numpy_seed(3):
            x = x + torch.from_numpy(np.random.standard_normal(x.shape).astype(np.float32))
        return losses(model, x, y)

    refused(ledger, "numpy.random.seed", loss=noisy)

    def swallowed(model, x, y):
        with contextlib.suppress(Exception):
            np.random.seed(0)
        return losses(model, x, y)

    refused(ledger, "numpy.random.seed", loss=swallowed)


def test_a_seed_after_the_first_steps(ledger):
    model = net()
    trainer = trainer_of(ledger, model, steps=3)

    def loop():
        for x, y in trainer:
            if trainer.steps_taken == 2:
                torch.manual_seed(0)
            trainer.backward(losses(model, x, y))

    with pytest.raises(TrainingError, match="torch's generator on the CPU was seeded"):
        loop()
    assert trainer.steps_taken == 2


def test_seeds_where_they_do_no_harm(ledger):
    torch.manual_seed(0)
    model = net()
    trainer = trainer_of(ledger, model)
    for x, y in trainer:
        trainer.backward(losses(model, x, y))
        torch.manual_seed(0)
        np.random.seed(0)
    accepted(ledger)


def test_what_draws_from_the_coins_is_accepted(ledger):
    def checkpointed(h):
        return checkpoint(lambda g: F.dropout(g, 0.5), h, use_reentrant=False)

    def forked(h):
        with torch.random.fork_rng():
            torch.rand(3, len(h))
        return F.dropout(h, 0.5)

    public = DataLoader([torch.zeros(2)] * 4, batch_size=2, shuffle=True)

    def beside(model, x, y):
        for batch in public:  # seeds a generator for the order of its own
            assert len(batch) == 2
        return losses(model, x, y)

    for model in map(Drawing, (checkpointed, forked, masked)):
        accepted(ledger, model)
    accepted(ledger, loss=beside)
    for draw in (
        lambda x: x + torch.randn_like(x),
        lambda x: x * torch.tensor([[random.random() < 0.5] for _ in x]),
        lambda x: x + torch.from_numpy(np.random.standard_normal(x.shape).astype(np.float32)),
    ):
        accepted(ledger, augment=draw, batch_size=7)


# --- generators of one's own ----------------------------------------------------------------------


def own_torch():
    return torch.Generator().manual_seed(0)


def test_a_model_that_draws_from_its_own(ledger):
    made = own_torch()
    for draw in (
        functools.partial(masked, generator=made),
        lambda h: masked(h, generator=made),
        lambda h: masked(h, generator=own_torch()),
        lambda h: h.bernoulli_(0.5, generator=torch.Generator().manual_seed(len(h))),
        lambda h: h * torch.tensor(np.random.default_rng(0).random(h.shape) < 0.5),
        lambda h: h * torch.tensor(np.random.RandomState(0).random(h.shape) < 0.5),
        lambda h: h * torch.tensor(np.random.Generator(np.random.PCG64(1)).random(h.shape) < 0.5),
        lambda h: h * random.Random(0).random(),
    ):
        refused(ledger, "generator of its own", Drawing(draw))


class Holder:
    """An object with slots."""

    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside


GLOBAL = np.random.default_rng(5)


def by_a_global(x):
    return helper(x)


def helper(x):
    return x + float(GLOBAL.normal())


def by_default(x, made=np.random.RandomState(1)):  # noqa: B008
    return x


class Transform:
    own = random.Random(3)

    def __call__(self, x):
        return x * self.own.random()


HELD = {
    "itself": lambda: own_torch(),
    "in a list": lambda: [1, {"deep": (own_torch(),)}],
    "in an object": lambda: Holder(np.random.default_rng()),
    "in a partial": lambda: functools.partial(masked, generator=own_torch()),
    "in a closure": lambda: (lambda made: lambda x: x + made.random())(random.Random(1)),
    "in a default": lambda: by_default,
    "in a method": lambda: Holder(random.Random(1)).inside.random,
    "in its class": lambda: Transform(),
    "in a global": lambda: by_a_global,
    "a bit generator": lambda: np.random.Philox(4),
}


@pytest.mark.parametrize("how", HELD)
def test_a_generator_that_is_held(ledger, how):
    model = net()
    model.held = HELD[how]()
    refused(ledger, "model holds a generator of its own", model)
    data = Changed()
    data.held = HELD[how]()
    refused(ledger, "data holds a generator of its own", data=data, example=EXAMPLE)
    held = HELD[how]()

    def augment(x):
        return None if held is None else x

    refused(ledger, "augment holds a generator of its own", augment=augment)

    def loss(model, x, y):
        return losses(model, x, y) if held is not None else None

    refused(ledger, "loss holds a generator of its own", loss=loss)

    def collate(items):
        return torch.utils.data.default_collate(items) if held is not None else None

    refused(ledger, "collate holds a generator of its own", data=Changed(), collate=collate)


def test_what_is_no_generator_of_ones_own(ledger):
    model = net()
    model.held = [
        torch.default_generator,
        np.random.mtrand._rand,
        random.SystemRandom(),
        SeededCoins(1),
    ]
    model.itself = [model.held, np.random, random, torch]
    accepted(ledger, model)
    by_libraries = DataLoader([torch.zeros(2)] * 4, batch_size=2)
    accepted(ledger, loss=lambda m, x, y: losses(m, x, y) + 0 * len(by_libraries))


# --- data sets, collates and augments -------------------------------------------------------------


class Changed(Dataset):
    """Rows, and what is done to each when it is read."""

    def __init__(self, change=None):
        self.change = change

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        x = X[row] if self.change is None else self.change(X[row])
        return x, Y[row]


def np_seeded(x):
    np.random.seed(0)
    return x + float(np.random.standard_normal())


def python_seeded(x):
    random.seed(len(x))
    return x + random.random()


def torch_seeded(x):
    with torch.random.fork_rng(devices=[]):  # a worker may not ask for GPUs
        torch.manual_seed(0)
        return x + torch.randn_like(x)


def own(x):
    return x + torch.randn(x.shape, generator=own_torch())


def by_row(x):
    return x + np.random.default_rng(int(x[0] > 0)).random()


CHANGES = [np_seeded, python_seeded, torch_seeded, own, by_row]


@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_are_changed_by_other_coins(ledger, change):
    refused(ledger, OTHERS, data=Changed(change))
    if change is by_row:
        return
    refused(ledger, OTHERS, augment=change)

    def collate(items):
        x, y = torch.utils.data.default_collate(items)
        return change(x), y

    refused(ledger, OTHERS, data=Changed(), collate=collate)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("change", [np_seeded, torch_seeded])
def test_rows_that_no_rehearsal_reads_are_watched_when_they_are_read(ledger, change, workers):
    """With an example no private row is read before the charge: then nothing is released."""
    model = net()
    before = [p.clone() for p in model.parameters()]
    trainer = trainer_of(ledger, model, Changed(change), example=EXAMPLE, workers=workers)
    with pytest.raises(TrainingError, match=SEEDED):
        trainer.fit(losses)
    assert all(map(torch.equal, before, model.parameters()))


def late(seeded, calls_before):
    """Not in the rehearsal, and not in the first batches."""
    calls = []

    def change(x):
        calls.append(0)
        return seeded(x) if len(calls) > calls_before else x

    return change


def restored(x):
    np.random.set_state(np.random.RandomState(3).get_state())
    return x + torch.from_numpy(np.random.standard_normal(x.shape))


@pytest.mark.parametrize("change", [np_seeded, python_seeded, torch_seeded, restored])
def test_seeds_that_come_late_stop_the_run(ledger, change):
    data = Changed(late(change, 50))
    for options in ({"data": data, "example": EXAMPLE}, {"augment": late(change, 400)}):
        trainer = trainer_of(ledger, net(), steps=300, **options)
        with pytest.raises(TrainingError, match=SEEDED):
            trainer.fit(losses)
        assert trainer.steps_taken > 0


def test_an_augment_with_coins_that_nobody_can_repeat(ledger):
    secrets = random.SystemRandom()
    refused(
        ledger, "augment draws from a generator of its own", augment=lambda x: x * secrets.random()
    )


# --- one draw for many rows -----------------------------------------------------------------------


def flipped(x):
    return -x if torch.rand(()) < 0.5 else x


def flipped_by_python(x):
    return -x if random.random() < 0.5 else x


def flipped_by_numpy(x):
    return -x if np.random.random() < 0.5 else x


@pytest.mark.parametrize("flip", [flipped, flipped_by_python, flipped_by_numpy])
def test_what_is_drawn_once_for_a_batch(ledger, flip):
    """One row more would move others to the next batch, where another coin was tossed."""

    def collate(items):
        x, y = torch.utils.data.default_collate(items)
        return flip(x), y

    for options in ({"augment": flip}, {"data": Changed(), "collate": collate}):
        refused(ledger, "draws once for a whole batch", batch_size=10, **options)
        accepted(ledger, **options)  # a lot is one batch
        kept = sf.FixedSizeLots(20, ROWS)  # where no row moves another
        accepted(None, lots=kept, public_size=None, lot_size=None, neighbours="zero-out",
                 batch_size=10, dataset="", **options)  # fmt: skip


LESS = {
    "public_size": None,
    "lot_size": None,
    "neighbours": "zero-out",
    "ledger": None,
    "dataset": "",
}


def test_a_model_that_draws_once_for_a_batch(ledger):
    def dropped(h):  # a layer, for all rows
        return h * (torch.rand(1) < 0.8)

    def weights(h):
        return F.linear(h, F.dropout(h.new_ones(8, 8), 0.5))

    for draw in (dropped, weights):
        refused(ledger, "the model draws once", Drawing(draw), batch_size=10)
        accepted(ledger, Drawing(draw))
        with pytest.raises(TrainingError, match="the model draws once"):
            LotSums(Drawing(draw), losses, (X, Y))


def test_what_is_dealt_out_among_rows(ledger):
    def half(x):  # of the rows, exactly
        chosen = torch.randperm(len(x)) < len(x) // 2
        return torch.where(chosen[:, None], x, -x)

    refused(ledger, "deals something out", augment=half)
    refused(ledger, "deals something out", Drawing(half))


def test_watching_leaves_everything_in_its_place(ledger):
    names = [
        (torch, "manual_seed"), (torch, "Generator"), (np.random, "seed"), (random, "seed"),
        (np.random, "default_rng"), (np.random, "RandomState"), (random.Random, "seed"),
    ]  # fmt: skip
    before = [vars(holder)[name] for holder, name in names]
    seen = []

    def loss(model, x, y):
        seen.append(isinstance(np.random.mtrand._rand, np.random.RandomState))
        seen.append(issubclass(torch.Generator, torch.Generator))
        return losses(model, x, y)

    accepted(ledger, loss=loss)
    refused(ledger, "seed", augment=np_seeded)
    assert all(seen)
    assert [vars(holder)[name] for holder, name in names] == before


class Turned(Changed):
    """Draws more often for some rows than for others."""

    def __getitem__(self, row):
        x = X[row]
        while torch.rand(()) > 0.5 + 0.4 * bool(x[0] > 0):
            x = x + np.random.standard_normal() + random.random()
        return x.float(), Y[row]


def test_reading_the_first_rows_draws_nothing_from_the_users_generators(ledger):
    """How much is drawn for a row is the row's secret, and a later draw would tell it."""

    def states():
        return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())

    model = net()
    before = states()
    trainer_of(ledger, model, Turned()).fit(losses)
    assert states() == before
