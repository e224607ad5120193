"""Sums of lots for those who add noise elsewhere: one row never moves them by more than C."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.lot_sums import LotSums


def losses(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def sums_of(model, width):
    return LotSums(model, losses, (torch.zeros(1, width), torch.zeros(1, dtype=torch.int64)))


def summed(sums, rows, clip, labels=None):
    labels = torch.zeros(len(rows), dtype=torch.int64) if labels is None else labels
    found = sums.clipped((rows, labels), clip)
    return torch.cat([part.flatten() for part in found.values()])


@pytest.mark.parametrize("blocks", [1, 4, 16])
def test_rounding_does_not_add_up_to_more_than_the_clip(blocks):
    """Rows of which half are lost or kept, in single precision, depending on where others stand."""
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    block = torch.full((2048, 2), -2 * 2.0**9 * 2**-24 * 0.99)
    block[:1025] = 100.0
    rows, sums = block.repeat(blocks, 1), sums_of(model, 2)
    moved = torch.linalg.vector_norm(summed(sums, rows, 1.0) - summed(sums, rows[1:], 1.0))
    assert 0.999 < moved <= 1.0


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 300])
def test_how_rows_fall_into_batches_does_not_matter(count):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    rows, labels = torch.randn(300, 4), torch.randint(3, (300,))
    sums = sums_of(model, 4)
    whole = summed(sums, rows, 0.2, labels)
    first, second = (summed(sums, rows[at], 0.2, labels[at]) for at in parts(count))
    torch.testing.assert_close(first + second, whole, rtol=0, atol=1e-12)


def parts(count):
    return slice(0, count), slice(count, 300)


def test_weights_are_those_the_model_has_now():
    model = nn.Linear(2, 2, bias=False)
    sums, rows = sums_of(model, 2), torch.ones(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[9.0, 9.0], [-9.0, -9.0]]))
    small = torch.linalg.vector_norm(summed(sums, rows, 1.0))  # sure, and right: hardly a slope
    assert small < 1e-6
    assert model.weight.dtype == torch.float32


def test_what_mixes_rows_is_refused():
    with pytest.raises(TrainingError):
        sums_of(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), 2)
