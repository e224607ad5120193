"""Small tasks with public inputs and private labels: classes, and numbers."""

import numpy as np
import pytest
import torch

from sfumato.data import Dataset, Examples
from sfumato.ledger import Budget, Ledger


def blobs(count, seed):
    """Three clouds of eight numbers each, well apart."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    centres = np.random.default_rng(7).random((3, 8))
    inputs = centres[labels] + 0.12 * generator.normal(size=(count, 8))
    return Examples(inputs.clip(0, 1).astype(np.float32), labels)


@pytest.fixture(scope="session")
def data():
    """5,000 rows to train on, 1,000 public ones to test on."""
    return Dataset(
        name="blobs", train=blobs(5000, 0), test=blobs(1000, 1), classes=("a", "b", "c"),
        shape=(8,), bounds=(0.0, 1.0), source="made here", public_size=5000, test_is_public=True,
    )  # fmt: skip


def bent(count, seed):
    """15 + 30 x + 15 y, 8 more where z is far from 1/2, and noise."""
    generator = np.random.default_rng(seed)
    x = generator.random((count, 4)).astype(np.float32)
    more = 8.0 * (np.abs(x[:, 2] - 0.5) > 0.25)
    return Examples(x, 15 + 30.0 * x[:, 0] + 15 * x[:, 1] + more + generator.normal(0, 3, count))


@pytest.fixture(scope="session")
def wages():
    """Numbers between 10 and 70: 5,000 rows to train on, 1,000 public ones to test on."""
    return Dataset(
        name="wages", train=bent(5000, 0), test=bent(1000, 1), classes=(), shape=(4,),
        bounds=(0.0, 1.0), source="made here", public_size=5000, test_is_public=True,
        target_bounds=(10.0, 70.0),
    )  # fmt: skip


@pytest.fixture
def label_budget(tmp_path):
    """A ledger with a budget of labels that pays for one run of epsilon 2."""
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("labels", Budget(2.5), unit="label", neighbours="replace-one")
    return {"ledger": ledger, "dataset": "labels"}


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that work on one small operation together mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
