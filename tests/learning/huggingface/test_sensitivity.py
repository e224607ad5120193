"""What one row, or one document, does to what the Trainer adds noise to."""

import numpy as np
import pytest
import torch
from tests.learning.huggingface.conftest import (
    LENGTH,
    texts,
)

# --- sensitivity ----------------------------------------------------------------------------------


class Spy:
    """No noise; remembers what noise was asked for."""

    name, private = "spy", False

    def __init__(self):
        self.sums, self.stds = [], []

    def normal(self, like, std):
        self.sums.append(like.flatten().clone())
        self.stds.append(std)
        return torch.zeros_like(like)


def first_sum(make, data, owners=None, **privacy):
    """Of a lot with everybody in it: what the first step's noise is added to."""
    spy = Spy()
    units = len(data["input_ids"]) if owners is None else len(set(owners))
    trainer = make(
        data=data, max_steps=1, more={"noise": spy, "owners": owners},
        privacy={"public_size": 30, "lot_size": 30, "clip": 0.3, "delta": 1e-3} | privacy,
    )  # fmt: skip
    trainer.train()
    assert spy.stds == [pytest.approx(0.3)] * len(spy.sums)
    assert units <= 30
    return torch.cat(spy.sums)


def without(data, rows):
    kept = torch.tensor([i for i in range(len(data["input_ids"])) if i not in rows])
    return {name: value[kept] for name, value in data.items()}


@pytest.mark.parametrize("kind", ["usual", "nonsense", "empty"])
def test_one_row_more_moves_the_sum_by_the_clip_norm_at_most(make, kind):
    data = texts(20)
    if kind == "nonsense":
        data["input_ids"][4], data["labels"][4] = 10**9, torch.arange(LENGTH)
    if kind == "empty":
        data["attention_mask"][4], data["labels"][4] = 0, -100
    moved = float((first_sum(make, data) - first_sum(make, without(data, [4]))).norm())
    assert moved <= 0.3
    if kind == "empty":
        assert moved < 1e-6
    else:
        assert moved > 0.29  # these are long gradients, and are all clipped


def test_one_document_more_moves_the_sum_by_the_clip_norm_at_most(make):
    data, owners = texts(20), np.repeat(np.arange(5), 4)
    less = np.delete(owners, [4, 5, 6, 7])
    given = {"unit": "document", "rows_per_owner": 4}
    found = first_sum(make, data, owners, **given)
    moved = float((found - first_sum(make, without(data, [4, 5, 6, 7]), less, **given)).norm())
    assert 0.29 < moved <= 0.3
    by_row = float((first_sum(make, data) - first_sum(make, without(data, [4, 5, 6, 7]))).norm())
    assert by_row > 0.31  # four rows of one document, if rows were the unit
