"""Parameters used more than once, in part, or not at all."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients.pieces import Stacked, Tied


def tokens(batch):
    return torch.randint(0, 9, (batch, 5))


def vectors(batch):
    return torch.randn(batch, 5, 4)


def pixels(batch):
    return torch.randn(batch, 4, 6, 5)


TIES = {
    "embedding and head": (lambda m, t: F.linear(m.e(t).sin(), m.e.weight), tokens),
    "embedding and head, turned": (lambda m, t: m.e(t).sin() @ m.e.weight.T, tokens),
    "embedding and head, twice": (
        lambda m, t: F.linear(m.e(t).sin() + m.e(t.flip(1)), m.e.weight) + m.e(t) @ m.e.weight.t(),
        tokens,
    ),
    "embedding, head and positions": (
        lambda m, t: F.linear(m.e(t) + m.e(torch.arange(t.shape[1])), m.e.weight),
        tokens,
    ),
    "embedding twice": (lambda m, t: m.e(t) * m.e(t.flip(1)), tokens),
    "embedding of a turned matrix": (
        lambda m, t: F.embedding(t % 4, m.e.weight.T) @ m.e.weight,
        tokens,
    ),
    "embedding and its decay": (lambda m, t: m.e(t) + m.e.weight.square().sum(), tokens),
}


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(("expression", "make"), TIES.values(), ids=TIES.keys())
def test_embeddings(harness, expression, make, copies):
    harness(harness.calls(expression, e=nn.Embedding(9, 4, padding_idx=2)), make, copies=copies)


SHARED = {
    "linear twice": lambda m, x: m.a(m.a(x).sin()),
    "linear and its transpose": lambda m, x: F.linear(m.a(x).sin(), m.a.weight.T) + x @ m.a.weight,
    "turned both ways": lambda m, x: x @ m.w.T + x @ m.w + F.linear(x, m.w) + F.linear(x, m.w.t()),
    "turned twice": lambda m, x: F.linear(x, m.w.T.T) + x @ m.w.T.T,
    "matrix and scale": lambda m, x: F.linear(x, m.w) * m.w[0] + m.w[1, 2],
    "slices": lambda m, x: F.linear(x, m.w[:2]) * F.linear(x, m.w[2:]),
    "slices of columns": lambda m, x: F.linear(x[..., :2], m.w[:, :2]) + x[..., :1] * m.w[:, 2],
    "overlapping slices": lambda m, x: F.linear(x, m.w[:3]) * F.linear(x, m.w[1:]),
    "chunks": lambda m, x: sum(F.linear(x, w) for w in m.w.chunk(2)),
    "one of the chunks": lambda m, x: F.linear(x, m.w.chunk(2)[1]),
    "chunks of columns": lambda m, x: sum(F.linear(x[..., :2], w) for w in m.w.chunk(2, dim=1)),
    "chunks of last columns": lambda m, x: sum(F.linear(x[..., :2], w) for w in m.w.chunk(2, -1)),
    "unequal parts": lambda m, x: (
        F.linear(x, m.w.split([1, 3])[0]) + F.linear(x, m.w.split(3)[0])[..., :1]
    ),
    "unbind": lambda m, x: sum(x * row for row in m.w.unbind()),
    "chunks, then the whole": lambda m, x: (
        F.linear(x, m.w) * m.w.chunk(4)[1] + m.w.chunk(2)[0].sum()
    ),
    "reshaped": lambda m, x: F.linear(x, m.w.view(2, 8).reshape(4, 4)) * m.w.flatten()[:4],
    "cat": lambda m, x: F.linear(x, torch.cat([m.w, m.a.weight])),
    "the same twice": lambda m, x: F.linear(x, m.w @ m.w + m.w * m.w),
    "no part in the loss": lambda m, x: F.linear(x, m.w),
    "a part that comes to nothing": lambda m, x: F.linear(x, m.w) + 0 * m.a(x).detach(),
}


@pytest.mark.parametrize("expression", SHARED.values(), ids=SHARED.keys())
def test_matrices(harness, expression):
    model = harness.calls(expression, a=nn.Linear(4, 4), w=(4, 4))
    harness(model, vectors, sizes=(3, 1))
    harness(model, vectors, sizes=(2,), copies=2)


CONVOLUTIONS = {
    "twice": lambda m, x: m.c(m.c(x).sin()),
    "on two sizes": lambda m, x: m.c(x).sum((2, 3)) + m.c(x[..., ::2, ::2]).sum((2, 3)),
    "and its transpose": lambda m, x: F.conv_transpose2d(m.c(x).sin(), m.c.weight, padding=1),
    "scaled": lambda m, x: F.conv2d(x, m.c.weight * m.c.bias.view(-1, 1, 1, 1)),
    "cut": lambda m, x: F.conv2d(x, m.c.weight[:2]) * F.conv2d(x, m.c.weight[2:]),
    "chunks": lambda m, x: sum(F.conv2d(x, w) for w in m.c.weight.chunk(2)),
    "as a matrix": lambda m, x: (
        m.c(x).sum((2, 3)) + F.linear(x.flatten(1)[:, :36], m.c.weight.flatten(1))
    ),
}


@pytest.mark.parametrize("expression", CONVOLUTIONS.values(), ids=CONVOLUTIONS.keys())
def test_convolutions(harness, expression):
    model = harness.calls(expression, c=nn.Conv2d(4, 4, 3, padding=1))
    harness(model, pixels, sizes=(3,))
    harness(model, pixels, sizes=(2,), copies=2)


def test_a_recurrent_layer_used_twice(harness):
    def forward(m, x):
        out, state = m.r(x)
        return m.r(out, state)[0]

    harness(harness.calls(forward, r=nn.GRU(4, 4, batch_first=True)), vectors, sizes=(3,))


@pytest.mark.parametrize("turned", [False, True])
def test_a_tied_head_never_writes_out_the_vocabulary(harness, turned):
    def forward(m, t):
        h = m.e(t).sin()
        return h @ m.e.weight.T if turned else F.linear(h, m.e.weight)

    model = harness.calls(forward, e=nn.Embedding(9, 4))
    tape = harness.learn(model, tokens)
    with harness.choosing(True):
        piece = harness.record(tape, model, tokens(3)).pieces["e.weight"]
    assert isinstance(piece, Tied)


def test_parts_of_a_split_keep_their_own_form(harness):
    model = harness.calls(lambda m, x: sum(F.linear(x, w) for w in m.w.chunk(2)), w=(4, 4))
    tape = harness.learn(model, vectors)
    assert isinstance(harness.record(tape, model, vectors(3)).pieces["w"], Stacked)


def test_frozen_parameters_are_not_seen(harness):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3))
    model[0].weight.requires_grad_(False)
    model[3].requires_grad_(False)
    tape = harness(model, vectors)
    gradients = harness.record(tape, model, vectors(3))
    assert set(gradients.pieces) == {"0.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize(
    "layer",
    [
        nn.Linear(4, 4),
        nn.Conv1d(5, 3, 2),
        nn.LayerNorm(4),
        nn.GroupNorm(5, 5),
        nn.InstanceNorm1d(5, affine=True),
        nn.BatchNorm1d(5).eval(),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_a_shift_alone_holds_no_activation(harness, layer):
    """Training biases alone keeps nothing that only the frozen weight would have needed."""
    layer.double().weight.requires_grad_(False)
    tape = harness(layer, vectors, sizes=(3,))
    with tape.recording(3, 3):
        layer(vectors(3))
    assert [call.use.kept for call in tape._calls] == [[]]


def test_an_unused_parameter_has_no_piece(harness):
    model = harness.calls(lambda m, x: F.linear(x, m.w), w=(4, 4), unused=(3,), a=nn.Linear(4, 4))
    tape = harness.learn(model, vectors)
    gradients = harness.record(tape, model, vectors(3))
    assert set(gradients.pieces) == {"w"}
    assert gradients.squared_norms("unused") is None


def test_a_branch_without_a_part_in_the_loss(harness):
    def loss(model, x):
        model.a(x)  # computed, and thrown away
        return F.linear(x, model.w).sin().sum((1, 2))

    harness(harness.calls(lambda m, x: x, w=(4, 4), a=nn.Linear(4, 4)), vectors, loss)
