"""Padding to a declared length: a row is a function of its item alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.learning.dp_sgd.padding import to_length

SEQUENCES = st.lists(st.integers(1, 9), min_size=1, max_size=9)


@given(
    SEQUENCES, st.lists(SEQUENCES, max_size=3), st.integers(1, 7), st.booleans(),
    st.sampled_from(["start", "end"]),
)  # fmt: skip
def test_a_row_does_not_depend_on_its_company(own, others, length, left, keep):
    pad = sf.PadTo(length, -1, mask=True, left=left, keep=keep)
    row, mask = pad([own])
    batch, masks = pad([*others, own])
    assert torch.equal(batch[-1:], row)
    assert torch.equal(masks[-1:], mask)
    kept = own[:length] if keep == "start" else own[-length:]
    fill = [-1] * (length - len(kept))
    assert row[0].tolist() == (fill + kept if left else kept + fill)
    assert row[0][mask[0]].tolist() == kept
    assert int(mask.sum()) == len(kept)


FORMS = {
    "tuple of tensors": (torch.tensor([5, 6]), torch.tensor(1)),
    "arrays": (np.array([5, 6]), 1),
    "lists": ([5, 6], 1),
    "tuples": ((5, 6), 1),
    "mapping": {"t": [5, 6], "y": 1},
}


@pytest.mark.parametrize("form", FORMS)
def test_items_of_every_form(form):
    batch = sf.PadTo(3)([FORMS[form]] * 2)
    tokens, labels = batch.values() if isinstance(batch, dict) else batch
    assert tokens.tolist() == [[5, 6, 0]] * 2
    assert labels.tolist() == [1, 1]
    assert (tokens.dtype, labels.dtype) == (torch.int64, torch.int64)


def test_all_further_dimensions_stay():
    (frames,) = sf.PadTo(4)([(torch.ones(2, 3),), (torch.ones(9, 3),)])
    assert frames.shape == (2, 4, 3)
    assert frames.sum((1, 2)).tolist() == [6, 12]


def test_only_named_parts_are_padded_each_with_its_own_value():
    pad = sf.PadTo(3, {"labels": -100, "x": 0.5}, only=("labels", "x"), mask=True)
    item = {"x": [1.0], "labels": torch.tensor([2]), "image": torch.zeros(2, 2), "place": [1, 2]}
    batch = pad([item, item])
    assert batch["x"].tolist() == [[1.0, 0.5, 0.5]] * 2
    assert batch["labels"].tolist() == [[2, -100, -100]] * 2
    assert batch["image"].shape == (2, 2, 2)
    assert batch["place"].tolist() == [[1, 2]] * 2
    assert batch["mask"].tolist() == [[True, False, False]] * 2
    (first, second) = sf.PadTo(2, only=(1,))([([1, 2, 3], [1, 2, 3])])
    assert (first.tolist(), second.tolist()) == ([[1, 2, 3]], [[1, 2]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: sf.PadTo(0), "length"),
        (lambda: sf.PadTo(3, keep="middle"), "keep"),
        (lambda: sf.PadTo(3, only="tokens"), "only"),
        (lambda: sf.PadTo(3)([1.0]), "needs items with a length"),
        (lambda: sf.PadTo(3, mask=True)([(1, 2.0)]), "mask needs an item with a sequence"),
    ],
)
def test_mistakes_name_the_remedy(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_one_sequence():
    values = torch.tensor([1, 2, 3])
    assert to_length(values, 5, 9).tolist() == [1, 2, 3, 9, 9]
    assert to_length(values, 2, keep="end").tolist() == [2, 3]
    assert to_length(values[:0], 2, 7, left=True).tolist() == [7, 7]
