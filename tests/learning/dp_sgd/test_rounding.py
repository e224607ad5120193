"""Rows made up to move a float32 sum by more than their length, through the public API.

The gradient of a row is the row. Most bring the sum to just below a power of two; then comes the
one in question, which lifts it above; and each of the rest takes 0.3 of an ulp off, which is lost
above and kept below. Added up one after the other they move the sum by three times the clip norm.
"""

import math

import pytest
import torch
from torch import nn

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import Flat, PoissonLots
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.gradients.convolution import Convolution, Geometry
from sfumato.learning.dp_sgd.gradients.pieces import Outer
from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE, MOVED, spread
from sfumato.learning.dp_sgd.lot_sums import LotSums

WIDTH = 16
BIG = math.floor((1 - 2**-5) / 4 * 2**12) / 2**12  # dyadic, and below the clip norm in all


class Spy:
    """No noise; the sums that it was to be added to."""

    name, private = "none", False

    def __init__(self):
        self.sums = []

    def normal(self, like, std):
        self.sums.append(like.double().flatten().clone())
        return torch.zeros_like(like)


def rows_of(many, batch):
    """The rows in order, and where the one in question stands: behind a multiple of ``batch``."""
    edge = 2.0 ** math.floor(math.log2(many * BIG))
    ulp, count = edge * 2.0**-23, int(edge / BIG)
    head = [BIG] * count + [edge - count * BIG]
    head += [0.0] * (-len(head) % batch) + [-ulp / 2] + [0.0] * (batch - 1)
    tail = [-0.3 * ulp / batch] * many
    rows = torch.tensor([*head, *[0.0] * batch, *tail], dtype=torch.float64).float()
    return rows.view(-1, 1).expand(-1, WIDTH).clone(), len(head)


def moved(rows, at, **options):
    """By how much the sum of all differs with the row ``at``, in clip norms."""
    found = []
    for value in (0.0, (1 - 2**-5) / 4):
        x = rows.clone()
        x[at] = value
        found.append(clean(x, **options))
    return float((found[1] - found[0]).norm())


def clean(x, compile=False, model=None, loss=None, **options):
    model, spy = model or nn.Linear(WIDTH, 1, bias=False), Spy()
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.0), (x,), clip=Flat(1.0), steps=1,
        lots=PoissonLots(len(x), len(x)), noise_multiplier=1.0, delta=1e-5, noise=spy,
        coins=SeededCoins(1), progress=False, **options,
    )  # fmt: skip
    trainer.fit(loss or (lambda m, x: m(x)[:, 0]), compile=compile)
    return torch.cat(spy.sums)


@pytest.mark.parametrize("batch", [64, 1024, None])
def test_one_row_moves_a_sum_by_no_more_than_the_clip_norm(batch):
    rows, at = rows_of(4096, batch or 1)
    assert moved(rows, at, batch_size=batch) <= 1.0


def test_nor_in_a_compiled_step(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda graph, **_: graph)
    rows, at = rows_of(2048, 1)
    assert moved(rows, at, compile=True) <= 1.0


def test_a_row_that_is_not_there():
    """One row less, with the coins of the others as they were."""
    rows, _ = rows_of(4096, 1)
    more = torch.cat([rows, torch.full((1, WIDTH), BIG)])
    assert 0.9 < float((clean(more) - clean(rows)).norm()) <= 1.0


@pytest.mark.parametrize("places", [2, 16, 100, 300])
def test_units_whose_places_cancel_are_clipped_by_what_their_sum_may_lose(places):
    """All of a block's terms together are then no longer than its theorem takes for granted."""
    left, right = torch.ones(3, places, 5), torch.ones(3, places, 7)
    left[1, ::2] = -1.0  # cancels, but for the last place of an odd number
    found = Outer(left, right, (5, 7)).squared_norms().sqrt()
    terms = places * math.sqrt(35)
    assert found[1] >= terms / spread(places, torch.float32) * (1 - 1e-4)
    assert found[0] == pytest.approx(terms, rel=1e-2)
    images = [f.mT.unsqueeze(2).contiguous() for f in (right, left)]  # (3, channels, 1, places)
    kernel = Geometry((1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1))
    by_image = Convolution(*images, 3, kernel).squared_norms().sqrt()
    assert by_image[1] >= terms / spread(places, torch.float32, whole=True) * (1 - 1e-4)
    exact = Outer(left.double(), right.double(), (5, 7)).squared_norms().sqrt()
    assert exact[1] <= math.sqrt(35) * 1.01  # there is room for all of it in float64


def test_participants_of_a_federation():
    rows, at = rows_of(4096, 1)
    model = nn.Linear(WIDTH, 1, bias=False)
    sums = LotSums(model, lambda m, x: m(x)[:, 0], (torch.zeros(1, WIDTH),))
    found = []
    for value in (0.0, 0.25):
        x = rows.clone()
        x[at] = value
        found.append(sums.clipped((x,), 1.0)["weight"])
    assert 0.99 < float((found[1] - found[0]).norm()) <= 1.0


def test_what_sums_may_lose_is_a_part_of_eta():
    total = ClippedSum({"w": torch.zeros(3)}, Flat(1.0))
    assert total.eta == 2.0**-14 + ALLOWANCE["float32"]
    assert (1 - total.eta) * (1 + 2.0**-14) * (1 + MOVED) + 2.0**-10 + 2.0**-18 <= 1
    assert ClippedSum({"w": torch.zeros(3).double()}, Flat(1.0)).eta < 1e-8
