"""Recurrent layers: the same numbers as torch's own, and every example's gradients."""

import pytest
import torch
from torch import nn

LAYERS = [nn.RNN, nn.GRU, nn.LSTM]


class Unrolled(nn.Module):
    """A recurrent layer and a head; inputs and starts come batch first."""

    def __init__(self, kind, given=False, **options):
        super().__init__()
        self.layer = kind(5, 4, **options)
        directions = 2 if self.layer.bidirectional else 1
        out = self.layer.proj_size or 4
        self.head = nn.Linear(directions * out, 3)
        self.given, self.states = given, directions * self.layer.num_layers
        self.shapes = [out, 4] if kind is nn.LSTM else [4]

    def forward(self, x, start):
        turned = x if self.layer.batch_first else x.transpose(0, 1)
        states = None
        if self.given:
            states = tuple(start[..., :n].transpose(0, 1).contiguous() for n in self.shapes)
            states = states if len(states) > 1 else states[0]
        out, last = self.layer(turned, states)
        out = self.head(out)
        last = last if isinstance(last, tuple) else (last,)
        return (
            out if self.layer.batch_first else out.transpose(0, 1),
            *(s.transpose(0, 1) for s in last),
        )


def check(harness, model):
    def make(batch):
        return torch.randn(batch, 6, 5), torch.randn(batch, model.states, 4)

    inputs = make(3)
    tape = harness.learn(model, make)
    with tape.recording(3, 3):
        seen = model(*inputs)
    tape.clear()
    for ours, own in zip(seen, model(*inputs), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-12, atol=1e-12)
    harness(model, make, sizes=(3,))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"num_layers": 2},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "given": True},
        {"given": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", LAYERS)
def test_layers(harness, kind, options, batch_first):
    check(harness, Unrolled(kind, batch_first=batch_first, **options))


@pytest.mark.parametrize(
    "options",
    [
        {"proj_size": 2},
        {"proj_size": 2, "bias": False, "num_layers": 2},
        {"proj_size": 2, "bidirectional": True, "num_layers": 2, "given": True},
    ],
    ids=str,
)
def test_projections(harness, options):
    check(harness, Unrolled(nn.LSTM, batch_first=True, **options))


def test_rectified_recurrence(harness):
    check(harness, Unrolled(nn.RNN, nonlinearity="relu", batch_first=True))


def test_dropout_between_layers(harness):
    model = Unrolled(nn.LSTM, num_layers=2, dropout=0.5, batch_first=True)

    def make(batch):
        return torch.randn(batch, 6, 5), torch.randn(batch, 2, 4)

    inputs = make(3)
    tape = harness.learn(model, make)
    with tape.recording(3, 3):
        assert not torch.equal(model(*inputs)[0], model(*inputs)[0])
        assert torch.equal(model.eval()(*inputs)[0], model(*inputs)[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells(harness, kind, given, bias):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = kind(5, 4, bias=bias)

        def forward(self, x):
            state = None
            if given:
                state = x[:, 0, :4].sin()
                state = (state, state.cos()) if kind is nn.LSTMCell else state
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return state

    model, x = Loop(), torch.randn(3, 4, 5)
    tape = harness.learn(model, lambda b: torch.randn(b, 4, 5))
    with tape.recording(3, 3):
        seen = model(x)
    tape.clear()
    for ours, own in zip(seen, model(x), strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-12, atol=1e-12)
    harness(model, lambda b: torch.randn(b, 4, 5), sizes=(3,))


def test_a_learned_start(harness):
    class Started(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(5, 4, batch_first=True)
            self.start = nn.Parameter(torch.randn(1, 1, 4))

        def forward(self, x):
            return self.layer(x, self.start.expand(-1, len(x), -1).contiguous())[0]

    harness(Started(), lambda b: torch.randn(b, 6, 5), sizes=(3,))


def test_only_some_weights_are_trained(harness):
    model = nn.LSTM(5, 4, num_layers=2, batch_first=True)
    for name, p in model.named_parameters():
        p.requires_grad_(name in ("weight_hh_l0", "bias_ih_l1"))
    harness(model, lambda b: torch.randn(b, 6, 5), lambda m, x: m(x)[0].sin().sum((1, 2)))
