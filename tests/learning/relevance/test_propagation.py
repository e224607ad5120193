"""Relevance layer by layer: against hand computations, gradients, and what must be conserved."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.learning.relevance import (
    AlphaBetaRule,
    EpsilonRule,
    RelevanceRule,
    explain,
    rule_names,
)
from sfumato.learning.relevance.pictures import draw_relevance

RULES = [RelevanceRule.named(name) for name in rule_names()] + [EpsilonRule(0.3)]


def linear(weights, biases=None):
    layer = nn.Linear(len(weights[0]), len(weights), bias=biases is not None)
    layer.weight.data = torch.tensor(weights)
    if biases is not None:
        layer.bias.data = torch.tensor(biases)
    return layer


def network(seed=0, bias=True):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=bias), nn.ReLU(), nn.MaxPool2d(2),
        nn.Sequential(nn.Conv2d(3, 4, 2, stride=2, bias=bias), nn.ReLU()), nn.AvgPool2d(2, 1),
        nn.Flatten(), nn.Linear(4, 5, bias=bias), nn.ReLU(), nn.Linear(5, 3, bias=bias),
    )  # fmt: skip


def pictures(count=5, seed=1, below=0.0):
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) - below


@pytest.mark.parametrize(
    ("rule", "wanted", "absorbed"),
    [
        (RelevanceRule.named("z"), [2.0, -0.5], 0.0),
        (EpsilonRule(0.5), [1.5, -0.375], 0.375),
        (AlphaBetaRule(2.0), [3.0, -1.5], 0.0),
        (AlphaBetaRule(1.5), [2.25, -0.75], 0.0),
        (RelevanceRule.named("z-plus"), [1.5, 0.0], 0.0),
    ],
)
def test_one_layer_by_hand(rule, wanted, absorbed):
    model = nn.Sequential(linear([[2.0, -1.0]]))
    found = explain(model, torch.tensor([[1.0, 0.5]]), rule=rule)
    assert found.values.tolist() == [pytest.approx(wanted)]
    assert found.absorbed.tolist() == [pytest.approx(absorbed)]
    assert found.scores.tolist() == [1.5]


def test_two_layers_with_biases_by_hand():
    # h = relu(1*1 + 2*1 + 1, 1*1 - 1*1 + 0) = (4, 0); score 3*4 + 5*0 + 2 = 14.
    model = nn.Sequential(
        linear([[1.0, 2.0], [1.0, -1.0]], [1.0, 0.0]), nn.ReLU(), linear([[3.0, 5.0]], [2.0])
    )
    found = explain(model, torch.ones(1, 2), rule="z")
    # 12/14 of 14 reaches h_1, of which 1/4 and 2/4 the inputs; h_1's bias takes 3, the last 2.
    assert found.values.tolist() == [pytest.approx([3.0, 6.0])]
    assert found.absorbed.item() == pytest.approx(5.0)
    plus = explain(model, torch.ones(1, 2), rule="z-plus")
    assert plus.values.tolist() == [pytest.approx([3.0, 6.0])]


def test_alpha_beta_takes_signs_of_inputs_and_biases_into_account():
    # Contributions: (-1)(-2) = 2, 3 (-1) = -3, bias 4: plus 6, minus -3, score 3.
    model = nn.Sequential(linear([[-2.0, -1.0]], [4.0]))
    found = explain(model, torch.tensor([[-1.0, 3.0]]), rule=AlphaBetaRule(2.0))
    assert found.values.tolist() == [pytest.approx([2 * 3 * 2 / 6, -3 * 1.0])]
    assert found.absorbed.item() == pytest.approx(2 * 3 * 4 / 6)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("below", [0.0, 0.5])
def test_nothing_is_lost_that_is_not_counted(rule, below):
    found = explain(network(), pictures(300, below=below), rule=rule)
    total = found.values.flatten(1).sum(1) + found.absorbed
    assert torch.allclose(total, found.scores, rtol=0, atol=1e-9 * float(found.scores.abs().max()))


@pytest.mark.parametrize("rule", [r for r in RULES if not isinstance(r, EpsilonRule)], ids=str)
def test_without_biases_all_of_a_score_is_the_inputs(rule):
    found = explain(network(bias=False), pictures(20), rule=rule)
    assert torch.allclose(found.values.flatten(1).sum(1), found.scores, atol=1e-10)
    assert torch.allclose(found.absorbed, torch.zeros(20, dtype=torch.float64), atol=1e-10)


def test_by_contribution_is_gradient_times_input():
    """Of rectifiers and maxima, with biases or without."""
    model, x = network().double(), pictures().double().requires_grad_(True)
    scores = model(x)
    chosen = scores.max(1).values
    (slope,) = torch.autograd.grad(chosen.sum(), x)
    found = explain(model, x.detach(), rule="z")
    assert torch.allclose(found.values, (slope * x).detach(), atol=1e-12)
    assert torch.allclose(found.scores, chosen.detach())


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("layer", [nn.Conv2d(1, 2, 3, 2, 1, bias=False), nn.AvgPool2d(2)])
def test_convolution_and_average_are_linear_layers(rule, layer):
    x = pictures(3, below=0.5)
    with torch.no_grad():
        basis = torch.eye(64).reshape(64, 1, 8, 8)
        matrix = layer(basis).flatten(1).T
    head = linear(np.random.default_rng(2).normal(size=(2, len(matrix))).astype("f").tolist())
    dense = nn.Linear(64, len(matrix), bias=False)
    dense.weight.data = matrix.clone()
    one = explain(nn.Sequential(layer, nn.Flatten(), head), x, rule=rule).values
    other = explain(nn.Sequential(nn.Flatten(), dense, head), x, rule=rule).values
    assert torch.allclose(one, other, atol=1e-6)


def test_each_record_by_itself_and_the_class_that_is_asked_for():
    model, x = network(), pictures(600)
    whole = explain(model, x).values
    assert torch.equal(whole[599:], explain(model, x[599:]).values)
    changed = x.clone()
    changed[3] = 1.0
    other = explain(model, changed).values
    assert torch.equal(torch.cat([other[:3], other[4:]]), torch.cat([whole[:3], whole[4:]]))
    targets = torch.tensor([0, 1, 2, 9, -1])  # what is no class is the nearest one
    found = explain(model, x[:5], targets)
    wanted = model(x[:5]).gather(1, targets.clamp(0, 2)[:, None])[:, 0]
    assert torch.allclose(found.scores.float(), wanted, atol=1e-6)
    assert explain(model, x[:0]).values.shape == (0, 1, 8, 8)


def test_other_layers_and_rules_are_refused():
    with pytest.raises(ValueError, match=r"model must be .* got 'Tanh'"):
        explain(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(1, 2))
    with pytest.raises(ValueError, match="rule must be one of"):
        explain(network(), pictures(), rule="w-square")
    with pytest.raises(ValueError, match="alpha must be 1 or above"):
        AlphaBetaRule(0.5)
    with pytest.raises(ValueError, match="targets must be one class for each record"):
        explain(network(), pictures(), torch.zeros(3))
    with pytest.raises(ValueError, match="padding_mode"):
        explain(nn.Sequential(nn.Conv2d(1, 1, 3, padding_mode="reflect")), pictures())


def test_a_picture_is_drawn():
    figure = draw_relevance(explain(network(), pictures(6)).values, list("abcdef"))
    assert len(figure.axes) == 6
    image = figure.axes[0].images[0]
    assert image.norm.vmin == -image.norm.vmax
    with pytest.raises(ValueError, match="titles must be 1"):
        draw_relevance(np.zeros((4, 4)), ["a", "b"])
    with pytest.raises(ValueError, match="one or more images"):
        draw_relevance(np.zeros(4))
