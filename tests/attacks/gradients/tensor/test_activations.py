import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import eval_hermitenorm

from sfumato.attacks.gradients.tensor.activations import (
    ACTIVATIONS,
    CUBIC,
    RELU,
    SIGMOID,
    SOFTPLUS,
    TANH,
    Activation,
    gaussian_means,
)


def expectation(function):
    """Over a standard normal number, adaptively, with a break where ReLU has its kink."""
    return quad(
        lambda z: float(function(np.float64(z))) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi),
        -12, 12, points=[0.0], limit=200, epsabs=1e-12,
    )[0]  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=str)
@pytest.mark.parametrize("order", range(5))
def test_means_are_expectations_of_the_function(activation, order):
    wanted = expectation(lambda z: activation.value(z) * eval_hermitenorm(order, z))
    assert activation.means[order] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=str)
@pytest.mark.parametrize("order", range(1, 5))
def test_stein_one_integration_by_parts(activation, order):
    """E[sigma^(p)] is the mean of the slope's (p - 1)-th derivative."""
    wanted = expectation(lambda z: activation.slope(z) * eval_hermitenorm(order - 1, z))
    assert activation.means[order] == pytest.approx(wanted, abs=1e-9)


def test_stein_down_to_the_derivative_itself():
    third = expectation(lambda z: -2 * (1 - np.tanh(z) ** 2) * (1 - 3 * np.tanh(z) ** 2))
    assert TANH.means[3] == pytest.approx(third, abs=1e-9)
    s = SIGMOID.value
    second = expectation(lambda z: s(z) * s(-z))
    assert SOFTPLUS.means[2] == pytest.approx(second, abs=1e-9)
    assert RELU.means[2] == pytest.approx(1 / np.sqrt(2 * np.pi))  # a unit step's slope, at 0


def test_which_orders_show_something():
    shown = {name: [p for p in range(1, 5) if one.has(p)] for name, one in ACTIVATIONS.items()}
    assert shown == {
        "z^2 + z^3": [1, 2, 3],
        "tanh": [1, 3],
        "sigmoid": [1, 3],
        "softplus": [1, 2, 4],
        "relu": [1, 2, 4],
    }
    assert [name for name, one in ACTIVATIONS.items() if one.odd] == ["tanh", "sigmoid"]


def test_sigmoid_of_large_numbers_does_not_overflow():
    assert SIGMOID.value(np.array([-1e4, 1e4])).tolist() == [0.0, 1.0]


def test_one_of_your_own():
    cube = Activation.of("cube", lambda z: z**3, lambda z: 3 * z**2)
    assert cube.means == gaussian_means(lambda z: z**3) == (0.0, 3.0, 0.0, 6.0, 0.0)


def test_means_must_be_five():
    with pytest.raises(ValueError, match=r"means must be 5 finite numbers, got \(1.0, 2.0\)"):
        Activation("short", CUBIC.value, CUBIC.slope, (1.0, 2.0))
