"""Handwritten digits of 8 x 8 pixels, models of half of them, a judge that knows the others."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.attacks.inversion.priors import train_autoencoder_prior


def trained(module, inputs, labels, steps, rate):
    x, y = torch.as_tensor(inputs), torch.as_tensor(labels)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
    return module.eval()


@pytest.fixture(scope="session")
def digits():
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return SimpleNamespace(
        private=(images[:900], labels[:900]),
        others=(images[900:], labels[900:]),
        classes=np.arange(10),
        shape=(1, 8, 8),
    )


@pytest.fixture(scope="session")
def softmax(digits):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return trained(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), *digits.private, 150, 0.05)


@pytest.fixture(scope="session")
def mlp(digits):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
        return trained(nn.Sequential(*layers), *digits.private, 150, 0.01)


@pytest.fixture(scope="session")
def prior(digits):
    return train_autoencoder_prior(
        digits.others[0], generator=np.random.default_rng(1), code=12, hidden=128, epochs=40,
        batch_size=32,
    )  # fmt: skip


@pytest.fixture(scope="session")
def judge(digits):
    """Seven nearest neighbours among digits that no model was trained on."""
    from sklearn.neighbors import KNeighborsClassifier

    images, labels = digits.others
    found = KNeighborsClassifier(7, metric="cosine").fit(images.reshape(len(images), -1), labels)
    return lambda x: found.predict_proba(x.reshape(len(x), -1))
