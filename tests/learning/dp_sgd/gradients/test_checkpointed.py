"""Parts of a model that run again in the backward pass (torch.utils.checkpoint)."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sfumato.learning.dp_sgd.gradients.uses import NotCovered


def again(function, *inputs):
    return checkpoint(function, *inputs, use_reentrant=False)


def vectors(batch):
    return torch.randn(batch, 5, 4)


def tokens(batch):
    return torch.randint(0, 9, (batch, 5))


class Block(nn.Module):
    """What a layer of a transformer does: a norm, matrices, a scale, a residual."""

    def __init__(self, turned=False):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(4), nn.Linear(4, 6), nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.randn(4))
        self.turned = nn.Parameter(torch.randn(4, 4)) if turned else None

    def forward(self, x):
        if self.turned is not None:
            x = x + x.sin() @ self.turned.t() + sum(F.linear(x, w) for w in self.turned.chunk(1))
        return x + self.b(self.a(self.norm(x)).sin()) * self.scale


class Stack(nn.Module):
    def __init__(self, block, layers=2, checkpointed=True):
        super().__init__()
        self.e = nn.Embedding(9, 4, padding_idx=2)
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.checkpointed = checkpointed

    def forward(self, t):
        x = self.e(t)
        for block in self.blocks:
            x = again(block, x) if self.checkpointed else block(x)
        return F.linear(x, self.e.weight)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "with turned and split weights"])
def test_gradients_are_those_of_one_example_at_a_time(harness, turned, copies):
    harness(Stack(lambda: Block(turned)), tokens, copies=copies)


def test_the_same_with_and_without(harness):
    model = Stack(Block, checkpointed=False)
    tape, inputs = harness.learn(model, tokens), tokens(7)
    plain = harness.record(tape, model, inputs)
    model.checkpointed = True
    checked = harness.record(tape, model, inputs)
    assert plain.pieces.keys() == checked.pieces.keys()
    for name, piece in plain.pieces.items():
        assert torch.equal(piece.squared_norms(), checked.pieces[name].squared_norms())
        assert torch.equal(piece.written(), checked.pieces[name].written())


def test_a_part_inside_a_part(harness):
    inner = Block()

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.last = inner, nn.Linear(4, 4)

        def forward(self, x):
            return self.last(again(self.inner, x).cos())

    model = harness.calls(lambda m, x: again(m.outer, x), outer=Outer())
    harness(model, vectors)


def test_any_other_function_of_a_parameter(harness):
    """By the fallback, which keeps its inputs, too."""
    model = harness.calls(lambda m, x: again(lambda y: torch.atan2(y, m.w) + y, x.sin()), w=(4,))
    harness(model, vectors)


def test_chance_inside_a_part_is_the_same_in_both_runs(harness):
    model = harness.calls(
        lambda m, x: again(lambda y: F.dropout(m.b(F.dropout(m.a(y), 0.5)), 0.5), x),
        a=nn.Linear(4, 6), b=nn.Linear(6, 3),
    )  # fmt: skip
    tape, x = harness.learn(model, vectors), vectors(6)
    torch.manual_seed(3)
    with tape.recording(6, 6):
        losses = harness.default_loss(model, x)
    found = tape.gradients(losses.sum())
    torch.manual_seed(3)
    expected = torch.autograd.grad(harness.default_loss(model, x).sum(), list(model.parameters()))
    for (name, _), total in zip(model.named_parameters(), expected, strict=True):
        assert torch.allclose(found.pieces[name].weighted_sum(torch.ones(6)), total, atol=1e-12)


def test_activations_are_not_held_meanwhile(harness):
    """Only what lies between parts: the point of it all."""
    seen = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 4)

        def forward(self, x):
            hidden = self.a(x).sin()
            seen.append(weakref.ref(hidden.untyped_storage()))
            return x + self.b(hidden)

    model = Stack(Watching)
    tape = harness.learn(model, tokens)
    seen.clear()
    with tape.recording(6, 6):
        losses = harness.default_loss(model, tokens(6))
    gc.collect()
    assert len(seen) == 2
    assert all(reference() is None for reference in seen)
    tape.gradients(losses.sum())
    assert len(seen) == 4  # each ran again, once


def test_a_changed_activation_is_found(harness):
    def forward(m, x):
        def part(y):
            hidden = m.b(y)
            out = m.a(hidden)
            hidden.add_(1)
            return out + hidden.cos().sum(-1, keepdim=True)  # so that the second run comes so far

        return again(part, x)

    model = harness.calls(forward, a=nn.Linear(4, 3), b=nn.Linear(4, 4))
    with pytest.raises(NotCovered, match="in place"):
        harness.learn(model, vectors)


def test_a_training_run_with_dropout_and_parts(same_coins):
    """The rehearsal holds chance still in both runs of a part, and the run itself does not."""
    import sfumato as sf

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x):
            return again(lambda y: self.b(F.dropout(self.a(y), 0.3, self.training)), x)

    model, x = Net(), torch.randn(40, 4)
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (x, torch.zeros(40, dtype=torch.long)),
        public_size=40, lot_size=10, steps=3, noise_multiplier=1.0, delta=1e-4,
    )  # fmt: skip
    with same_coins(0):
        trainer.fit(lambda m, x, y: F.cross_entropy(m(x), y, reduction="none"))
    assert trainer.steps_taken == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_whose_backward_pass_runs_in_a_thread_of_its_own(harness):
    model = Stack(lambda: Block(turned=True)).cuda()
    harness(model, lambda batch: tokens(batch).cuda())
