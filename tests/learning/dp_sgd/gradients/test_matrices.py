"""Linear layers, embeddings and other matrix products."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients import pieces, summing


@pytest.mark.parametrize("shape", [(), (5,), (3, 5), (2, 3, 2), (1,), (40,)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(harness, shape, bias):
    model = nn.Sequential(nn.Linear(6, 4, bias=bias), nn.Tanh(), nn.Linear(4, 3, bias=bias))
    harness(model, lambda b: torch.randn(b, *shape, 6))


def test_linear_of_one_input_and_one_output(harness):
    harness(nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1)), lambda b: torch.randn(b, 1))


@pytest.mark.parametrize("batch_at", [1, 2])
def test_linear_with_the_batch_elsewhere(harness, batch_at):
    model = nn.Linear(6, 4)

    def loss(model, x):
        return model(x.movedim(0, batch_at)).movedim(batch_at, 0).sin().flatten(1).sum(1)

    harness(model, lambda b: torch.randn(b, 3, 2, 6), loss)


def test_linear_with_time_folded_into_the_batch(harness):
    def loss(model, x):
        return model(x.flatten(0, 1)).unflatten(0, (len(x), 5)).sin().flatten(1).sum(1)

    harness(nn.Linear(6, 4), lambda b: torch.randn(b, 5, 6), loss)


@pytest.mark.parametrize(
    "expression",
    [
        lambda m, x: x @ m.w,
        lambda m, x: torch.matmul(x, m.w),
        lambda m, x: x.matmul(m.w),
        lambda m, x: torch.mm(x[:, 0], m.w),
        lambda m, x: x[:, 0].mm(m.w),
        lambda m, x: torch.addmm(m.b, x[:, 0], m.w),
        lambda m, x: torch.addmm(m.b, x[:, 0], m.w, beta=0.5, alpha=3.0),
        lambda m, x: torch.addmm(m.b[:1], x[:, 0], m.w),
        lambda m, x: F.linear(x, m.w.T, m.b),
        lambda m, x: F.linear(x, m.w.t()) * m.b.sum(),
        lambda m, x: F.linear(x, m.w.mT, m.b),
        lambda m, x: F.linear(x, m.w.transpose(0, 1), m.b),
        lambda m, x: F.linear(x, m.w.permute(1, 0), m.b),
        lambda m, x: F.linear(x, m.w[:, 0]).unsqueeze(-1),
        lambda m, x: x @ m.w[:, 0].sin(),
        lambda m, x: (m.w.T @ x.transpose(1, 2)).transpose(1, 2) + m.b,
        lambda m, x: torch.einsum("bti,ij->btj", x, m.w) + m.b,
        lambda m, x: torch.einsum("bti,ij->bj", [x, m.w]),
        lambda m, x: torch.tensordot(x, m.w, dims=1),
        lambda m, x: torch.baddbmm(m.b.expand(len(x), 1, 4), x, m.w.expand(len(x), 6, 4)),
        lambda m, x: torch.bmm(x, m.w.unsqueeze(0).expand(len(x), -1, -1)),
        lambda m, x: F.linear(m.w.T, x[:, 0]).T,
    ],
)
def test_products(harness, expression):
    harness(harness.calls(expression, w=(6, 4), b=(4,)), lambda b: torch.randn(b, 3, 6))


@pytest.mark.parametrize("padding", [None, 0, 4, -1])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3)])
def test_embedding(harness, shape, padding):
    model = nn.Embedding(6, 4, padding_idx=padding)
    harness(model, lambda b: torch.randint(0, 6, (b, *shape)), copies=1)
    harness(model, lambda b: torch.randint(0, 6, (b, *shape)), copies=3)


@pytest.mark.parametrize("padding", [2, -1, -6])
def test_padding_named_from_the_end(harness, padding):
    model = harness.calls(lambda m, t: F.embedding(t, m.w, padding), w=(6, 4))
    harness(model, lambda b: torch.randint(0, 6, (b, 9)))


def test_embedding_of_one_token_again_and_again(harness):
    harness(nn.Embedding(6, 4), lambda b: torch.full((b, 9), 2))


def test_embedding_with_the_batch_second(harness):
    def loss(model, tokens):
        return model(tokens.T).sin().sum((0, 2))

    harness(nn.Embedding(6, 4, padding_idx=1), lambda b: torch.randint(0, 6, (b, 7)), loss)


def test_embedding_by_index(harness):
    harness(harness.calls(lambda m, t: m.w[t], w=(6, 4)), lambda b: torch.randint(0, 6, (b, 5)))


def test_sparse_embedding_gives_dense_gradients(harness):
    model = nn.Embedding(6, 4, sparse=True)
    tape = harness.learn(model, lambda b: torch.randint(0, 6, (b, 5)))
    tokens = torch.randint(0, 6, (4, 5))
    dense = nn.Embedding(6, 4, _weight=model.weight.detach().clone())
    expected = harness.loop(dense, tokens)
    harness.compare(harness.record(tape, model, tokens), expected)


def test_positions_of_no_example(harness):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(6, 4), nn.Embedding(9, 4)

        def forward(self, tokens):
            return self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))

    harness(Positions(), lambda b: torch.randint(0, 6, (b, 5)))


def test_bilinear(harness):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.Bilinear(3, 4, 2)

        def forward(self, x):
            return self.b(x[..., :3], x[..., 3:])

    harness(Two(), lambda b: torch.randn(b, 7))
    harness(Two(), lambda b: torch.randn(b, 5, 7))


@pytest.mark.parametrize(
    "expression",
    [
        lambda m, x: F.linear(x, m.w) + F.linear(F.linear(x, m.a), m.b),
        lambda m, x: F.linear(x, m.w + 0.5 * m.b @ m.a),
        lambda m, x: x @ m.w.T + x @ m.a.T @ m.b.T,
        lambda m, x: F.linear(x, m.w / (1 + m.w.square().sum()) + torch.mm(m.b, m.a)),
    ],
)
def test_low_rank_products(harness, expression):
    harness(harness.calls(expression, w=(4, 6), a=(2, 6), b=(4, 2)), lambda b: torch.randn(b, 3, 6))


def test_weight_norm(harness):
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)),
        nn.Tanh(),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3), dim=1),
    )
    harness(model, lambda b: torch.randn(b, 6))


def test_a_parametrised_convolution(harness):
    model = nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 4, 3))
    harness(model, lambda b: torch.randn(b, 2, 6, 5))


def test_an_orthogonal_parametrisation(harness):
    model = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="cayley")
    harness(model, lambda b: torch.randn(b, 4))


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (7, 3)])
@pytest.mark.parametrize("places", [1, 2, 9])
def test_a_weighted_sum_by_pieces_is_the_sum(monkeypatch, rows, columns, places):
    """Blocks of one, some or all units, side by side or by hand, a bad unit among them."""
    left, right = torch.randn(11, places, rows), torch.randn(11, places, columns)
    left[4], right[4], weights = math.inf, math.nan, torch.rand(11)
    weights[4] = 0.0
    kept = [unit for unit in range(11) if unit != 4]
    exact = sum(weights[u] * left[u].T @ right[u] for u in kept)
    for terms, numbers in itertools.product((1, 4, 256), (4, 64, 2**17)):
        monkeypatch.setattr(summing, "TERMS", terms)
        monkeypatch.setattr(summing, "_CACHE", numbers)
        found = pieces.Outer(left, right, (rows, columns)).weighted_sum(weights)
        assert torch.allclose(found, exact.double(), atol=1e-5)
