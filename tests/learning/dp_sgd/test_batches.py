"""Sources of rows: every kind gives the same rows, and only structure is ever looked at."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.secret_coins import ModelCoins

N = 12
X = torch.arange(N * 3, dtype=torch.float32).reshape(N, 3)
Y = torch.arange(N)
Pair = namedtuple("Pair", "x y")


class Items(Dataset):
    """A map-style data set of (tensor, whole number)."""

    def __init__(self, size=N):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return X[index], int(Y[index])


class Sequence:
    """No torch Dataset, but the same protocol."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return {"x": X[index].numpy(), "y": index}


SOURCES = {
    "tuple": lambda: Source((X, Y)),
    "list": lambda: Source([X, Y]),
    "namedtuple": lambda: Source(Pair(X, Y)),
    "dict": lambda: Source({"x": X, "y": Y}),
    "arrays": lambda: Source((X.numpy(), Y.numpy())),
    "strided array": lambda: Source((np.asfortranarray(X.numpy()), Y.numpy())),
    "mixed": lambda: Source((X, Y.numpy())),
    "TensorDataset": lambda: Source(TensorDataset(X, Y)),
    "Dataset": lambda: Source(Items()),
    "subset": lambda: Source(Subset(Items(), range(N))),
    "sequence": lambda: Source(Sequence()),
    "workers": lambda: Source(Items(), workers=1),
}


def leaves(batch):
    return list(batch.values()) if isinstance(batch, dict) else list(batch)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_gives_the_same_rows(kind):
    source = SOURCES[kind]()
    assert len(source) == N
    for rows in ([3], [5, 1, 1, 11], []):
        x, y = leaves(source.fetch(np.array(rows, dtype=np.int64)))
        assert torch.equal(x, X[rows])
        assert torch.equal(y, Y[rows])
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("kind", SOURCES)
def test_an_imitation_has_the_structure_and_no_value(kind):
    source = SOURCES[kind]()
    state = torch.get_rng_state()
    batch, again = source.imitation(64), source.imitation(64)
    assert torch.equal(torch.get_rng_state(), state)
    assert type(batch) is type(source.fetch(np.array([0])))
    (x, y), (x2, y2) = leaves(batch), leaves(again)
    assert torch.equal(x, x2)
    assert torch.equal(y, y2)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((64, 3), torch.float32, (64,), torch.int64)
    assert abs(float(x.mean())) < 0.4
    assert 0.7 < float(x.std()) < 1.3
    assert len(torch.unique(x, dim=0)) == 64  # rows differ: a check of mixing can tell them apart
    assert y.unique().tolist() == [0, 1]
    assert [len(leaf) for leaf in leaves(source.imitation(0))] == [0, 0]


def test_an_imitation_is_the_same_whatever_the_values():
    """Structure alone goes in: private values change nothing."""
    one = Source((X, Y)).imitation(5)
    two = Source((X * float("nan"), Y + 10**12)).imitation(5)
    three = Source((X[:0], Y[:0])).imitation(5)
    for a, b, c in zip(one, two, three, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float64, torch.complex64, torch.uint8, torch.int16, torch.bool],
)
def test_every_type_is_imitated(dtype):
    batch = Source(torch.zeros(3, 2, 5).to(dtype)).imitation(40)
    assert (batch.dtype, batch.shape) == (dtype, (40, 2, 5))
    values = torch.view_as_real(batch) if batch.is_complex() else batch
    assert len(values.unique()) == 2 or (dtype.is_floating_point or dtype.is_complex)
    assert len(values.unique()) > 1


def test_words_are_made_up_and_other_leaves_are_none():
    class Texts(Sequence):
        def __getitem__(self, index):
            return {"text": "secret", "weight": 0.5, "flag": True, "page": b"secret"}

    def collate(items):
        assert all(item["page"] is None for item in items)
        return default_collate([{k: v for k, v in item.items() if k != "page"} for item in items])

    batch = Source(Texts(), collate=collate).imitation(3)
    assert [len(text.split()) for text in batch["text"]] == [4, 4, 4]
    assert batch["weight"].shape == (3,)
    assert batch["flag"].dtype == torch.bool
    assert "secret" not in repr(batch)


def test_a_collate_of_the_users_own():
    def collate(items):
        return {"n": len(items), "x": torch.stack([x for x, _ in items]), "o": object()}

    source = Source(Items(), collate=collate)
    assert torch.equal(source.fetch(np.array([2, 4]))["x"], X[[2, 4]])
    made_up = source.imitation(2)
    assert made_up["x"].shape == (2, 3)
    assert made_up["n"] == 2
    with pytest.raises(ValueError, match="collate"):
        Source((X, Y), collate=collate)


@pytest.mark.parametrize("kind", ["tuple", "Dataset", "workers"])
@given(lots=st.lists(st.lists(st.integers(0, N - 1), max_size=4), max_size=5))
def test_a_stream_is_one_fetch_after_the_other(kind, lots):
    source = SOURCES[kind]()
    if source.workers and len(lots) > 2:
        return  # starting processes takes long
    arrays = [np.array(lot, dtype=np.int64) for lot in lots]
    coins = ModelCoins()
    batches = [batch for batch, _ in source.stream(iter(arrays), coins)]
    coins.give_back()
    assert len(batches) == len(lots)
    for batch, lot in zip(batches, lots, strict=True):
        assert torch.equal(batch[0], X[lot])
        assert torch.equal(batch[1], Y[lot])


@pytest.mark.parametrize(("workers", "ahead"), [(0, 0), (1, 2)])
def test_an_endless_stream_is_read_only_a_little_ahead(workers, ahead):
    taken = itertools.count()
    read = []

    def lots():
        for i in taken:
            read.append(i)
            yield np.array([i % N])

    coins = ModelCoins()
    stream = Source(Items(), workers=workers).stream(lots(), coins)
    for i in range(6):
        x, _ = next(stream).batch
        assert torch.equal(x, X[[i % N]])
        assert i + 1 <= len(read) <= i + 1 + ahead
    stream.close()
    coins.give_back()


# --- examples, and rows that cannot be read -----------------------------------------------------


def test_an_empty_data_set_asks_for_an_example():
    with pytest.raises(ValueError, match="example="):
        Source(Items(0)).imitation(2)
    example = [(torch.ones(3), 7), (torch.zeros(3), 8)]
    source = Source(Items(0), example=example)
    x, y = source.imitation(3)
    assert x.tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]
    assert y.tolist() == [7, 8, 7]
    assert source.fetch(np.array([], dtype=np.int64))[0].shape == (0, 3)
    with pytest.raises(ValueError, match="at least one item"):
        Source(Items(), example=[])


def test_examples_of_tensors_must_have_their_structure():
    source = Source((X, Y), example=(torch.ones(2, 3), torch.tensor([4, 5])))
    assert source.imitation(3)[1].tolist() == [4, 5, 4]
    for wrong in (torch.ones(2, 3), (torch.ones(2, 4), torch.tensor([4, 5])), (X.double(), Y)):
        with pytest.raises(ValueError, match="example must have the structure"):
            Source((X, Y), example=wrong)


class Rough(Items):
    def __getitem__(self, index):
        odd = {2: (torch.ones(17), 0), 3: (torch.ones(3), 0.5), 4: None, 6: (X[6].double(), 6)}
        if index == 1:
            raise OSError("a broken image")
        return odd[index] if index in odd else super().__getitem__(index)


def stacked(items):
    x, y = zip(*items, strict=True)
    return torch.stack(x), torch.tensor(y)


@pytest.mark.parametrize("collate", [None, stacked], ids=["usual", "own"])
@pytest.mark.parametrize("example", [None, [(torch.full((3,), -1.0), -1)]], ids=["", "example"])
def test_no_private_row_raises(collate, example):
    """Those that cannot be read, or are unlike what is declared, are left out."""
    source = Source(Rough(), collate=collate, example=example)
    (x, y), left_out = source.fetched(np.arange(8))
    assert left_out.tolist() == [False, True, True, True, True, False, True, False]
    assert y[[0, 5, 7]].tolist() == [0, 5, 7]
    assert torch.equal(x[[0, 5, 7]], X[[0, 5, 7]])
    assert (x.dtype, x.shape, y.dtype) == (torch.float32, (8, 3), torch.int64)
    if example:
        assert x[1].tolist() == [-1.0] * 3
    for row in (1, 2, 3, 4, 6):  # also among their own kind
        (x, y), left_out = source.fetched(np.array([row, row]))
        assert left_out.all()
        assert (x.dtype, x.shape, y.dtype) == (torch.float32, (2, 3), torch.int64)
    assert source.fetched(np.array([0, 5])).left_out is None


def test_which_structure_is_declared_does_not_hang_on_one_item():
    """Whatever one item is, and wherever it stands."""

    class Odd(Items):
        def __init__(self, place):
            super().__init__()
            self.place = place

        def __getitem__(self, index):
            return (torch.ones(5), 0) if index == self.place else super().__getitem__(index)

    for place in range(N):
        (x, _), left_out = Source(Odd(place)).fetched(np.arange(N))
        assert x.shape == (N, 3)
        assert left_out.tolist() == [row == place for row in range(N)]


def test_items_of_many_structures_ask_for_an_example():
    class Many(Items):
        def __getitem__(self, index):
            return torch.ones(3 + index % 2), 0

    with pytest.raises(TrainingError, match=r"several structures.*example="):
        Source(Many()).imitation(2)
    _, left_out = Source(Many(), example=[(torch.ones(3), 0)]).fetched(np.arange(4))
    assert left_out.tolist() == [False, True, False, True]


def test_items_are_read_one_by_one():
    """A data set that makes several at once may pad them to the longest."""

    class Together(Items):
        def __getitems__(self, indices):
            raise AssertionError("several at once")

    assert torch.equal(Source(Together()).fetch(np.array([3, 4]))[0], X[[3, 4]])


# --- parameters ---------------------------------------------------------------------------------


class Endless(IterableDataset):
    def __iter__(self):
        return iter(())


class Unsized(Dataset):
    def __getitem__(self, index):
        return index


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ((X, Y[:-1]), r"data\[1\] must have as many rows as data\[0\].*align"),
        ({"a": X, "b": {"c": Y[:2]}}, r"data\['b'\]\['c'\].*align"),
        (DataLoader(TensorDataset(X, Y)), r"\.dataset"),
        (Endless(), "map-style"),
        ((i for i in range(3)), "map-style"),
        (Unsized(), "__len__"),
        (torch.tensor(3.0), "Dataset"),
        ((X, torch.tensor(3.0)), r"data\[1\].*Dataset"),
        ([(x, y) for x, y in zip(X, Y, strict=True)], "Dataset"),
        ([X] * 40, "stack"),
        ((X, [1] * N), r"data\[1\]|1 to 32"),
        ((), "1 to 32"),
        ({}, "1 to 32"),
        (np.array(["a", "b"]), "encode"),
        (np.array([None, {}]), "encode"),
        ("train.csv", "got str"),
        (Items, "got type"),
        (None, "got NoneType"),
        (5, "got int"),
    ],
)
def test_mistakes_are_errors_that_name_the_remedy(data, remedy):
    with pytest.raises(ValueError, match=remedy):
        Source(data)


def test_a_table_is_told_to_become_arrays():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="to_numpy"):
        Source(pandas.DataFrame({"a": [1.0]}))


def test_workers_are_counted():
    with pytest.raises(ValueError, match="workers"):
        Source(X, workers=-1)


def test_an_error_tells_no_number_of_rows():
    with pytest.raises(ValueError, match="align") as caught:
        Source((torch.zeros(123_457), torch.zeros(7_654_321)))
    assert "123457" not in str(caught.value)
    assert "7654321" not in str(caught.value)


def test_a_read_only_array_is_no_reason_to_warn():
    array = X.numpy().copy()
    array.setflags(write=False)
    batch = Source(array).fetch(np.array([1]))
    batch.zero_()
    assert array[1].tolist() == X[1].tolist()
