"""Norms in float32 must not come out short: not for long rows, not in anyone's mixed precision."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd import Adaptive, Automatic, Flat, PerLayer
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum, group_norms
from sfumato.learning.dp_sgd.clipping import ROUNDING, SMALLEST
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer, Stacked, gram_norms, row_norms
from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE

pytestmark = pytest.mark.usefixtures("singles")
ETA = ROUNDING["float32"] + ALLOWANCE["float32"]


def rows(kind, width):
    """One row whose squares a running sum in float32 would lose."""
    if kind.startswith("large first"):
        row = torch.full((width,), 2.0 ** (-int(kind[-2:]) / 2))
        row[:8] = 1.0
        return row
    generator = torch.Generator().manual_seed(1)
    skewed = torch.randn(width, generator=generator) * torch.rand(width, generator=generator) ** 8
    return skewed.abs().sort(descending=True).values if kind == "sorted" else skewed


KINDS = ["large first, then 2^-25", "large first, then 2^-26", "skewed", "sorted"]
WIDTHS = [1_000, 1_025, 100_000, 1_000_000]


def contribution(norm, gradient):
    """How long the clipped gradient is, over the clip norm."""
    clipping = Flat(float(gradient.double().norm()) / 3)
    (factor,) = clipping.scales(norm.reshape(1, 1), (clipping.clip,), ETA).flatten().tolist()
    return factor * float(gradient.double().norm()) / clipping.clip


@pytest.mark.parametrize("width", [*WIDTHS, 10_000_000])
@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[2:3])
def test_a_written_row_is_clipped_to_at_most_c(kind, width):
    row = rows(kind, width)
    norm = row_norms(row[None])
    assert contribution(norm, row) <= 1.0
    assert float(norm) == pytest.approx(float(row.double().norm()), rel=ETA)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_piece_gives_a_norm_that_is_long_enough(kind, width):
    row = rows(kind, width)
    right = torch.tensor([1.0, 0.25, 2.0])
    whole = row[:, None] * right
    pieces = [
        (Direct(row[None]), row),
        (Direct(row.reshape(1, -1, 5)), row),
        (Stacked([Direct(row[None]), Direct(row[None])]), torch.cat([row, row])),
        (Outer(row[None, None], right[None, None], (width, 3)), whole),
        (Outer(right[None, None], row[None, None], (3, width)), whole),
    ]
    for piece, gradient in pieces:
        assert contribution(piece.squared_norms().sqrt(), gradient) <= 1.0


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_several_places_give_a_norm_that_is_long_enough(kind, width):
    row = rows(kind, width)
    left = torch.stack([row, 0.5 * row])[None]
    right = torch.tensor([[1.0, 1.0, 1.0], [0.25, 1.0, 1.0]])[None]
    gradient = torch.bmm(left.double().mT, right.double())
    for factors in ((left, right), (right, left)):
        norm = gram_norms(*factors).sqrt()
        assert contribution(norm, gradient) <= 1.0
        # The ghost's allowance is wider than a written row's; it must not swallow the gradient.
        assert float(norm) == pytest.approx(float(gradient.norm()), rel=1e-2)


class Written(nn.Module):
    """The loss is <w, x>: a row's gradient is the row."""

    def __init__(self, width, dtype=torch.float32):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(width, dtype=dtype))

    def forward(self, x):
        return (x * self.w).sum(-1)


class Layer(nn.Module):
    """The same by a linear layer: its one place is a product of two factors."""

    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        return self.a(x)[:, 0]


def length(sums):
    return float(torch.cat([s.double().flatten() for s in sums.values()]).norm())


@pytest.mark.parametrize("make", [Written, Layer])
@pytest.mark.parametrize("kind", KINDS[:1] + KINDS[2:3])
def test_a_long_row_through_a_whole_step(kit, make, kind):
    width = 200_000
    row = rows(kind, width)
    clip = float(row.double().norm()) / 2
    sums, _ = kit.sums((row[None],), make(width), lambda m, x: m(x), Flat(clip))
    assert clip * (1 - ETA - 4 * ROUNDING["float32"]) <= length(sums) <= clip


# --- mixed precision around the trainer -----------------------------------------------------------


@contextlib.contextmanager
def medium():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


AMBIENT = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "medium": medium,
}


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def places(m, x, y):
    return F.cross_entropy(m(x).mean(1), y, reduction="none")


def data(seed, count=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, 64, generator=generator)
    x = x * torch.rand(count, 6, 64, generator=generator) ** 4 * 5
    return x, torch.zeros(count, dtype=torch.long)


@pytest.mark.parametrize("around", AMBIENT)
@pytest.mark.parametrize("how", ["eager", "traced"])
@pytest.mark.slow
def test_ambient_precision_does_not_reach_norms_and_sums(kit, monkeypatch, around, how):
    seen = []

    def watched(*args):
        seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return group_norms(*args)

    for module in ("clipped_sum", "compiled.whole_step"):
        monkeypatch.setattr(f"sfumato.learning.dp_sgd.{module}.group_norms", watched)
    clip = 0.01
    for seed in range(3):
        spy, model = kit.Spy(), net()
        plan = kit.plan(n=1, lot=1.0, steps=1, clipping=Flat(clip))
        trainer = kit.trainer(model, data(seed), plan=plan, noise=spy)
        if how == "traced":
            tape, total = trainer._recorder.tape, trainer._step.sum
            trainer._step.compiled = CompiledSum(model, places, tape, total, "eager")
        with AMBIENT[around]():
            trainer.fit(places)
        assert {s.dtype for s in spy.sums} == {torch.float32}
        assert (
            clip * (1 - ETA - 4 * ROUNDING["float32"]) <= length(dict(enumerate(spy.sums))) <= clip
        )
    # A graph is traced with what the user allows; its products are made exact one by one.
    assert {mixed for _, mixed in seen} == {False}
    assert how == "traced" or {precision for precision, _ in seen} == {"highest"}


def test_what_the_user_allows_in_the_model_is_left_alone(kit):
    seen = []

    def loss(m, x, y):
        seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return places(m, x, y)

    with medium(), torch.autocast("cpu", dtype=torch.bfloat16):
        kit.sums(data(0), net(), loss, Flat(0.01))
        assert torch.get_float32_matmul_precision() == "medium"
    assert seen[-1] == ("medium", True)
    assert set(seen) == {("highest", True), ("medium", True)}  # the first in the rehearsal alone


# --- tiny norms, and parameters of two types ------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        Flat,
        lambda c: PerLayer(c),
        lambda c: PerLayer({"w": c}),
        lambda c: Automatic(c),
        lambda c: Automatic(1.0, c),
        lambda c: Adaptive(c, count_noise=1.0),
    ],
)
@pytest.mark.parametrize("value", [1e-25, SMALLEST / 2])
def test_norms_whose_squares_vanish_are_refused(make, value):
    with pytest.raises(ValueError, match=r"must be at least 1e-12"):
        make(value)
    make(SMALLEST)


@pytest.mark.parametrize("entry", [1e-16, 1e-22, 1e-24])
@pytest.mark.parametrize("clipping", [Flat(SMALLEST), Automatic(1.0, SMALLEST)])
def test_rows_whose_squares_vanish_stay_within_c(kit, clipping, entry):
    width = 10_000
    x = torch.full((1, width), entry)
    sums, _ = kit.sums((x,), Written(width), lambda m, x: m(x), clipping)
    assert length(sums) <= clipping.clip


def test_an_adapting_norm_stays_above_the_smallest():
    clipping = Adaptive(1e-8, count_noise=1.0)
    clip = clipping.clip
    for _ in range(200):
        clip = clipping.updated(clip, 1e6, 10.0)
    assert clip >= SMALLEST


class TwoTypes(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(2000))
        self.b = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x):
        return (x * self.a).sum(-1) + (x[:, :1] * self.b).sum(-1).float()


def test_with_parameters_of_two_types_the_coarser_decides(kit):
    model = TwoTypes()
    assert ClippedSum(dict(model.named_parameters()), Flat(1.0)).eta == ETA
    for seed in range(5):
        x = torch.rand(1, 2000, generator=torch.Generator().manual_seed(seed)) * 100
        sums, _ = kit.sums((x,), model, lambda m, x: m(x), Flat(1.0))
        assert length(sums) <= 1.0
