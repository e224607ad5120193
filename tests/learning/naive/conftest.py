"""One thread: these tensors are too small to share out."""

import pytest


@pytest.fixture(autouse=True)
def on_one_thread(one_thread):
    """All tests of this room."""
