"""Streams: read once an epoch, in order, and no row twice."""

import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.errors import StreamError
from sfumato.learning.dp_sgd.in_order import InOrder
from sfumato.learning.secret_coins import ModelCoins

pytestmark = pytest.mark.usefixtures("singles")

ROWS = 12
generator = torch.Generator().manual_seed(2)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)


class Stream:
    """Notes what is read of it."""

    def __init__(self, rows=ROWS):
        self.read, self.opened, self.rows = [], 0, rows

    def __call__(self):
        self.opened += 1
        for row in range(self.rows):
            self.read.append(row)
            yield X[row % ROWS], int(Y[row % ROWS])


def train(data, steps=6, **more):
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 2)
    return sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.5), data,
        plan=sf.TrainingPlan(
            sf.StreamedLots(4, ROWS), sf.Flat(1.0), 1.0, steps, 1e-3, sf.Neighbours.ZERO_OUT,
            correlation=sf.BandedNoise(3),
        ),
        coins=SeededCoins(4), progress=False, **more,
    )  # fmt: skip


def loss(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def test_a_stream_trains_as_its_table_does():
    stream = Stream()
    one = train(InOrder(stream, ROWS)).fit(loss)
    two = train((X, Y)).fit(loss)
    assert torch.equal(one.model.weight, two.model.weight)
    assert stream.opened == 2  # one epoch each, the look at its structure included
    assert stream.read == [*range(ROWS), *range(ROWS)]


def test_a_resumed_run_reads_forward(tmp_path):
    whole = Stream()
    first = train(InOrder(whole, ROWS), checkpoints=tmp_path, checkpoint_every=1)
    for x, y in first:
        first.backward(loss(first.model, x, y))
        if first.steps_taken == 1 and not first.rehearsing:
            break
    rest = Stream()
    shown = []
    again = train(InOrder(rest, ROWS), steps=6, checkpoints=tmp_path, checkpoint_every=1).resume()
    for x, y in again:
        if not again.rehearsing:
            shown.append(x[0])
        again.backward(loss(again.model, x, y))
    assert torch.equal(torch.stack(shown), X[[4, 8, 0, 4, 8]])


def test_rows_by_number():
    stream = Stream()
    rows = InOrder(stream, 5)
    assert len(rows) == 5
    assert [int(rows[i][1]) for i in (0, 0, 1, 4, 4)] == [int(Y[i]) for i in (0, 0, 1, 4, 4)]
    assert stream.opened == 1
    assert torch.equal(rows[2][0], X[2])
    assert stream.opened == 2
    assert max(stream.read) == 4  # what comes after is never read
    for index in (-1, 5):
        with pytest.raises(IndexError):
            rows[index]


@pytest.mark.parametrize("example", [None, [(X[0], 0)]])
def test_a_stream_that_ends_early_is_an_error_with_defaults_too(example):
    with pytest.raises(StreamError, match=r"declared number of rows \(12\), and ended before"):
        InOrder(Stream(7), ROWS)[9]
    with pytest.raises(StreamError, match="declare as many as there are"):
        train(InOrder(Stream(7), ROWS), example=example).fit(loss)


def test_a_stream_that_cannot_be_opened():
    def missing():
        raise FileNotFoundError("rows.txt")

    with pytest.raises(StreamError, match="could not be opened: FileNotFoundError"):
        train(InOrder(missing, ROWS), example=[(X[0], 0)]).fit(loss)


# --- one bad row ----------------------------------------------------------------------------------


def parsed(text):
    return torch.tensor([float(text)])


def texts(bad):
    return ["what?" if i == bad else str(i) for i in range(8)]


class GoesOn:
    """An iterator that survives a row that it cannot parse, unlike a generator."""

    def __init__(self, bad):
        self.rows = iter(texts(bad))

    def __iter__(self):
        return self

    def __next__(self):
        return parsed(next(self.rows))


def lots_of(data, size=2, **more):
    source = Source(data, example=[torch.tensor([-1.0])], **more)
    lots = [np.arange(s, s + size) for s in range(0, len(data), size)]
    coins = ModelCoins()
    try:
        lots = [fetched.batch for fetched in source.stream(lots, coins)]
    finally:
        coins.give_back()
    return [value for lot in lots for value in lot.flatten().tolist()]


@pytest.mark.parametrize("bad", range(8))
def test_one_bad_row_leaves_all_others_at_their_places(bad):
    wanted = [-1.0 if i == bad else float(i) for i in range(8)]
    assert lots_of(InOrder(lambda: texts(bad), 8, read=parsed)) == wanted
    assert lots_of(InOrder(lambda: GoesOn(bad), 8)) == wanted
    assert InOrder(lambda: GoesOn(bad), 8)[7 if bad < 7 else 6] == wanted[7 if bad < 7 else 6]


def test_a_generator_that_a_bad_row_ended_is_refused():
    data = InOrder(lambda: map_generator(2), 8)
    source = Source(data, example=[torch.tensor([-1.0])])
    assert source.fetch(np.arange(2)).flatten().tolist() == [0.0, 1.0]
    with pytest.raises(StreamError, match=r"parse each in InOrder\(..., read=\)"):
        source.fetch(np.arange(2, 4))
    assert source.fetch(np.arange(2)).flatten().tolist() == [0.0, 1.0]  # the next epoch


def map_generator(bad):
    for text in texts(bad):
        yield parsed(text)


# --- worker processes -----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_read_streams_of_their_own(tmp_path, workers):
    """Longer than a file's buffer, and begun before the workers are: its place would be shared."""
    path, rows = tmp_path / "rows.txt", 4000
    path.write_text("".join(f"{i:06d}\n" for i in range(rows)))

    def lines():
        with path.open("rb") as file:
            yield from file

    data = InOrder(lines, rows, read=parsed)
    assert data[0] == 0
    assert lots_of(data, size=500, workers=workers) == list(range(rows))
    assert data[1] == 1


def test_a_worker_s_stream_that_ends_early_is_an_error_here_too():
    with pytest.raises(StreamError, match="declare as many as there are"):
        lots_of(InOrder(lambda: texts(None), 10, read=parsed), workers=2)


def test_streams_that_are_read_once_have_no_workers():
    once = iter(texts(None))
    with pytest.raises(ValueError, match="workers must be 0 for a stream that can be read only"):
        Source(InOrder(lambda: once, 8, read=parsed), workers=1)
    data = InOrder(lambda: once, 8, read=parsed)
    assert lots_of(data) == list(range(8))
    with pytest.raises(StreamError, match="ended before"):  # no second epoch
        data[0]


def test_another_process_does_not_go_on_with_a_stream(monkeypatch):
    once = iter(texts(None))
    data, fresh = InOrder(lambda: once, 8), InOrder(lambda: texts(None), 8)
    assert (data[1], fresh[1]) == ("1", "1")
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(StreamError, match="can be read only once"):
        data[2]
    assert fresh[2] == "2"
    assert pickle.loads(pickle.dumps(InOrder(list, 8)))._stream is None


def test_iterables_are_told_of_it():
    with pytest.raises(ValueError, match="or InOrder with StreamedLots"):
        train(iter([(X[0], 0)]))
    with pytest.raises(ValueError, match="rows must be a whole number"):
        InOrder(Stream(), 0)
