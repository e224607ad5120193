"""A small task with public inputs and private labels."""

import numpy as np
import pytest
import torch

from sfumato.data import Dataset, Examples


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


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that work on one small operation together mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
