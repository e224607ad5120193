"""What tests of the compiled step share: lean stand-ins for kernels, and a measure of memory."""

import bisect
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.clipping import Flat
from sfumato.learning.dp_sgd.compiled import CompiledSum
from sfumato.learning.dp_sgd.compiled import rematerialised as rearranging
from sfumato.learning.dp_sgd.compiled import whole_step as compiling
from sfumato.learning.dp_sgd.gradients import rules
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Piece
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.physical import Part

SEEN: list[str] = []
"""The setting of float32 products whenever a stand-in ran."""


def _each(x: Tensor, g: Tensor, kernel: int, padding: int):
    for one, back in zip(x.float(), g.float(), strict=True):
        if kernel:
            shape = (g.shape[1], x.shape[1], kernel, kernel)
            yield torch.nn.grad.conv2d_weight(one[None], shape, back[None], padding=padding)
        else:
            yield back.T @ one


@torch.library.custom_op("sfumato_test::norms", mutates_args=())
def norms(x: Tensor, g: Tensor, kernel: int, padding: int) -> Tensor:
    SEEN.append(torch.get_float32_matmul_precision())
    return torch.stack([v.square().sum() for v in _each(x, g, kernel, padding)])


@norms.register_fake
def _(x, g, kernel, padding):
    return x.new_empty(len(x), dtype=torch.float32)


@torch.library.custom_op("sfumato_test::total", mutates_args=())
def total(x: Tensor, g: Tensor, weights: Tensor, kernel: int, padding: int) -> Tensor:
    out = torch.zeros(())
    for value, weight in zip(_each(x, g, kernel, padding), weights, strict=True):
        out = out + weight * value
    return out


@total.register_fake
def _(x, g, weights, kernel, padding):
    shape = (g.shape[1], x.shape[1], kernel, kernel) if kernel else (g.shape[2], x.shape[2])
    return x.new_empty(shape, dtype=torch.float32)


@dataclass
class Lean(Piece):
    """Factors in the model's own precision; norms and sums by kernels the compiler can't see."""

    x: Tensor
    g: Tensor
    kernel: int = 0
    padding: int = 0

    def squared_norms(self):
        return norms(self.x, self.g, self.kernel, self.padding)

    def weighted_sum(self, weights):
        return total(self.x, self.g, weights, self.kernel, self.padding)

    def written(self):
        raise NotImplementedError


def _linear(use, input, weight, bias=None):
    x = use.keep(input)

    def build(grad):
        return Lean(*(t.to(grad.dtype).reshape(len(t), -1, t.shape[-1]) for t in (x, grad)))

    use.give(weight, build)
    use.give(bias, lambda grad: Direct(use.places(grad).sum(1)))


def _convolution(use, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    x = use.keep(input)
    sizes = weight.shape[2], padding[0]
    use.give(weight, lambda grad: Lean(x.to(grad.dtype), grad, *sizes))
    rules._bias(use, bias)


@pytest.fixture(autouse=True)
def whole_convolutions(monkeypatch):
    """On a machine with a GPU torch allows TF32 in convolutions by itself, which graphs show."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture
def stand_ins(monkeypatch):
    """Linear layers and convolutions go through the kernels above; the settings they ran under."""
    monkeypatch.setitem(rules.RULES, F.linear, _linear)
    for function in (F.conv2d, torch.conv2d):
        monkeypatch.setitem(rules.RULES, function, _convolution)
    SEEN.clear()
    return SEEN


@pytest.fixture
def private():
    return _private


@pytest.fixture
def held():
    return _held


@pytest.fixture
def sums_of():
    """The compiled step and the sums of one batch."""

    def run(model, loss, data, scale=1.0, **options):
        compiled, sums, add = _private(model, loss, data, **options)
        add(scale)
        (step,) = compiled._graphs.values()
        return step, {name: s.clone() for name, s in sums.sums.items()}

    return run


@pytest.fixture
def graph_of(monkeypatch):
    """The traced graph and the rearranged one, before it is compiled."""

    def run(model, loss, data, **options):
        found = []
        make = rearranging.rematerialised

        def noted(*args):
            found.append((args[0], make(*args)))
            return found[-1][1]

        with monkeypatch.context() as patch:
            patch.setattr(compiling, "rematerialised", noted)
            _private(model, loss, data, **options)[2]()
        return found[0]

    return run


def _private(model, loss, batch, backend="eager", clip=1.0, **options):
    """A compiled sum, where its sums go, and a function that adds the batch."""
    parameters = dict(model.named_parameters())
    tape, sums, rows = Tape(parameters), ClippedSum(parameters, Flat(clip)), 11
    with tape.recording(rows, rows, learning=True):
        losses = loss(model, *(leaf[:rows] for leaf in batch))
    tape.gradients(losses.sum())
    compiled = CompiledSum(model, loss, tape, sums, backend, **options)
    n = len(batch[0])
    compiled._room = n
    part = Part(0, np.arange(n), np.ones(n), n, last=True)
    return compiled, sums, lambda scale=1.0: compiled(tuple(batch), part, scale)


def _held(run):
    """The most bytes that ``run`` held between operations; what one needs inside is left out."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    events = list(profiler.profiler.kineto_results.events())
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    named = [e for e in events if e.name().startswith(("aten::", "sfumato_test::"))]
    outer: list[tuple[int, int]] = []
    for start, end in sorted((e.start_ns(), e.end_ns()) for e in named):
        if not outer or start >= outer[-1][1]:
            outer.append((start, end))
    starts = [start for start, _ in outer]
    now = most = 0
    before = None
    for time, change in changes:
        at = bisect.bisect_right(starts, time) - 1
        inside = at if at >= 0 and time <= outer[at][1] else None
        if inside is None or inside != before:
            most = max(most, now)
        now += change
        if inside is None:
            most = max(most, now)
        before = inside
    return max(most, now)
