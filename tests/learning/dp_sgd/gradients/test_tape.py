"""The tape itself: what it leaves alone, what it does not compute, mixed precision."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from sfumato.learning.dp_sgd.gradients.layout import (
    AmbiguousLayout,
    Layout,
    by_unit,
    find_layout,
    telling_sizes,
)
from sfumato.learning.dp_sgd.gradients.memory import Scratch
from sfumato.learning.dp_sgd.gradients.tape import Tape


def _model():
    return nn.Sequential(
        nn.Conv1d(3, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(24, 5),
        nn.Tanh(),
        nn.Linear(5, 2),
    )


def _make(batch):
    return torch.randn(batch, 3, 8)


class _Operations(TorchDispatchMode):
    """Counts weight gradients: a kernel's by its mask, a matrix's by its shape."""

    def __init__(self, shapes):
        super().__init__()
        self.shapes, self.seen = shapes, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution_backward.default:
            self.seen += ["kernel"] * args[-1][1]
        elif func is torch.ops.aten.mm.default and out.shape in self.shapes:
            self.seen.append("matrix")
        return out


def test_autograd_computes_no_weight_gradient(harness):
    model = _model()
    tape = harness.learn(model, _make)
    shapes = {s for p in model.parameters() for s in (p.shape, p.shape[::-1])}
    with tape.recording(7, 7):
        losses = harness.default_loss(model, _make(7))
    with harness.choosing(True), _Operations(shapes) as operations:
        gradients = tape.gradients(losses.sum())
    assert operations.seen == []
    with _Operations(shapes) as operations:
        harness.default_loss(model, _make(7)).sum().backward()
    assert sorted(operations.seen) == ["kernel", "matrix", "matrix"]
    assert gradients.units == 7


def test_nothing_of_the_model_changes(harness):
    model = nn.Sequential(
        nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4).eval(), nn.LSTM(6, 2, batch_first=True)
    )

    def loss(model, x):
        return model(x)[0].sin().sum((1, 2))

    state = {n: v.clone() for n, v in model.state_dict().items()}
    attributes = {n: set(m.__dict__) for n, m in model.named_modules()}
    hooks = copy.deepcopy(
        {n: (m._forward_hooks, m._backward_hooks) for n, m in model.named_modules()}
    )
    identities = {n: id(p) for n, p in model.named_parameters()}
    versions = {n: p._version for n, p in model.named_parameters()}
    harness(model, _make, loss, sizes=(4, 2))
    assert all(torch.equal(v, state[n]) for n, v in model.state_dict().items())
    assert attributes == {n: set(m.__dict__) for n, m in model.named_modules()}
    assert hooks == {n: (m._forward_hooks, m._backward_hooks) for n, m in model.named_modules()}
    assert identities == {n: id(p) for n, p in model.named_parameters()}
    assert versions == {n: p._version for n, p in model.named_parameters()}
    for p in model.parameters():
        assert p.grad is None
        assert p.requires_grad
        assert not p._backward_hooks


def test_without_gradients_nothing_is_recorded(harness):
    model = _model()
    tape = harness.learn(model, _make)
    with tape.recording(3, 3), torch.no_grad():
        model(_make(3))
    with tape.recording(3, 3), torch.inference_mode():
        model(_make(3))
    assert tape._calls == []
    assert tape._derived == []


def test_the_recording_is_forgotten(harness):
    model = _model()
    tape = harness.learn(model, _make)
    x = _make(3)
    first = harness.record(tape, model, x).pieces["4.bias"].written().clone()
    again = harness.record(tape, model, x).pieces["4.bias"].written()
    assert torch.equal(first, again)
    assert tape._calls == []


def test_an_earlier_error_in_the_model_passes_through(harness):
    model = _model()
    tape = harness.learn(model, _make)
    with pytest.raises(RuntimeError), tape.recording(3, 3):
        model(torch.randn(3, 5, 8))
    tape.clear()
    x = _make(3)
    harness.compare(harness.record(tape, model, x), harness.loop(model, x))


def test_two_tapes_at_once(harness):
    one, two = _model(), _model()
    tapes = [harness.learn(m, _make) for m in (one, two)]
    x = _make(3)

    def loss(_, x):
        return (one(x) * two(x)).sin().sum(1)

    expected = [harness.loop(model, x, loss) for model in (one, two)]
    for tape, reference in zip(tapes, expected, strict=True):
        with tapes[0].recording(3, 3), tapes[1].recording(3, 3):
            losses = loss(None, x)
        harness.compare(tape.gradients(losses.sum()), reference)
        for each in tapes:
            each.clear()


def test_a_recording_inside_a_recording(harness):
    model = _model()
    tape = harness.learn(model, _make)
    x = _make(3)
    with tape.recording(3, 3), tape.recording(3, 3):
        losses = harness.default_loss(model, x)
    harness.compare(tape.gradients(losses.sum()), harness.loop(model, x))


def test_a_deep_model_needs_no_deep_stack(harness):
    model = nn.Sequential(*[nn.Linear(2, 2, bias=False) for _ in range(600)])
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.eye(2) + 0.01 * torch.randn(2, 2))

    def loss(model, x):
        for _ in range(2000):
            x = x * 1.0
        return model(x).sin().sum(1)

    tape = harness.learn(model, lambda b: torch.randn(b, 2), loss)
    x = torch.randn(2, 2)
    harness.compare(harness.record(tape, model, x, loss), harness.loop(model, x, loss))


# --- mixed precision -----------------------------------------------------------------------------


class _Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 4, 3), nn.GroupNorm(2, 4)
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.last, self.scale = nn.LayerNorm(4), nn.Parameter(1 + torch.rand(4))
        self.bilinear, self.prelu = nn.Bilinear(4, 4, 4), nn.PReLU()
        self.matrix, self.head = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 3)

    def forward(self, x):
        x = self.norm(self.conv(x)).transpose(1, 2)
        x = x + self.rnn(x)[0]
        x = self.last(x + self.attention(x, x, x)[0]) * self.scale
        x = self.prelu(x + self.bilinear(x, x))
        x = torch.einsum("bti,ij->btj", x, self.matrix) @ self.matrix.T
        return self.head(x).float()


@pytest.mark.parametrize("ghost", [True, False])
def test_autocast_gives_nearly_the_same_in_float32(harness, ghost):
    torch.set_default_dtype(torch.float32)
    model = _Everything()

    def loss(model, x):
        return model(x).square().flatten(1).sum(1)

    def cast(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(model, x)

    def make(batch):
        return torch.randn(batch, 3, 8)

    tape = harness.learn(model, make, cast)
    x = make(5)
    expected = harness.loop(model, x, loss)
    with harness.choosing(ghost):
        pieces = harness.record(tape, model, x, cast).pieces
    assert set(pieces) == set(expected)
    squares = []
    for name, piece in pieces.items():
        squares.append(piece.squared_norms())
        assert squares[-1].dtype == piece.written().dtype == torch.float32, name
        assert piece.weighted_sum(torch.ones(5)).dtype == torch.float64, name
    norms = torch.stack(squares).sum(0).sqrt()
    true = sum(g.reshape(5, -1).square().sum(1) for g in expected.values()).sqrt()
    torch.testing.assert_close(norms, true, rtol=0.05, atol=0.0)


def test_a_model_of_half_precision_is_summed_in_float32(harness):
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).bfloat16()

    def make(batch):
        return torch.randn(batch, 5, 6, dtype=torch.bfloat16)

    tape = harness.learn(model, make)
    for piece in harness.record(tape, model, make(3)).pieces.values():
        assert piece.squared_norms().dtype == torch.float32
        assert piece.weighted_sum(torch.ones(3)).dtype == torch.float64


# --- where the batch is, and memory --------------------------------------------------------------


def test_telling_sizes_divide_no_length():
    sizes = telling_sizes([11, 26, 17 * 4, 0, 1])
    assert sizes[:3] == [19, 23, 29]
    assert len(set(sizes)) == 6


def test_layouts():
    assert find_layout((11, 4), 11) == Layout(0)
    assert find_layout((4, 11), 11) == Layout(1)
    assert find_layout((4, 33), 11) == Layout(1, folded=True)
    assert find_layout((4, 5), 11) is None
    assert find_layout((0, 5), 11) is None
    with pytest.raises(AmbiguousLayout):
        find_layout((11, 22), 11)


def test_rows_of_a_unit_are_consecutive():
    x = torch.arange(24).view(6, 2, 2)
    assert torch.equal(by_unit(x, Layout(0), 3)[0], torch.arange(8).view(4, 2))
    assert by_unit(x.transpose(0, 1), Layout(1), 3).equal(by_unit(x, Layout(0), 3))
    assert by_unit(x[:0], Layout(0), 0).shape == (0, 1, 2)


def test_scratch_is_kept_and_grows():
    scratch, like = Scratch(), torch.empty(0)
    one = scratch.take("a", (2, 3), like)
    assert scratch.take("a", (3, 2), like).data_ptr() == one.data_ptr()
    assert scratch.take("b", (2, 3), like).data_ptr() != one.data_ptr()
    assert scratch.take("a", (4, 5), like).shape == (4, 5)
    assert scratch.take("a", (4, 5), like.float()).dtype == torch.float32
    scratch.clear()
    assert scratch._buffers == {}


def test_names_alone_tell_parameters_apart():
    layer = nn.Linear(3, 2)
    tape = Tape({"here": layer.weight})
    with tape.recording(11, 11, learning=True):
        losses = F.linear(torch.randn(11, 3), layer.weight, layer.bias).sum(1)
    assert set(tape.gradients(losses.sum()).pieces) == {"here"}


def test_nothing_of_a_step_is_left_to_the_collector_of_cycles():
    """On a GPU a cycle would hold activations and gradients of many steps at once."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
    )
    tape = Tape(dict(model.named_parameters()))
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        for learning in (True, False):
            with tape.recording(5, 5, learning=learning):
                losses = model(torch.randn(5, 1, 8, 8)).square().sum(1)
            gradients = tape.gradients(losses.sum())
            assert gradients.squared_norms("0.weight").shape == (5,)
            del losses, gradients
        gc.collect()
        left = [thing for thing in gc.garbage if isinstance(thing, torch.Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left == []
