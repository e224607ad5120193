"""A linear network's gradient is a few linear combinations; they are taken apart."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.gradients.linear_networks import (
    combinations_from_gradient,
    matched_correlation,
    unmix,
)
from sfumato.attacks.gradients.sharing import share_gradient


def linear_network(inputs, outputs, hidden=32):
    torch.manual_seed(0)
    first, last = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, outputs, bias=False)
    return nn.Sequential(nn.Flatten(), first, last).double()


def test_one_example_is_the_whole_of_it():
    """The lecture's own case: what is left of "a linear combination" if there is one example."""
    model, x = linear_network(64, 2), torch.rand(1, 64, dtype=torch.float64)
    sent = share_gradient(model, x, torch.tensor([1]))
    found = combinations_from_gradient(sent.gradient["1.weight"], model[2].weight.detach())
    for row in found:
        assert abs(np.corrcoef(row, x[0])[0, 1]) == pytest.approx(1.0, abs=1e-9)


def test_combinations_are_those_of_the_residuals():
    model, x = linear_network(20, 5), torch.rand(3, 20, dtype=torch.float64)
    y = torch.tensor([0, 3, 4])
    sent = share_gradient(model, x, y)
    residuals = model(x).softmax(dim=1) - nn.functional.one_hot(y, 5)
    wanted = (residuals.T @ x / 3).detach().numpy()
    found = combinations_from_gradient(sent.gradient["1.weight"], model[2].weight.detach())
    assert np.allclose(found, wanted, atol=1e-10)


@pytest.mark.parametrize("batch", [2, 4, 8])
def test_a_batch_of_photographs_is_taken_apart(batch, photographs):
    """One gradient of ten outputs."""
    images = photographs(batch, 32)
    model, x = linear_network(3 * 32 * 32, 10), torch.from_numpy(images).double()
    sent = share_gradient(model, x, torch.arange(batch) % 5)
    mixed = combinations_from_gradient(sent.gradient["1.weight"], model[2].weight.detach())
    found = unmix(mixed, batch, generator=np.random.default_rng(0), shape=(3, 32, 32))
    assert matched_correlation(found, images).min() > 0.95


def test_rounds_are_as_good_as_outputs(photographs):
    """The lecture's network has one output; the same three examples take part in six rounds."""
    images, random = photographs(3, 32).reshape(3, -1).astype(np.float64), np.random.default_rng(1)
    sums = []
    for _ in range(6):
        hidden, output = random.standard_normal((16, 3072)) / 55, random.standard_normal((1, 16))
        residuals = (images @ hidden.T @ output.T)[:, 0] - np.array([1.0, -1.0, 1.0])
        by_hidden = output.T @ (residuals @ images)[None]
        sums.append(combinations_from_gradient(by_hidden, output)[0])
    found = unmix(sums, 3, generator=random, shape=(3, 32, 32))
    assert matched_correlation(found, images).min() > 0.95


def test_sources_are_found_up_to_order_sign_and_scale():
    random = np.random.default_rng(3)
    sources = np.sign(random.standard_normal((6, 5000))) * random.exponential(size=(6, 5000))
    found = unmix(random.standard_normal((9, 6)) @ sources, 6, generator=random)
    assert matched_correlation(found, sources).min() > 0.99
    assert np.allclose(found @ found.T / 5000, np.eye(6), atol=1e-8)


def test_wrong_shapes_are_refused():
    random = np.random.default_rng(0)
    with pytest.raises(ValueError, match="combinations must be at least 4"):
        unmix(np.ones((3, 10)), 4, generator=random)
    with pytest.raises(ValueError, match="shape must be that of 10 pixels"):
        unmix(np.ones((4, 10)), 4, generator=random, shape=(3, 3))
    with pytest.raises(ValueError, match="output_weights must be a matrix of 8 columns"):
        combinations_from_gradient(np.ones((8, 3)), np.ones((2, 7)))
