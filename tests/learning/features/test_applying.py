"""Applying features to many rows."""

import pytest
import torch
from torch import nn

from sfumato.learning.features import Plain, ScatteringFeatures, transform


@pytest.fixture(params=[1, 2])
def threads(request):
    torch.set_num_threads(request.param)
    return request.param


def test_batches_do_not_matter(threads):
    module = ScatteringFeatures(scales=1, orientations=2, groups=None).build((1, 8, 8))
    images = torch.rand(10, 1, 8, 8)
    whole = transform(module, images)
    assert torch.allclose(whole, module(images))  # bits may differ with the number of threads
    for batch in (1, 3, 10, 64):
        assert torch.equal(transform(module, images, batch=batch), whole)


def test_progress_types_and_threads(threads):
    told = []
    rows = torch.randint(0, 9, (7, 3), dtype=torch.uint8)
    found = transform(
        Plain().build((3,)), rows, batch=3, dtype=torch.float16, progress=lambda *n: told.append(n)
    )
    assert found.dtype == torch.float16
    assert torch.equal(found, rows.half())
    assert told == [(3, 7), (6, 7), (7, 7)]
    assert torch.get_num_threads() == threads


def test_no_gradients_and_no_rows():
    module = nn.Linear(3, 2)
    assert not transform(module, torch.rand(5, 3), batch=2).requires_grad
    assert transform(module, torch.rand(0, 3)).shape == (0, 2)


def test_errors_leave_the_threads_as_they_were(threads):
    with pytest.raises(RuntimeError):
        transform(nn.Linear(3, 2), torch.rand(9, 4), batch=2)
    assert torch.get_num_threads() == threads
    with pytest.raises(ValueError, match="floating-point"):
        transform(nn.Identity(), torch.rand(2, 2), dtype=torch.int64)
    with pytest.raises(ValueError, match="batch"):
        transform(nn.Identity(), torch.rand(2, 2), batch=0)
