import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.learning.pate.students.learners import Average, Shuffled, cosine


@given(total=st.integers(1, 20), size=st.integers(1, 30), seed=st.integers(0, 5))
def test_every_row_comes_once_before_any_comes_again(total, size, seed):
    batches = Shuffled(total, size, seed)
    seen = torch.cat([batches(step) for step in range(total)]).view(-1, total)
    assert torch.equal(seen.sort(1).values, torch.arange(total).expand_as(seen))
    assert torch.equal(Shuffled(total, size, seed)(3), batches(3))


def test_streams_and_seeds_have_their_own_orders():
    first = Shuffled(50, 50, 0)(0)
    assert not torch.equal(first, Shuffled(50, 50, 1)(0))
    assert not torch.equal(first, Shuffled(50, 50, 0, stream=1)(0))


def test_the_rate_falls_along_a_cosine():
    assert cosine(0.4, 0, 10) == 0.4
    assert cosine(0.4, 5, 10) == pytest.approx(0.4 * math.cos(7 * math.pi / 32))


def test_the_average_is_the_formula():
    model, copy = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
    average = Average(model, copy, 0.9)
    expected = 1.0
    for step in range(100):
        with torch.no_grad():
            model.weight.fill_(float(step))
        model.num_batches_tracked += 1
        average.update(step)
        kept = min(0.9, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * step
    assert float(copy.weight) == pytest.approx(expected, rel=1e-5)
    assert int(copy.num_batches_tracked) == 100
