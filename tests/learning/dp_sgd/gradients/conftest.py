"""What these tests share: a tape's answers beside a plain loop over single examples."""

from unittest.mock import patch

import pytest
import torch
from torch import nn

from sfumato.learning.dp_sgd.gradients import convolution, pieces
from sfumato.learning.dp_sgd.gradients.layout import AmbiguousLayout, telling_sizes
from sfumato.learning.dp_sgd.gradients.tape import Tape

TOLERANCE = 1e-10


@pytest.fixture(autouse=True)
def _doubles(doubles):
    """All of them, in doubles."""


def _tuple(value):
    return value if isinstance(value, tuple) else (value,)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _tensors(item)]
    return []


def _loss(model, *inputs):
    """A number an example from whatever the model returns, batch first; not linear in it."""
    outputs = [o for o in _tensors(model(*inputs)) if o.requires_grad]
    return sum((o + 0.3).sin().flatten(1).sum(1) for o in outputs)


class Calls(nn.Module):
    """One expression of parameters, given by their shapes, and of layers."""

    def __init__(self, expression, **parts):
        super().__init__()
        for name, part in parts.items():
            value = nn.Parameter(torch.randn(part)) if isinstance(part, tuple) else part
            setattr(self, name, value)
        self.expression = expression

    def forward(self, *inputs):
        return self.expression(self, *inputs)


class Harness:
    """Records a model and compares with the loop; ``loss(model, *inputs)`` gives (rows,)."""

    default_loss = staticmethod(_loss)
    calls = Calls

    def learn(self, model, make, loss=_loss, copies=1):
        """A tape that knows where the batch is."""
        parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        tape = Tape(parameters)
        lengths = [n for p in parameters.values() for n in p.shape]
        lengths += [n for t in _tuple(make(1)) for n in t.shape[1:]]
        for size in telling_sizes(lengths):
            try:
                self.record(tape, model, make(size * copies), loss, copies, learning=True)
            except AmbiguousLayout:
                tape.sites.clear()
                tape.clear()
                continue
            return tape
        raise AssertionError("no telling size")

    def record(self, tape, model, inputs, loss=_loss, copies=1, learning=False):
        """Every parameter's gradients on one physical batch."""
        rows = len(_tuple(inputs)[0])
        with tape.recording(rows, rows // copies, learning=learning):
            losses = loss(model, *_tuple(inputs))
        return tape.gradients(losses.sum())

    def loop(self, model, inputs, loss=_loss, copies=1):
        """(U, *shape) by name: each unit alone, by autograd."""
        names = [n for n, p in model.named_parameters() if p.requires_grad]
        own = [p for p in model.parameters() if p.requires_grad]
        units = len(_tuple(inputs)[0]) // copies
        found = []
        for unit in range(units):
            rows = slice(unit * copies, (unit + 1) * copies)
            total = loss(model, *(t[rows] for t in _tuple(inputs))).sum()
            found.append(torch.autograd.grad(total, own, allow_unused=True, materialize_grads=True))
        return {n: torch.stack([f[i] for f in found]) for i, n in enumerate(names)}

    def compare(self, gradients, expected, tolerance=TOLERANCE):
        """Norms, written gradients and weighted sums against the loop's."""
        largest = max(float(g.abs().max()) for g in expected.values())
        longest = max(float(g.reshape(len(g), -1).norm(dim=1).max()) for g in expected.values())
        for name, reference in expected.items():
            if name not in gradients.pieces:
                assert not reference.any(), f"{name} was missed"
                continue
            piece, units = gradients.pieces[name], len(reference)
            norms = piece.squared_norms()
            true = reference.reshape(units, -1).square().sum(1)
            assert norms.shape == (units,), name
            assert float((norms - true).abs().max()) <= tolerance * longest**2, name
            written = piece.written().clone()
            assert written.shape == reference.shape, name
            assert float((written - reference).abs().max()) <= tolerance * largest, name
            weights = torch.rand(units, device=reference.device) + 0.1
            for _ in range(2):
                total = piece.weighted_sum(weights)
                expect = torch.einsum("u,u...->...", weights, reference)
                assert total.shape == reference.shape[1:], name
                assert total.dtype == reference.dtype, name
                assert float((total - expect).abs().max()) <= tolerance * largest * units, name
                weights = weights.clone()
                weights[units // 2] = 0  # the second time

    def __call__(
        self, model, make, loss=_loss, *, sizes=(4, 1), copies=1, ways=(None, True, False)
    ):
        """Learns once; then compares on batches of ``sizes`` units, by every way to the norms."""
        tape = self.learn(model, make, loss, copies)
        for units in sizes:
            inputs = make(units * copies)
            expected = self.loop(model, inputs, loss, copies)
            for ghost in ways:
                with self.choosing(ghost):
                    gradients = self.record(tape, model, inputs, loss, copies)
                    self.compare(gradients, expected)
        assert all(p.grad is None for p in model.parameters())
        return tape

    @staticmethod
    def choosing(ghost):
        """A context with one way forced: True ghost, False written, None as is cheapest."""
        return _Choosing(ghost)


class _Choosing:
    def __init__(self, ghost):
        self.patches = []
        if ghost is not None:
            self.patches = [
                patch.object(module, "prefer_ghost", lambda *_, **__: ghost)
                for module in (pieces, convolution)
            ]

    def __enter__(self):
        for each in self.patches:
            each.start()

    def __exit__(self, *_):
        for each in self.patches:
            each.stop()


@pytest.fixture
def harness():
    return Harness()
