"""Streams: read once an epoch, in order, and no row twice."""

import pytest
import torch
from torch.nn import functional as F

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.in_order import InOrder

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


def test_a_stream_that_ends_early():
    with pytest.raises(IndexError, match=r"declared number of rows \(12\), and ended before"):
        InOrder(Stream(7), ROWS)[9]
    train(InOrder(Stream(7), ROWS), example=[(X[0], 0)]).fit(loss)  # public defaults, no error


def test_iterables_are_told_of_it():
    with pytest.raises(ValueError, match="or InOrder with StreamedLots"):
        train(iter([(X[0], 0)]))
    with pytest.raises(ValueError, match="rows must be a whole number"):
        InOrder(Stream(), 0)
