"""Data sets that hand out one buffer again and again train on the rows that they read."""

import io
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from tests.neighbours.loops import LoopCase
from torch.nn import functional as F

from sfumato import TrainingError
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.kept_items import kept

ROWS = np.random.default_rng(3).normal(size=(12, 4)).astype(np.float32)
Pair = namedtuple("Pair", "x y")


class Kept(torch.utils.data.Dataset):
    """Its items are made by ``item``, which may keep things on ``self``."""

    def __init__(self, item):
        self.item, self.file = item, io.BytesIO(ROWS.tobytes())
        self.array, self.tensor = np.zeros(4, np.float32), torch.zeros(4)
        self.records = np.zeros(1, [("x", np.float32, 4)])
        self.list, self.dict, self.one = [None], {}, type("Row", (), {})()

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, i):
        return self.item(self, i)


def read_into(self, i):
    self.file.seek(16 * i)
    self.file.readinto(self.array)
    return torch.from_numpy(self.array)


def in_a_list(self, i):
    self.list[0] = torch.from_numpy(ROWS[i])
    return self.list


def in_a_dictionary(self, i):
    self.dict["x"] = ROWS[i]
    return self.dict


def in_an_object(self, i):
    self.one.x = ROWS[i]
    return self.one


def of_objects(items):
    return torch.from_numpy(np.stack([item.x for item in items]))


def in_a_record(self, i):
    self.records["x"][0] = ROWS[i]
    return self.records[0]


def of_records(items):
    return torch.from_numpy(np.stack([record["x"] for record in items]))


ITEMS = {
    "readinto": (read_into, None, lambda batch: batch),
    "array": (lambda self, i: np.copyto(self.array, ROWS[i]) or self.array, None, lambda b: b),
    "tensor": (lambda self, i: self.tensor.copy_(torch.from_numpy(ROWS[i])), None, lambda b: b),
    "record": (in_a_record, of_records, lambda batch: batch),
    "list": (in_a_list, None, lambda batch: batch[0]),
    "dictionary": (in_a_dictionary, None, lambda batch: batch["x"]),
    "object": (in_an_object, of_objects, lambda batch: batch),
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_batch_holds_the_rows_that_were_read(name):
    item, collate, rows_of = ITEMS[name]
    example = None
    if name == "record":
        example = [in_a_record(Kept(None), i) for i in range(2)]
    if name == "object":  # made-up objects have nothing on them
        example = [type("Row", (), {"x": ROWS[0]})() for _ in range(2)]
    source = Source(Kept(item), collate=collate, example=example)
    wanted = np.array([7, 0, 3])
    np.testing.assert_array_equal(rows_of(source.fetch(wanted)).numpy(), ROWS[wanted])


@pytest.mark.parametrize("place", [0, 1, 2])  # one of them is read last
def test_one_row_more_moves_a_sum_by_no_more_than_its_own(place):
    case = LoopCase(items=True, change="in one buffer", count=3, odd="far", place=place)
    assert not case.broken()


def test_structures_are_kept_with_memory_of_their_own():
    x = torch.arange(3)
    item = {"a": [x, (x, 1)], "b": Pair(x.numpy(), "s"), "c": OrderedDict(d=x)}
    held = kept(item)
    x += 1
    assert held["a"][0].tolist() == held["a"][1][0].tolist() == [0, 1, 2]
    assert (type(held["b"]), type(held["c"])) == (Pair, OrderedDict)
    assert held["b"].x.tolist() == held["c"]["d"].tolist() == [0, 1, 2]


def test_what_cannot_be_copied_is_refused_before_anything_is_spent():
    import sfumato as sf

    rows = Kept(lambda self, i: (line for line in (ROWS[i],)))
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TrainingError, match="generator, which cannot be copied"):
        sf.DPSGD(
            model, optimizer, rows, public_size=12, lot_size=4, steps=1, noise_multiplier=1.0,
            delta=1e-5, collate=lambda items: torch.stack([torch.from_numpy(*i) for i in items]),
        ).fit(lambda model, x: F.mse_loss(model(x), model(x), reduction="none").sum(1))  # fmt: skip
