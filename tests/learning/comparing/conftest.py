"""A small table that a linear model learns, public or private, for all tests of this room."""

import numpy as np
import pytest

from sfumato.data import Dataset, Examples

SIZE = 400


def made_up(seed=0, rows=SIZE, public=True, name="made-up", owners=None, shape=(3,), citation=""):
    rng = np.random.default_rng(seed)

    def examples(count):
        inputs = rng.random((count, *shape), dtype=np.float32)
        return Examples(inputs, (inputs.reshape(count, -1)[:, 0] > 0.5).astype(np.int64))

    return Dataset(
        name, examples(rows), examples(100), ("no", "yes"), shape, (0.0, 1.0), "made up",
        citation=citation, owners=owners, public_size=rows, test_is_public=public,
    )  # fmt: skip


@pytest.fixture
def table():
    return made_up()


@pytest.fixture(autouse=True)
def on_one_thread(one_thread):
    """All tests of this room."""
