"""Normalisation, scales, shifts, class tokens and other parameters without a matrix."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F


def scattered(model):
    """Parameters away from 0 and 1, statistics that are not the standard ones."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
        for name, b in model.named_buffers():
            if name.endswith(("mean", "var")):
                b.add_(0.3 * torch.rand_like(b))
    return model


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.LayerNorm(6), (6,)),
        (lambda: nn.LayerNorm(6), (5, 6)),
        (lambda: nn.LayerNorm((5, 6)), (5, 6)),
        (lambda: nn.LayerNorm((4, 5, 6)), (4, 5, 6)),
        (lambda: nn.LayerNorm((5, 6)), (4, 5, 6)),
        (lambda: nn.LayerNorm(6, bias=False), (5, 6)),
        (lambda: nn.LayerNorm(6, elementwise_affine=False), (5, 6)),
        (lambda: nn.GroupNorm(2, 6), (6,)),
        (lambda: nn.GroupNorm(3, 6), (6, 5)),
        (lambda: nn.GroupNorm(6, 6), (6, 5, 4)),
        (lambda: nn.GroupNorm(1, 6), (6, 3, 2, 4)),
        (lambda: nn.InstanceNorm1d(6, affine=True), (6, 5)),
        (lambda: nn.InstanceNorm2d(6, affine=True), (6, 5, 4)),
        (lambda: nn.InstanceNorm3d(6, affine=True), (6, 3, 2, 4)),
        (lambda: nn.InstanceNorm2d(6, affine=True, track_running_stats=True).eval(), (6, 5, 4)),
        (lambda: nn.RMSNorm(6), (5, 6)),
        (lambda: nn.RMSNorm((5, 6)), (5, 6)),
        (lambda: nn.RMSNorm(6, eps=0.1), (6,)),
        (lambda: nn.BatchNorm1d(6).eval(), (6,)),
        (lambda: nn.BatchNorm1d(6).eval(), (6, 5)),
        (lambda: nn.BatchNorm2d(6).eval(), (6, 5, 4)),
        (lambda: nn.BatchNorm3d(6).eval(), (6, 3, 2, 4)),
        (lambda: nn.PReLU(), (6, 5)),
        (lambda: nn.PReLU(6), (6, 5)),
        (lambda: nn.PReLU(6), (6,)),
    ],
)
@pytest.mark.parametrize("copies", [1, 2])
def test_layers(harness, layer, shape, copies):
    model = nn.Sequential(scattered(layer()), nn.Tanh())
    if not list(model.parameters()):
        model.append(nn.Linear(shape[-1], 2))
    harness(model, lambda b: torch.randn(b, *shape), copies=copies)


def test_a_layer_norm_with_the_batch_second(harness):
    model = scattered(nn.Sequential(nn.LayerNorm(6), nn.RMSNorm(6)))
    harness(
        model,
        lambda b: torch.randn(b, 5, 6),
        lambda m, x: m(x.mT.mT.transpose(0, 1)).sin().sum((0, 2)),
    )


SCALES = {
    "x * g": lambda m, x: x * m.g,
    "g * x": lambda m, x: m.g * x,
    "mul": lambda m, x: torch.mul(x, m.g),
    "x / g": lambda m, x: x / (1 + m.g.square()),
    "g / x": lambda m, x: m.g / (1 + x.square()),
    "x ** g": lambda m, x: (1 + x.square()) ** m.g,
    "x + b": lambda m, x: x + m.b,
    "b + x": lambda m, x: m.b + x,
    "x - b": lambda m, x: x - m.b,
    "b - x": lambda m, x: m.b - x,
    "add alpha": lambda m, x: torch.add(x, m.b, alpha=2.5),
    "sub alpha": lambda m, x: torch.sub(m.b, x, alpha=2.5) + torch.sub(x, m.g, alpha=1.5),
    "one minus": lambda m, x: x * (1 - m.g) + x * (2 / (3 + m.g.sin())),
    "scalar": lambda m, x: x * m.s + m.s,
    "exp of a scalar": lambda m, x: x * m.s.exp(),
    "both": lambda m, x: x * m.g + m.b,
    "square": lambda m, x: x * (m.g * m.g),
    "column": lambda m, x: x * m.column,
    "ones in front": lambda m, x: x * m.front + m.front,
    "wider than the data": lambda m, x: x[:, :, None] * m.g + m.b,
    "mask": lambda m, x: m.g * (x > 0),
    "whole numbers": lambda m, x: m.g * (3 * x).round().long(),
    "addcmul": lambda m, x: torch.addcmul(m.b, x, m.g, value=0.7),
    "lerp": lambda m, x: torch.lerp(x, m.b, m.g.sigmoid()),
    "where": lambda m, x: torch.where(x > 0, m.b, x * m.g),
    "maximum": lambda m, x: torch.maximum(x, m.b),
    "gate": lambda m, x: torch.sigmoid(m.s) * x + (1 - torch.sigmoid(m.s)) * x.tanh(),
    "softmax of weights": lambda m, x: x * m.g.softmax(0),
    "norm of weights": lambda m, x: x * (m.g / m.g.norm()) + m.b / m.b.abs().sum(),
    "sum of weights": lambda m, x: x * m.g.sum() + m.b.mean(),
    "stack": lambda m, x: x * torch.stack([m.g, m.b]).sum(0),
    "cat": lambda m, x: torch.cat([x, x], -1) * torch.cat([m.g, m.b]),
    "sum of two": lambda m, x: x * (m.g + m.b),
    "layer_norm": lambda m, x: F.layer_norm(x, (6,), m.g, m.b) + F.layer_norm(x, (6,), bias=m.b),
    "functional rms": lambda m, x: F.rms_norm(x, [6], weight=m.g),
    "distance": lambda m, x: torch.cdist(x, torch.stack([m.g, m.b])),
}


@pytest.mark.parametrize("expression", SCALES.values(), ids=SCALES.keys())
def test_own_expressions(harness, expression):
    model = harness.calls(expression, g=(6,), b=(6,), s=(), column=(5, 1), front=(1, 1, 6))
    for name, p in list(model.named_parameters()):
        p.requires_grad_(name in expression.__code__.co_names)
    harness(model, lambda b: torch.randn(b, 5, 6), copies=1, sizes=(4,))
    harness(model, lambda b: torch.randn(b, 5, 6), copies=2, sizes=(2,))


def test_in_place_sums(harness):
    def forward(m, x):
        y = x.sin()
        y += m.b
        y = y * 2
        y -= m.g
        y = y.relu_() + 0.5
        return y.add_(m.g, alpha=3).tanh_()

    harness(harness.calls(forward, g=(6,), b=(6,)), lambda b: torch.randn(b, 5, 6))


@pytest.mark.parametrize(
    "stretch",
    [
        lambda t, b: t.expand(b, -1, -1),
        lambda t, b: t.expand(b, 1, 6),
        lambda t, b: t[0].expand((b, 1, 6)),
        lambda t, b: t.expand_as(torch.empty(b, 1, 6)),
        lambda t, b: torch.broadcast_to(t, (b, 1, 6)),
        lambda t, b: t.broadcast_to((b, 1, 6)),
        lambda t, b: t.repeat(b, 1, 1),
        lambda t, b: t.repeat((b, 1, 1)),
        lambda t, b: t[0].repeat(b, 1, 1),
        lambda t, b: t.repeat(b, 3, 1),
        lambda t, b: t[0, 0, :3].repeat(b, 2, 2),
        lambda t, b: t[0, 0].expand(b, -1).unsqueeze(1),
    ],
)
def test_class_tokens(harness, stretch):
    def forward(m, x):
        return torch.cat([stretch(m.token, len(x)), x], 1) * m.g

    harness(
        harness.calls(forward, token=(1, 1, 6), g=(6,)), lambda b: torch.randn(b, 5, 6), copies=1
    )
    harness(
        harness.calls(forward, token=(1, 1, 6), g=(6,)), lambda b: torch.randn(b, 5, 6), copies=2
    )


def test_a_class_token_with_the_batch_second(harness):
    def forward(m, x):
        y = torch.cat([m.token.expand(-1, len(x), -1), x.transpose(0, 1)]) + m.places
        return y.transpose(0, 1)

    model = harness.calls(forward, token=(1, 1, 6), places=(6, 1, 6))
    harness(model, lambda b: torch.randn(b, 5, 6), copies=2)


def test_a_penalty_inside_the_loss_belongs_to_every_example(harness):
    def loss(model, x):
        return model(x).sin().sum(1) + model.weight.square().sum()

    harness(nn.Linear(6, 4), lambda b: torch.randn(b, 6), loss)


def test_parents_of_one_value_do_not_share_memory(harness):
    """Each group of parameters has weights of its own: blanking one must leave the other alone."""
    model = harness.calls(lambda m, x: x * (m.g + m.b), g=(6,), b=(6,))
    tape = harness.learn(model, lambda b: torch.randn(b, 6))
    x = torch.randn(3, 6)
    expected = harness.loop(model, x)
    pieces = harness.record(tape, model, x).pieces
    pieces["g"].weighted_sum(torch.tensor([0.0, 1.0, 0.0]))
    total = pieces["b"].weighted_sum(torch.ones(3))
    torch.testing.assert_close(total, expected["b"].sum(0))
