"""Rows whose loss raises: they contribute nothing, whatever their company, and no error tells."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import sfumato as sf
from sfumato.learning.dp_sgd.compiled import CompiledSum

pytestmark = pytest.mark.usefixtures("singles")
N = 24
generator = torch.Generator().manual_seed(2)
X = torch.randn(N, 5, generator=generator)
Y = torch.randint(0, 3, (N,), generator=generator)


def classify(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


def picky(model, x, y):
    if bool((x > 90).any()):
        raise RuntimeError(f"the row {x.tolist()} is strange")
    return classify(model, x, y)


def dropping(model, x, y):
    """Gives fewer losses than rows."""
    known = y < 3
    return F.cross_entropy(model(x)[known], y[known], reduction="none")


class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        return self.x[row], self.y[row]


def sums_of(kit, data, loss, compiled=False, **more):
    torch.manual_seed(0)
    model, spy = nn.Linear(5, 3), kit.Spy()
    plan = more.pop("plan", None) or kit.plan(lots=sf.PoissonLots(N, N), steps=2)
    trainer = kit.trainer(model, data, plan=plan, noise=spy, **more)
    if compiled:
        step = trainer._step
        step.compiled = CompiledSum(model, loss, trainer._recorder.tape, step.sum, "eager", room=N)
    trainer.fit(loss)
    return torch.cat([part.flatten() for part in spy.sums])


def spoiled(bad, value=None):
    x, y = X.clone(), Y.clone()
    if value is None:
        y[bad] = 7
    else:
        x[bad] = value
    return x, y


CASES = {
    "label out of range": (classify, None),
    "a negative label": (classify, -1),
    "an error of one's own": (picky, 99.0),
    "a loss too few": (dropping, None),
}


@pytest.mark.parametrize("source", ["tensors", "data set"])
@pytest.mark.parametrize("how", CASES)
def test_rows_that_fail_contribute_nothing(kit, how, source):
    loss, value = CASES[how]
    make = (lambda x, y: (x, y)) if source == "tensors" else Rows
    for bad in ([3], [0, N - 1], [*range(1, N)]):
        x, y = spoiled(bad, value if loss is picky else None)
        if how == "a negative label":
            y[bad] = -5
        keep = np.setdiff1d(np.arange(N), bad)
        expected = sums_of(kit, (x[keep], y[keep]), loss)
        assert torch.allclose(sums_of(kit, make(x, y), loss), expected, atol=1e-6), bad


def test_a_lot_of_failing_rows_alone_is_an_empty_one(kit):
    assert not sums_of(kit, spoiled([*range(N)]), classify).any()


def test_an_owners_other_rows_still_count(kit):
    plan = kit.plan(lots=sf.PoissonLots(N // 2, N // 2), steps=1, unit="owner")
    more = {"owners": np.arange(N) // 2, "rows_per_owner": 2, "plan": plan}
    x, y = spoiled([0, 2, 3])
    found = sums_of(kit, (x, y), classify, **more)
    zeros = torch.where(y > 2, torch.zeros(()), torch.ones(()))
    weighted = lambda m, x, y, w: F.cross_entropy(m(x), y, reduction="none") * w  # noqa: E731
    expected = sums_of(kit, (x, y.clamp(max=2), zeros), weighted, **more)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("copies", [1, 2])
def test_augmented_rows(kit, copies):
    more = {"augment": lambda x: 2 * x, "augmentations": copies}
    x, y = spoiled([3])
    keep = np.setdiff1d(np.arange(N), [3])
    expected = sums_of(kit, (x[keep], y[keep]), classify, **more)
    assert torch.allclose(sums_of(kit, (x, y), classify, **more), expected, atol=1e-6)


def test_parts_of_different_lengths_in_one_row(kit):
    """The row changes the shape of its whole batch, so that every row of the batch would fail."""

    def collate(items):
        a, b, y = zip(*items, strict=True)
        padded = [nn.utils.rnn.pad_sequence(part, batch_first=True) for part in (a, b)]
        return *padded, torch.stack(y)

    def loss(model, a, b, y):
        both = (a * b).sum(1, keepdim=True).expand(-1, 5)
        return classify(model, both, y)

    data = [
        (row[: 2 + i % 4], row[: 2 + i % 4], y) for i, (row, y) in enumerate(zip(X, Y, strict=True))
    ]
    odd = (X[0][:2], torch.ones(9), Y[0])
    expected = sums_of(kit, Listed(data), loss, collate=collate)
    assert torch.allclose(sums_of(kit, Listed([*data, odd]), loss, collate=collate), expected)


class Listed(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        return self.items[row]


def test_an_error_of_the_program_is_raised(kit):
    calls = []

    def breaks(model, x, y):
        calls.append(len(x))
        if len(calls) > 40:
            raise OSError("the disk is gone")
        return classify(model, x, y)

    plan = kit.plan(lots=sf.PoissonLots(N, N), steps=100)
    with pytest.raises(OSError, match="the disk is gone"):
        sums_of(kit, (X, Y), breaks, plan=plan)


def test_an_error_that_no_row_makes_by_itself_is_raised(kit):
    def breaks(model, x, y):
        if len(x) == N - 1:
            raise ValueError("23 rows")
        return classify(model, x, y)

    with pytest.raises(ValueError, match="23 rows"):
        sums_of(kit, (X[1:], Y[1:]), breaks)


def test_out_of_memory_is_raised_at_once(kit):
    seen = []

    def breaks(model, x, y):
        seen.append(len(x))
        if x.max().item() == 99.0:  # what no made-up row holds
            raise torch.OutOfMemoryError
        return classify(model, x, y)

    with pytest.raises(torch.OutOfMemoryError):
        sums_of(kit, spoiled([3], 99.0), breaks)
    assert seen[-1] == N


def test_in_a_compiled_step(kit):
    x, y = spoiled([3, 5])
    keep = np.setdiff1d(np.arange(N), [3, 5])
    expected = sums_of(kit, (x[keep], y[keep]), classify)
    assert torch.allclose(sums_of(kit, (x, y), classify, compiled=True), expected, atol=1e-6)
