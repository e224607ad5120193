"""Slopes and curvatures against autograd and finite differences, and one record by itself."""

import itertools

import numpy as np
import pytest
import torch
from torch.func import jacrev

from sfumato.learning.functional import arithmetic
from sfumato.learning.functional.expansion import expand
from sfumato.learning.functional.networks import ACTIVATIONS, LOSSES, Topology, as_module
from sfumato.mechanisms.sensitivity import NetworkExpansion

SHAPES = [(), (4,), (4, 3)]
ALL = list(itertools.product(SHAPES, ACTIVATIONS, LOSSES))


def drawn(topology, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [
        scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in topology.shapes
    ]


def rows(count=5, inputs=3, classes=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, inputs, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, classes, (count,), generator=generator)


def loss_of(topology, x, label):
    """The loss of one record as torch computes it, of flat weights."""
    activate = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}
    target = torch.nn.functional.one_hot(label, topology.outputs).double()

    def loss(flat):
        z = 2 * x - 1 if topology.centred else x
        layers = topology.split(flat)
        for layer in layers:
            sums = layer[:, : len(z)] @ z + (layer[:, -1] if topology.bias else 0)
            z = activate[topology.activation](sums)
        if topology.loss == "squares":
            return ((torch.sigmoid(sums) - target) ** 2).sum() / 2
        return -(sums.log_softmax(0) * target).sum()

    return loss


def flat(weights):
    return torch.cat([layer.ravel() for layer in weights])


@pytest.mark.parametrize(("hidden", "activation", "loss"), ALL)
@pytest.mark.parametrize(("bias", "centred"), [(True, False), (False, True)])
def test_slopes_are_gradients(hidden, activation, loss, bias, centred):
    topology = Topology(3, hidden, 3, activation, loss, bias, centred)
    weights, (x, y) = drawn(topology), rows()
    found = expand(topology, weights, x, y).gradients()
    for place in range(len(x)):
        expected = jacrev(loss_of(topology, x[place], y[place]))(flat(weights))
        assert torch.allclose(found[place], expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
@pytest.mark.parametrize("hidden", [(), (4,)])
def test_lecun_is_the_hessians_diagonal_up_to_one_hidden_layer(hidden, activation):
    topology = Topology(3, hidden, 3, activation, "squares")
    weights, (x, y) = drawn(topology), rows()
    found = expand(topology, weights, x, y, "lecun").diagonals()
    for place in range(len(x)):
        expected = jacrev(jacrev(loss_of(topology, x[place], y[place])))(flat(weights)).diag()
        assert torch.allclose(found[place], expected, rtol=1e-9, atol=1e-12)
    assert (found < 0).any()  # which is why it is not the usual one


def test_lecun_by_finite_differences_and_only_nearly_deeper():
    step, errors = 1e-4, []
    for hidden in ((4,), (4, 3)):
        topology = Topology(3, hidden, 2, "sigmoid", "squares")
        weights, (x, y) = drawn(topology), rows(1, classes=2)
        loss, at = loss_of(topology, x[0], y[0]), flat(weights)
        units = step * torch.eye(len(at), dtype=torch.float64)
        second = [(loss(at + u) - 2 * loss(at) + loss(at - u)) / step**2 for u in units]
        found = expand(topology, weights, x, y, "lecun").diagonals()[0]
        errors.append(float((found - torch.stack(second)).abs().max()))
    assert errors[0] < 1e-7
    assert errors[1] > 1e-5


@pytest.mark.parametrize(("hidden", "activation", "loss"), ALL)
def test_gauss_newton_is_the_diagonal_of_its_matrix_and_never_negative(hidden, activation, loss):
    """J' H J with the Hessian H of the loss by the scores, which for squares has no bend."""
    topology = Topology(3, hidden, 3, activation, loss)
    weights, (x, y) = drawn(topology, scale=2.0), rows()
    found = expand(topology, weights, x, y).diagonals()
    assert (found >= 0).all()
    module = topology.module().double()
    names = [name for name, _ in module.named_parameters()]
    for place in range(len(x)):

        def scores(at, row=x[place]):
            layers = iter(topology.split(at))
            given = {}
            for weight, bias in zip(names[::2], names[1::2], strict=True):
                layer = next(layers)
                given |= {weight: layer[:, :-1], bias: layer[:, -1]}
            return torch.func.functional_call(module, given, (row[None],))[0]

        jacobian, p = jacrev(scores)(flat(weights)), scores(flat(weights)).softmax(0)
        slope = scores(flat(weights)).sigmoid()
        slope = (slope * (1 - slope)) ** 2
        middle = torch.diag(p) - torch.outer(p, p) if loss == "cross-entropy" else torch.diag(slope)
        expected = (jacobian.T @ middle @ jacobian).diag()
        assert torch.allclose(found[place], expected, rtol=1e-9, atol=1e-12)


def test_the_printed_equations_are_lecun_of_squares():
    """Another implementation, of the equations as they were presented."""
    topology = Topology(3, (4, 2), 3, "sigmoid", "squares", bias=False)
    weights, (x, y) = drawn(topology), rows()
    other = NetworkExpansion([layer.numpy() for layer in weights])
    found = expand(topology, weights, x, y, "lecun")
    both = torch.cat([found.gradients(), found.diagonals()], dim=1).numpy()
    targets = np.eye(3)[y.numpy()]
    for place in range(len(x)):
        expected = other.record_coefficients((x[place].numpy(), targets[place]))
        assert both[place] == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_record_is_the_same_to_the_bit_wherever_it_stands(activation):
    topology = Topology(3, (5,), 3, activation)
    weights, (x, y) = drawn(topology), rows(67)
    together = expand(topology, weights, x, y)
    for place in (0, 1, 31, 66):
        alone = expand(topology, weights, x[place : place + 1], y[place : place + 1])
        assert torch.equal(alone.gradients()[0], together.gradients()[place])
        assert torch.equal(alone.diagonals()[0], together.diagonals()[place])


def test_functions_of_each_number():
    x = torch.linspace(-800, 0, 20_001, dtype=torch.float64)
    near = x > -690
    assert torch.allclose(arithmetic.exponential(x)[near], x[near].exp(), rtol=1e-15, atol=0)
    assert (arithmetic.exponential(x) >= 0).all()
    y = torch.linspace(-30, 30, 20_001, dtype=torch.float64)
    assert torch.allclose(arithmetic.logistic(y), y.sigmoid(), rtol=1e-14, atol=0)
    assert torch.allclose(arithmetic.hyperbolic_tangent(y), y.tanh(), rtol=0, atol=1e-15)
    scores = torch.tensor([[900.0, 0.0], [-900.0, 1.0]], dtype=torch.float64)
    assert torch.allclose(arithmetic.softmax(scores), scores.softmax(0), atol=1e-15)


def test_the_module_has_the_same_scores():
    topology = Topology(3, (4,), 3, "tanh", centred=True)
    weights, (x, _) = drawn(topology), rows()
    made = as_module(topology, weights)
    hidden = torch.tanh((2 * x - 1) @ weights[0][:, :-1].T + weights[0][:, -1])
    expected = hidden @ weights[1][:, :-1].T + weights[1][:, -1]
    assert torch.allclose(made(x.float()).double(), expected, atol=1e-5)


def test_first_weights_are_public_and_make_all_classes_as_likely():
    topology = Topology(3, (4,), 3)
    first = topology.initial(seed=7)
    assert all(map(torch.equal, first, topology.initial(seed=7)))
    assert not torch.equal(first[0], topology.initial(seed=8)[0])
    x, _ = rows()
    assert as_module(topology, first)(x.float()).std() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, (), 2), "inputs must be"),
        ((3, (0,), 2), "hidden must be"),
        ((3, (), 1), "outputs must be"),
        ((3, (), 2, "gelu"), "activation must be one of"),
        ((3, (), 2, "tanh", "hinge"), "loss must be one of"),
        ((9000, (), 2), "8192 or fewer together, got 9002"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(ValueError, match=message):
        Topology(*arguments)


def test_curvatures_that_are_not():
    topology = Topology(3, (), 2)
    weights, (x, y) = drawn(topology), rows(classes=2)
    with pytest.raises(ValueError, match="curvature must be one of"):
        expand(topology, weights, x, y, "fisher")
    with pytest.raises(ValueError, match="must not be 'none'"):
        expand(topology, weights, x, y, "none").diagonals()
