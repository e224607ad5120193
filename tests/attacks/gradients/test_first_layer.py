"""A quotient of two gradients is the example."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato.attacks.gradients.defences import Clipping, GaussianNoise
from sfumato.attacks.gradients.first_layer import read_first_layer
from sfumato.attacks.gradients.sharing import share_gradient


def network(seed=0):
    torch.manual_seed(seed)
    layers = nn.Flatten(), nn.Linear(48, 30), nn.Tanh(), nn.Linear(30, 5)
    return nn.Sequential(*layers).double()


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(0, 4))
def test_one_example_is_exact(seed, label):
    model, x = network(seed), torch.rand(1, 3, 4, 4, dtype=torch.float64)
    sent = share_gradient(model, x, torch.tensor([label]), defences=[Clipping(0.01)])
    assert np.allclose(read_first_layer(sent, "1", (3, 4, 4)), x[0].numpy(), atol=1e-9)


def test_noise_is_averaged_over_rows():
    """Least squares: the error is the noise over the length of the bias' gradient."""
    model, x = network(), torch.rand(1, 3, 4, 4, dtype=torch.float64)
    plain, label = share_gradient(model, x, torch.tensor([1])), torch.tensor([1])
    deviation, errors = 1e-4, []
    for seed in range(40):
        noise, coins = GaussianNoise(deviation), np.random.default_rng(seed)
        sent = share_gradient(model, x, label, defences=[noise], generator=coins)
        errors.append(read_first_layer(sent, "1", (3, 4, 4)) - x[0].numpy())
    expected = deviation / float(plain.gradient["1.bias"].norm())
    expected *= np.sqrt(1 + float(x.square().mean()))  # of the weights, and of the bias times x
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(expected, rel=0.1)


def test_wrong_layers_and_shapes_are_refused():
    sent = share_gradient(network(), torch.rand(1, 3, 4, 4).double(), torch.tensor([0]))
    with pytest.raises(ValueError, match="layer must be one of the update's, with a bias"):
        read_first_layer(sent, "0", (3, 4, 4))
    with pytest.raises(ValueError, match="shape must be that of"):
        read_first_layer(sent, "1", (3, 5, 4))
