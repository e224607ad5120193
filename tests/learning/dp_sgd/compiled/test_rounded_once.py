"""Norms see 16-bit numbers as the sums do: rounded, also where a compiler computes both at once."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.clipping import Flat, PerLayer
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.gradients import settling
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.kernels import products
from sfumato.learning.dp_sgd.physical import Part

pytestmark = pytest.mark.usefixtures("singles")

ROWS, WIDTH, CLIP = 32, 128, 1e-3


class Difference(nn.Module):
    """Two places whose gradients cancel but for what rounding their inputs leaves."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        h = self.layer((x * 1.5).bfloat16())
        return (h[:, 0] - h[:, 1]).float()


def loss(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        return model(x).sum(1)


needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.mark.filterwarnings("ignore")  # about torch's own compiler
@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("inductor", marks=[needs_compiler, pytest.mark.slow])]
)
def test_a_contribution_is_no_longer_than_the_clip_norm(backend):
    torch.manual_seed(0)
    halfway = (torch.rand(ROWS, WIDTH) * 0.9 + 1).bfloat16().float() + 2.0**-8
    x = torch.stack([halfway * (1 + 2.0**-14), halfway * (1 - 2.0**-14)], 1) / 1.5
    model = Difference()
    parameters = dict(model.named_parameters())
    tape, total = Tape(parameters), ClippedSum(parameters, Flat(CLIP))
    with tape.recording(11, 11, learning=True):
        losses = loss(model, x[:11])
    tape.gradients(losses.sum())
    compiled = CompiledSum(model, loss, tape, total, backend, capture=False)
    weights = np.zeros(ROWS)
    weights[3] = 1
    compiled((x,), Part(0, np.arange(ROWS), weights, ROWS, last=True), 1.0)
    length = float(total.sums["layer.weight"].double().norm())
    # Two places cancel all but wholly, for which a unit may be clipped by more than its length.
    assert 0.01 * CLIP <= length <= CLIP


@pytest.mark.parametrize("kernels", [False, True])
def test_the_compiler_is_told_where_it_makes_norms_of_short_numbers_itself(monkeypatch, kernels):
    """Not where kernels of our own do, which read them from memory."""
    if kernels:
        monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    model = Difference()
    parameters = dict(model.named_parameters())
    tape, total = Tape(parameters), ClippedSum(parameters, Flat(CLIP))
    x = torch.randn(ROWS, 2, WIDTH)
    with tape.recording(11, 11, learning=True):
        losses = loss(model, x[:11])
    tape.gradients(losses.sum())
    compiled = CompiledSum(model, loss, tape, total, "eager", capture=False)
    told = []
    optimised = compiled._optimised
    monkeypatch.setattr(
        compiled,
        "_optimised",
        lambda graph, rounds: (told.append(rounds), optimised(graph, rounds))[1],
    )
    compiled((x,), Part(0, np.arange(ROWS), np.ones(ROWS), ROWS, last=True), 1.0)
    assert told == [not kernels]


class Deep(nn.Module):
    """Matrices over many places in bfloat16."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(24, 48), nn.Linear(48, 32)

    def forward(self, x):
        return self.narrow(torch.nn.functional.gelu(self.wide(x))).float()


class Matrix(nn.Module):
    """What Hugging Face's Conv1D does: (inputs, outputs) on the right of all places in one."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class Turned(Deep):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = Matrix(24, 48), Matrix(48, 32)


def test_a_turned_matrix_has_the_sums_of_the_other(monkeypatch):
    monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    x, found = torch.randn(ROWS, 6, 24), []
    plain, turned = Deep(), Turned()
    with torch.no_grad():
        for one, two in ((plain.wide, turned.wide), (plain.narrow, turned.narrow)):
            two.weight.copy_(one.weight.T)
            two.bias.copy_(one.bias)

    def squares(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).square().flatten(1).mean(1)

    for model in (plain, turned):
        parameters = dict(model.named_parameters())
        tape, total = Tape(parameters), ClippedSum(parameters, Flat(0.1))
        with tape.recording(11, 11, learning=True):
            losses = squares(model, x[:11])
        tape.gradients(losses.sum())
        compiled = CompiledSum(model, squares, tape, total, "eager", capture=False)
        compiled((x,), Part(0, np.arange(ROWS), np.ones(ROWS), ROWS, last=True), 1.0)
        found.append(total.sums)
    for name, one in found[0].items():
        two = found[1][name].T if "weight" in name else found[1][name]
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("made", [Deep, Turned])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_unit_spoils_no_ordinary_matrix_product(monkeypatch, bad, made):
    """Gradients come with 0 in place of what is not finite, and contributions stay within C."""
    monkeypatch.setattr(settling, "by_kernels", lambda tensor, convolution=False: True)
    asked = []
    scaled = products.scaled_sum
    monkeypatch.setattr(products, "scaled_sum", lambda *a: (asked.append(1), scaled(*a))[1])
    torch.manual_seed(0)
    model = made()
    parameters = dict(model.named_parameters())
    tape, total = Tape(parameters), ClippedSum(parameters, PerLayer({"wide": 0.2, "": 0.1}))

    def squares(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).square().flatten(1).mean(1)

    x = torch.randn(ROWS, 6, 24)
    with tape.recording(11, 11, learning=True):
        losses = squares(model, x[:11])
    tape.gradients(losses.sum())
    compiled = CompiledSum(model, squares, tape, total, "eager", capture=False)
    ones = np.ones(ROWS)
    without = ones.copy()
    without[5] = 0
    compiled((x,), Part(0, np.arange(ROWS), without, ROWS, last=True), 1.0)
    clean = {name: s.clone() for name, s in total.sums.items()}
    x[5, 3, 2] = bad
    total.start()
    compiled((x,), Part(0, np.arange(ROWS), ones, ROWS, last=True), 1.0)
    assert len(asked) == 2  # traced once: two matrices
    for name, s in total.sums.items():
        assert torch.allclose(s, clean[name], rtol=1e-5, atol=1e-7), name
    for unit in (0, 7):
        alone = np.zeros(ROWS)
        alone[unit] = 1
        total.start()
        compiled((x,), Part(0, np.arange(ROWS), alone, ROWS, last=True), 1.0)
        for names, bound in ((["wide.weight", "wide.bias"], 0.2), (["narrow.weight"], 0.1)):
            length = sum(float(total.sums[n].double().square().sum()) for n in names) ** 0.5
            assert 0.3 * bound < length <= bound
