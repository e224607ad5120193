import numpy as np
import pytest

from sfumato.attacks.gradients.tensor.activations import ACTIVATIONS, CUBIC, TANH
from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs


def loss(network, inputs, labels):
    return 0.5 * np.sum((network.output @ network.features(inputs) - labels) ** 2)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=str)
def test_gradients_are_those_of_the_loss(activation, draw):
    case = draw(activation, 3, 6, 2, seed=0)
    network, inputs, labels = case.network, case.inputs, case.labels
    network = network.with_output(np.linspace(-1, 1, 6))
    step = 1e-6
    by_output, by_hidden = np.empty(6), np.empty((6, 3))
    for unit in range(6):
        nudge = step * np.eye(6)[unit]
        ends = (network.with_output(network.output + sign * nudge) for sign in (1, -1))
        up, down = (loss(one, inputs, labels) for one in ends)
        by_output[unit] = (up - down) / (2 * step)
        for axis in range(3):
            moved = np.zeros((6, 3))
            moved[unit, axis] = step
            ends = (
                TwoLayerNetwork(network.hidden + sign * moved, network.output, activation)
                for sign in (1, -1)
            )
            up, down = (loss(one, inputs, labels) for one in ends)
            by_hidden[unit, axis] = (up - down) / (2 * step)
    np.testing.assert_allclose(network.gradient(inputs, labels), by_output, atol=1e-6)
    np.testing.assert_allclose(network.hidden_gradient(inputs, labels), by_hidden, atol=1e-6)
    rows = network.example_gradients(inputs, labels)
    np.testing.assert_allclose(rows.sum(axis=0), by_output, atol=1e-6)


def test_weights_are_standard_normal_and_residuals_minus_labels(draw):
    case = draw(CUBIC, 20, 20_000, 4, seed=1)
    spread = case.network.hidden.std()
    assert spread == pytest.approx(1, abs=5 / np.sqrt(2 * 400_000))
    assert case.network.hidden.mean() == pytest.approx(0, abs=5 / np.sqrt(400_000))
    residuals = case.network.residuals(case.inputs, case.labels)
    np.testing.assert_allclose(residuals, -case.labels, atol=0.02)
    assert case.network.output.std() == pytest.approx(1e-3 / np.sqrt(20_000), rel=0.03)
    assert (case.network.width, case.network.dimension) == (20_000, 20)


def test_an_odd_activation_cannot_tell_an_example_from_its_opposite(draw):
    case = draw(TANH, 5, 100, 3, seed=0)
    blank = case.network.with_output(np.zeros(100))
    one, other = (blank.gradient(sign * case.inputs, sign * case.labels) for sign in (1, -1))
    np.testing.assert_allclose(one, other, atol=1e-12)


def test_inputs_have_length_one():
    rows = unit_inputs(5, 7, generator=np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)


def test_shapes_are_told(draw):
    network = draw(CUBIC, 3, 10, 2, seed=0).network
    with pytest.raises(ValueError, match=r"inputs must be a table with 3 columns, got \(2, 4\)"):
        network.gradient(np.zeros((2, 4)), [1, 1])
    with pytest.raises(ValueError, match=r"labels must be one for each of 2 inputs, got \(3,\)"):
        network.gradient(np.zeros((2, 3)), [1, 1, 1])
    with pytest.raises(ValueError, match=r"output must be one weight for each of 10 units"):
        network.with_output(np.zeros(9))
    random = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"width must be .* got 0"):
        TwoLayerNetwork.draw(3, 0, generator=random)
    with pytest.raises(ValueError, match=r"output_scale must be .* got -1"):
        TwoLayerNetwork.draw(3, 5, generator=random, output_scale=-1)
    with pytest.raises(ValueError, match=r"count must be .* got 0"):
        unit_inputs(0, 5, generator=random)
