"""Who has other rows in which turn of a rehearsal on several ranks, and which rows."""

import itertools

import pytest
import torch

from sfumato.learning.dp_sgd.distributed.strangers import casts, strange


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_every_rank_is_a_stranger_to_every_other_one(count):
    turns = [casts(rank, count) for rank in range(count)]
    assert {len(turn) for turn in turns} == {2 * (count - 1).bit_length()}
    for one, other in itertools.permutations(range(count), 2):
        assert any(a and not b for a, b in zip(turns[one], turns[other], strict=True))


def test_strange_rows_are_others_in_every_place_that_can_be():
    batch = (torch.randn(3, 2), torch.tensor([0, 1, 1]), torch.tensor([True, False, True]))
    numbers, labels, flags = strange(batch)
    assert bool(numbers.isnan().all())
    assert labels.tolist() == [1, 0, 0]
    assert flags.tolist() == [False, True, False]


def test_strange_whole_numbers_are_ones_that_their_column_has():
    (found,) = strange((torch.tensor([[7, 2], [5, 2], [9, 4]]),))
    assert found.tolist() == [[5, 2], [5, 2], [5, 2]]
    assert strange((torch.zeros(0, dtype=torch.long),))[0].shape == (0,)
