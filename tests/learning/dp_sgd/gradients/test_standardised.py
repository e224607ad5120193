"""Standardised convolutions: gradients without writing them, against autograd."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients import settling
from sfumato.learning.dp_sgd.gradients.standardised import StandardisedKernel
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.functions import standardised, standardised_conv2d
from sfumato.learning.models.wrn import StandardizedConv


class Net(nn.Module):
    def __init__(self, flat):
        super().__init__()
        self.one, self.two = StandardizedConv(3, 6, 3, 2), StandardizedConv(6, 5, 3)
        self.two.gain.data = torch.rand(5) + 0.5
        if flat:  # the floor holds for one channel, and almost for another
            self.two.weight.data[1] = 0.3
            self.two.weight.data[2] *= 1e-3

    def forward(self, x):
        return self.two(self.one(x).relu()).mean((2, 3))


@pytest.fixture(autouse=True)
def single_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("kernels", [False, True])
def test_gradients(monkeypatch, flat, copies, kernels):
    if kernels:
        monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    torch.manual_seed(3)
    model, units = Net(flat), 11
    rows = units * copies
    x, y = torch.randn(rows, 3, 8, 8), torch.randint(5, (rows,))
    tape = Tape(dict(model.named_parameters()))
    with tape.recording(rows, units, True):
        losses = F.cross_entropy(model(x), y, reduction="none")
    pieces = tape.gradients(losses.sum()).pieces
    assert isinstance(pieces["two.weight"], StandardisedKernel)
    weights, tolerance = torch.rand(units), 2e-3 if kernels else 1e-4
    for name, p in model.named_parameters():
        exact = torch.stack([
            torch.autograd.grad(F.cross_entropy(model(one), two, reduction="sum"), p)[0]
            for one, two in zip(x.chunk(units), y.chunk(units), strict=True)
        ])  # fmt: skip
        norms = exact.flatten(1).norm(dim=1)
        assert torch.allclose(pieces[name].squared_norms().sqrt(), norms, rtol=tolerance)
        assert (pieces[name].written() - exact).norm() <= tolerance * exact.norm()
        total = torch.tensordot(weights, exact, 1)
        assert (pieces[name].weighted_sum(weights) - total).norm() <= tolerance * total.norm()


def test_a_norm_is_never_below_that_of_what_is_summed(monkeypatch):
    """Where almost all of a gradient lies in the directions that are taken off."""
    monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    torch.manual_seed(1)
    conv = StandardizedConv(2, 3, 3)
    x = torch.ones(11, 2, 6, 6) + 1e-3 * torch.randn(11, 2, 6, 6)
    tape = Tape(dict(conv.named_parameters()))
    with tape.recording(11, 11, True):
        out = conv(x)
    pieces = tape.gradients(out.sum()).pieces
    written = pieces["weight"].written().double().flatten(1).norm(dim=1)
    assert (pieces["weight"].squared_norms().double().sqrt() >= written).all()


def test_the_function_is_the_formula():
    torch.manual_seed(0)
    conv, x = StandardizedConv(4, 6, 3, 2), torch.randn(2, 4, 7, 7)
    weight = conv.weight.detach()
    centred = weight - weight.mean((1, 2, 3), keepdim=True)
    unit = centred / centred.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    assert torch.allclose(standardised(weight, conv.gain.detach()), unit, atol=1e-6)
    assert torch.allclose(conv(x), F.conv2d(x, unit, conv.bias, 2, 1), atol=1e-5)
    assert torch.equal(conv(x), standardised_conv2d(x, conv.weight, conv.gain, conv.bias, 2, 1))


@pytest.mark.parametrize("mean", [1e2, 1e4])
@pytest.mark.parametrize("kernels", [False, True])
def test_weights_far_from_0_are_as_safe(monkeypatch, mean, kernels):
    """A part along the ones that float32 leaves in centred weights is not taken for nothing."""
    if kernels:
        monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    torch.manual_seed(1)
    conv = StandardizedConv(2, 3, 3)
    conv.weight.data += mean * conv.weight.data.std()
    x = torch.ones(11, 2, 6, 6) + 1e-3 * torch.randn(11, 2, 6, 6)
    tape = Tape(dict(conv.named_parameters()))
    with tape.recording(11, 11, True):
        out = conv(x)
    piece = tape.gradients(out.sum()).pieces["weight"]
    written = piece.written().double().flatten(1).norm(dim=1)
    assert (piece.squared_norms().double().sqrt() >= written * (1 - 1e-6)).all()
