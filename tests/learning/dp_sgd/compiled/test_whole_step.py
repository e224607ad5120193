"""The compiled step is the eager one: same sums, same norms, same counts, padding or not."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import (
    DPSGD,
    Adaptive,
    Automatic,
    Flat,
    PerLayer,
    PoissonLots,
    ShuffledLots,
    TrainingError,
    TrainingPlan,
)
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.physical import room_for
from sfumato.ledger import Budget, Ledger

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 50


class NoNoise:
    """So that clipped sums can be compared through the weights."""

    name, private = "none", False

    def normal(self, like, std):
        return torch.zeros_like(like)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.place = nn.Parameter(torch.randn(5, 8) * 0.1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        h = self.embed(tokens) + self.place
        h = h + self.attention(h, h, h, need_weights=False)[0]
        return self.head(self.norm(h).mean(1))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def mlp():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


generator = torch.Generator().manual_seed(8)
LABELS = torch.randint(0, 3, (ROWS,), generator=generator)
VECTORS = torch.randn(ROWS, 4, generator=generator) * 3
IMAGES = torch.randn(ROWS, 1, 8, 8, generator=generator)
TOKENS = torch.randint(0, 11, (ROWS, 5), generator=generator)
MODELS = {"mlp": (mlp, VECTORS), "cnn": (cnn, IMAGES), "transformer": (Transformer, TOKENS)}
CLIPS = {
    "flat": Flat(0.3),
    "per-layer": PerLayer(0.3),
    "automatic": Automatic(0.3),
    "adaptive": Adaptive(0.3, count_noise=2.0, learning_rate=1.0),
}


def loss(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def trained(make, data, clip, backend=None, *, steps=4, kind=torch.float32, **options):
    """A run without noise; compiled if there is a backend."""
    torch.manual_seed(1)
    model = make().to(kind)
    unit = "person" if "owners" in options else "record"
    plan = TrainingPlan(PoissonLots(12, ROWS), clip, 2.0, steps, 1e-5, unit=unit)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), data, plan=plan, noise=NoNoise(),
        coins=SeededCoins(4), progress=False, **options,
    )  # fmt: skip
    if backend is not None:
        step = trainer._step
        step.compiled = CompiledSum(model, loss, trainer._recorder.tape, step.sum, backend)
    facts = []
    report = trainer._step.report

    def noted(progress, step):
        held = trainer._step._facts
        facts.append((held.units, float(held.loss), float(held.clipped)))
        report(progress, step)

    trainer._step.report = noted
    trainer.fit(loss)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return weights, trainer._step.sum.clipping, facts


def assert_same(one, two, tolerance=1e-6):
    for name, weight in one[0].items():
        assert torch.allclose(weight, two[0][name], rtol=tolerance, atol=tolerance), name
    if isinstance(one[1], Adaptive):
        assert one[1].clip == pytest.approx(two[1].clip, rel=1e-9)
    assert [f[0] for f in one[2]] == [f[0] for f in two[2]]
    assert [f[2] for f in one[2]] == [f[2] for f in two[2]]
    assert [f[1] for f in one[2]] == pytest.approx([f[1] for f in two[2]], rel=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_a_traced_step_is_the_eager_step(kind):
    make, x = MODELS[kind]
    data = (x, LABELS)
    eager = trained(make, data, CLIPS["flat"])
    start = trained(make, data, CLIPS["flat"], steps=1)
    assert any(not torch.equal(eager[0][n], start[0][n]) for n in eager[0])
    assert_same(eager, trained(make, data, CLIPS["flat"], "eager"))


@pytest.mark.parametrize("clip", CLIPS)
def test_every_kind_of_clipping_is_the_same(clip):
    data = (VECTORS, LABELS)
    eager = trained(mlp, data, CLIPS[clip], steps=6)
    assert_same(eager, trained(mlp, data, CLIPS[clip], "eager", steps=6))


@pytest.mark.parametrize("clip", ["flat", "adaptive"])
def test_in_float64_to_its_last_digits(clip):
    """The clip norm itself must not pass through a shorter type."""
    data = (VECTORS.double(), LABELS)
    eager = trained(mlp, data, CLIPS[clip], kind=torch.float64)
    assert_same(eager, trained(mlp, data, CLIPS[clip], "eager", kind=torch.float64), 1e-12)


@pytest.mark.parametrize("bad", ["first", "all"])
@pytest.mark.slow
def test_padding_contributes_nothing_even_where_it_copies_a_bad_row(bad):
    """Padding repeats a batch's first row: it must not count, be it NaN or not."""
    x = VECTORS.clone()
    x[: ROWS if bad == "all" else 25] = torch.nan  # whichever row comes first
    eager = trained(mlp, (x, LABELS), CLIPS["flat"])
    assert all(w.isfinite().all() for w in eager[0].values())
    assert_same(eager, trained(mlp, (x, LABELS), CLIPS["flat"], "eager"))
    adaptive = trained(mlp, (x, LABELS), CLIPS["adaptive"])
    assert_same(adaptive, trained(mlp, (x, LABELS), CLIPS["adaptive"], "eager"))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 5},
        {"loss_scale": 1024.0},
        {"owners": np.arange(ROWS) // 2, "rows_per_owner": 3},
        {"augment": lambda x: x * 1.5, "augmentations": 3},
    ],
    ids=["parts", "loss scale", "owners", "augmented"],
)
def test_every_shape_of_a_lot_is_the_same(options):
    data = (VECTORS, LABELS)
    eager = trained(mlp, data, CLIPS["flat"], **options)
    assert_same(eager, trained(mlp, data, CLIPS["flat"], "eager", **options), 2e-6)


def test_few_graphs_are_traced():
    """Lots of many sizes share one, filled up."""
    torch.manual_seed(1)
    model = mlp()
    plan = TrainingPlan(PoissonLots(12, ROWS), CLIPS["flat"], 2.0, 12, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), (VECTORS, LABELS), plan=plan,
        coins=SeededCoins(4), progress=False,
    )  # fmt: skip
    step = trainer._step
    room = room_for(plan.lots, 1, None)
    tape = trainer._recorder.tape
    step.compiled = CompiledSum(model, loss, tape, step.sum, "eager", room=room)
    trainer.fit(loss)
    assert len(step.compiled._graphs) == 1


def test_the_room_is_public_and_enough():
    lots = PoissonLots(400, 10_000)
    assert room_for(lots, 1, None) == 460
    assert room_for(lots, 2, 256) == 128
    assert room_for(PoissonLots(400, 10_000, max_size=430), 1, None) == 430
    assert room_for(ShuffledLots(100, 1000), 1, None) == 100


def test_a_batch_of_other_things_than_tensors_is_refused_before_anything_is_spent():
    """Their values would be built into the graph."""
    model = mlp()
    step = TrainingPlan(PoissonLots(12, ROWS), CLIPS["flat"], 2.0, 2, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), (VECTORS, LABELS), plan=step,
        progress=False,
    )  # fmt: skip
    tape = trainer._recorder.tape
    compiled = CompiledSum(model, loss, tape, trainer._step.sum, "eager")
    with pytest.raises(TrainingError, match=r"tensors and plain values, got a ndarray.*tensor"):
        compiled.check(lambda rows: (VECTORS[:rows], np.zeros(rows)), 1, 1.0)


# --- what cannot be traced ------------------------------------------------------------------------


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        h = self.inner(x)
        return h * 2 if bool(h.detach().sum() > 1e9) else h


class Reading(Branching):
    def forward(self, x):
        return self.inner(x) * float(len(x.abs().max().item().hex()) > 0)


class Choosing(Branching):
    def forward(self, x):
        h = self.inner(x)
        kept = torch.nonzero(x[:, 0].detach().isfinite()).flatten()
        return h + 0 * len(kept)


@pytest.mark.parametrize("make", [Branching, Reading, Choosing])
def test_a_course_that_depends_on_values_is_refused(make):
    with pytest.raises(TrainingError, match=r"cannot be compiled.*compile=False"):
        trained(make, (VECTORS, LABELS), CLIPS["flat"], "eager")
    trained(make, (VECTORS, LABELS), CLIPS["flat"])  # as it is, it can be trained


def test_the_refusal_can_be_had_on_made_up_rows():
    torch.manual_seed(1)
    for make, refused in ((mlp, False), (Branching, True)):
        model = make()
        plan = TrainingPlan(PoissonLots(12, ROWS), CLIPS["flat"], 2.0, 3, 1e-5)
        trainer = DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=1.0), (VECTORS, LABELS), plan=plan,
            coins=SeededCoins(4), progress=False,
        )  # fmt: skip
        for x, y in trainer:
            if not trainer.rehearsing:
                break
            trainer.backward(loss(model, x, y))
        step = trainer._step
        traced = CompiledSum(model, loss, trainer._recorder.tape, step.sum, "eager")
        before = {name: s.clone() for name, s in step.sum.sums.items()}
        if refused:
            with pytest.raises(TrainingError, match="cannot be compiled"):
                traced.check(trainer._source.imitation, 1, 1.0)
        else:
            traced.check(trainer._source.imitation, 1, 1.0)
        assert all(torch.equal(s, step.sum.sums[name]) for name, s in before.items())


def test_a_model_that_cannot_be_compiled_spends_nothing(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db")
    ledger.create("people", Budget(50.0, 1e-3))
    model = Branching()
    plan = TrainingPlan(PoissonLots(12, ROWS), CLIPS["flat"], 2.0, 3, 1e-5)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1.0), (VECTORS, LABELS), plan=plan,
        coins=SeededCoins(4), ledger=ledger, dataset="people", progress=False,
    )  # fmt: skip
    with pytest.raises(TrainingError, match=r"cannot be compiled.*compile=False"):
        trainer.fit(loss, compile=True)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]
    ledger.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # about torch's own compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("kind", MODELS)
def test_inductor_gives_the_same(kind):
    make, x = MODELS[kind]
    data = (x, LABELS)
    compiled = trained(make, data, CLIPS["flat"], "inductor", steps=2)
    assert_same(trained(make, data, CLIPS["flat"], steps=2), compiled, 1e-5)
