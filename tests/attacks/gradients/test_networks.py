"""Networks to attack, and what defences cost them."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.gradients.defences import GaussianNoise, LocalSteps
from sfumato.attacks.gradients.networks import leaky_cnn, relu_cnn
from sfumato.attacks.gradients.utility import accuracy, train_on_updates


@pytest.mark.parametrize(("make", "weights"), [(leaky_cnn, 15_826), (relu_cnn, 150_666)])
def test_sizes(make, weights):
    model = make((3, 32, 32), 10)
    assert sum(p.numel() for p in model.parameters()) == weights
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert make((1, 28, 28), 3)(torch.zeros(1, 1, 28, 28)).shape == (1, 3)


@pytest.mark.parametrize("make", [leaky_cnn, relu_cnn])
def test_other_inputs_are_refused(make):
    with pytest.raises(ValueError, match="shape must be that of images"):
        make((60,), 10)


@pytest.fixture
def task():
    torch.manual_seed(0)
    x = torch.rand(600, 10)
    y = (x[:, 0] > x[:, 1]).long()
    return nn.Linear(10, 2), x, y


def trained(task, defences=(), rounds=150):
    model, x, y = task
    return train_on_updates(
        model, x, y, rounds=rounds, batch=4, participants=4, rate=0.3, defences=defences,
        generator=np.random.default_rng(0),
    )  # fmt: skip


def test_updates_train_a_model_and_noise_keeps_them_from_it(task):
    model, x, y = task
    before = [p.detach().clone() for p in model.parameters()]
    assert accuracy(trained(task), x, y) > 0.93
    assert accuracy(trained(task, [GaussianNoise(30.0)]), x, y) < 0.9
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_local_steps_go_further_in_a_round(task):
    _, x, y = task
    few = accuracy(trained(task, rounds=8), x, y)
    assert accuracy(trained(task, [LocalSteps(8)], rounds=8), x, y) > few


def test_what_is_no_number_is_never_right(task):
    model, x, y = task
    with torch.no_grad():
        model.weight.fill_(torch.nan)
    assert accuracy(model, x, y) == 0.0
