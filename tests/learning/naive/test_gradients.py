"""The L1-clipped sum: one example moves it by at most C, whatever is in the example."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.naive.examples import losses, trainable
from sfumato.learning.naive.gradients import clipped_sum, is_dense_stack


class Wrapped(nn.Module):
    """The same function as a stack, but not seen to be one: its gradients are written out."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def stack(width=7):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 3))


def rows(count=20, scale=1.0):
    torch.manual_seed(1)
    return scale * torch.randn(count, 5), torch.randint(0, 3, (count,))


def autograd(model, x, y):
    """One example's gradient, by torch alone."""
    loss = F.cross_entropy(model(x[None]), y[None])
    found = torch.autograd.grad(loss, list(trainable(model).values()))
    return torch.cat([g.flatten() for g in found]).double()


@pytest.mark.parametrize("way", [stack, lambda: Wrapped(stack())], ids=["factored", "written"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_an_examples_contribution_has_norm_c_at_most_exactly(way, scale):
    model, (x, y) = way(), rows(12, scale)
    for clip in (1e-6, 0.1, 3.0):
        for i in range(len(y)):
            moved = clipped_sum(model, x[i : i + 1], y[i : i + 1], clip)
            assert math.fsum(moved.abs().tolist()) <= clip


@pytest.mark.parametrize("way", [stack, lambda: Wrapped(stack())], ids=["factored", "written"])
def test_the_sum_is_that_of_autograd_clipped_one_by_one(way):
    model, (x, y) = way(), rows()
    clip = 8.0
    expected = torch.zeros(len(clipped_sum(model, x, y, clip)), dtype=torch.float64)
    clipped = 0
    for i in range(len(y)):
        gradient = autograd(model, x[i], y[i])
        norm = gradient.abs().sum()
        clipped += int(norm > clip)
        expected += gradient * min(1.0, clip / norm)
    assert 0 < clipped < len(y)
    found = clipped_sum(model, x, y, clip)
    # Contributions are scaled down by 2^-14 more, for rounding.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=clipped * clip * 2.0**-14)


def test_both_ways_give_the_same_sum_with_frozen_parts():
    model, (x, y) = stack(), rows()
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    assert is_dense_stack(model)
    both = clipped_sum(model, x, y, 1.0), clipped_sum(Wrapped(model), x, y, 1.0)
    assert len(both[0]) == 35 + 3
    torch.testing.assert_close(*both)


@pytest.mark.parametrize("way", [stack, lambda: Wrapped(stack())], ids=["factored", "written"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 3e38])
def test_what_is_not_finite_contributes_nothing_and_harms_no_one(way, bad):
    model, (x, y) = way(), rows()
    alone = clipped_sum(model, x, y, 1.0)
    worse = torch.cat([x[:3], torch.full((1, 5), bad), x[3:]])
    labels = torch.cat([y[:3], torch.tensor([2]), y[3:]])
    found = clipped_sum(model, worse, labels, 1.0)
    moved = float((found - alone).abs().sum())
    assert moved <= 1e-5 if not math.isfinite(bad) else moved <= 1.0


@pytest.mark.parametrize("way", [stack, lambda: Wrapped(stack())], ids=["factored", "written"])
def test_a_label_that_names_no_class_contributes_nothing(way):
    model, (x, y) = way(), rows(2)
    for label in (-1, 3, 10**9):
        assert not clipped_sum(model, x[:1], torch.tensor([label]), 1.0).any()
    assert clipped_sum(model, x, y, 1.0).any()


def test_no_rows_give_zeros():
    assert not clipped_sum(stack(), torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), 1.0).any()


def test_the_loss_is_cross_entropy():
    scores, y = torch.randn(9, 4), torch.randint(0, 4, (9,))
    torch.testing.assert_close(losses(scores, y), F.cross_entropy(scores, y, reduction="none"))


def test_only_plain_stacks_are_taken_for_one():
    layer = nn.Linear(5, 5)
    hooked = stack()
    hooked[1].register_forward_hook(lambda module, args, out: out - out.mean(0))
    patched = stack()
    patched[1].forward = lambda x: x - x.mean(0)
    others = [
        nn.Sequential(layer, nn.ReLU(), layer),
        nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)),
        nn.Sequential(nn.Linear(5, 5), nn.Dropout()),
        nn.Linear(5, 3),
        hooked,
        patched,
        Wrapped(stack()),
    ]
    assert is_dense_stack(stack())
    assert not any(is_dense_stack(model) for model in others)


def test_convolutions_and_their_likes_are_written_out():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(8, 3))
    x, y = torch.randn(6, 1, 4, 4), torch.randint(0, 3, (6,))
    expected = sum(
        (g := autograd(model, x[i], y[i])) * min(1.0, 2.0 / float(g.abs().sum())) for i in range(6)
    )
    found = clipped_sum(model, x, y, 2.0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=12 * 2.0**-14)
