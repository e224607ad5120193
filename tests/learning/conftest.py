"""What tests of several rooms of learning share."""

import pytest


@pytest.fixture
def one_thread():
    """For tensors that are too small to share out."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
