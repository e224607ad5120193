"""Units whose numbers are NaN or infinite: with weight 0 they contribute exactly nothing."""

import math

import pytest
import torch
from torch import nn

from sfumato.learning.dp_sgd.gradients.convolution import Convolution, Geometry
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer, Stacked, Tied

UNITS, BAD = 4, 2
WEIGHTS = torch.tensor([0.5, 1.0, 0.0, 0.25])


def _geometry(groups):
    return Geometry((3,), (1,), ((1, 1),), (1,), groups)


def _outer(units):
    return Outer(units(5, 6), units(5, 4), (6, 4))


def _named(units):
    names = torch.arange(UNITS * 5).view(UNITS, 5) % 6
    return Outer(names, units(5, 4), (6, 4))


PIECES = {
    "direct": lambda units: Direct(units(6, 4)),
    "outer": _outer,
    "outer of one place": lambda units: Outer(units(1, 6), units(1, 4), (6, 4)),
    "outer, left alone": lambda units: Outer(units(5, 6), torch.ones(UNITS, 5, 4), (6, 4)),
    "outer, right alone": lambda units: Outer(torch.ones(UNITS, 5, 6), units(5, 4), (6, 4)),
    "outer, turned": lambda units: _outer(units).turned(),
    "outer, written": lambda units: Direct(_outer(units).written()),
    "named": _named,
    "named, turned": lambda units: _named(units).turned(),
    "tied": lambda units: Tied(_named(units), _outer(units)),
    "stacked": lambda units: Stacked([_outer(units), _named(units), Direct(units(2, 4))]),
    "convolution": lambda units: Convolution(units(4, 7), units(6, 7), UNITS, _geometry(1)),
    "convolution, inputs": lambda units: Convolution(
        units(4, 7), torch.ones(UNITS, 6, 7), UNITS, _geometry(1)
    ),
    "convolution, outputs": lambda units: Convolution(
        torch.ones(UNITS, 4, 7), units(6, 7), UNITS, _geometry(2)
    ),
    "convolution of copies": lambda units: Convolution(
        units(3, 4, 7).flatten(0, 1), units(3, 6, 7).flatten(0, 1), UNITS, _geometry(2)
    ),
}


def _maker(bad):
    """(UNITS, *shape) numbers, always the same but for one unit's."""
    generator = torch.Generator().manual_seed(3)

    def units(*shape):
        numbers = torch.randn(UNITS, *shape, generator=generator)
        if bad is not None:
            numbers[BAD].view(-1)[:: 1 if math.isnan(bad) else 2] = bad
        return numbers

    return units


@pytest.mark.parametrize("ghost", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("build", PIECES.values(), ids=PIECES.keys())
def test_blanked_units_leave_no_trace(harness, build, bad, ghost):
    with harness.choosing(ghost):
        good, spoilt = (build(_maker(b)).settle() for b in (None, bad))
    others = [u for u in range(UNITS) if u != BAD]
    norms = spoilt.squared_norms()
    assert torch.equal(norms[others], good.squared_norms()[others])
    assert not norms[BAD].isfinite()
    assert torch.equal(spoilt.weighted_sum(WEIGHTS), good.weighted_sum(WEIGHTS))


@pytest.mark.parametrize("build", PIECES.values(), ids=PIECES.keys())
def test_all_blanked_is_exactly_nothing(build):
    piece = build(_maker(math.nan)).settle()
    assert not piece.weighted_sum(torch.zeros(UNITS)).any()


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)), (6,)),
    "sequence": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.PReLU()), (5, 6)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv1d(6, 4, 3), nn.GroupNorm(2, 4), nn.Conv1d(4, 4, 1)),
        (6, 8),
    ),
    "recurrence": (lambda: nn.LSTM(6, 3, batch_first=True), (5, 6)),
    "bilinear": (lambda: _Twice(nn.Bilinear(6, 6, 2)), (6,)),
    "attention": (lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), (5, 6)),
}


class _Twice(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x)


@pytest.mark.parametrize("ghost", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(("build", "shape"), MODELS.values(), ids=MODELS.keys())
def test_a_bad_example_spoils_no_other(harness, build, shape, bad, ghost):
    model = build()
    tape = harness.learn(model, lambda b: torch.randn(b, *shape))
    x = torch.randn(UNITS, *shape)
    spoilt = x.clone()
    spoilt[BAD].view(-1)[0] = bad
    others = [u for u in range(UNITS) if u != BAD]
    sums = []
    for inputs in (x, spoilt):
        with harness.choosing(ghost):
            pieces = harness.record(tape, model, inputs).pieces
        norms = {name: piece.squared_norms()[others] for name, piece in pieces.items()}
        sums.append((norms, {n: p.weighted_sum(WEIGHTS) for n, p in pieces.items()}))
    for good, after in zip(*sums, strict=True):
        for name, value in good.items():
            assert torch.equal(after[name], value), name
