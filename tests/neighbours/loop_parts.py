# ruff: noqa: NPY002 - NumPy's global generator is what is tried
"""Parts that people put into training loops, right ones and such as let rows meet.

Each part is a function by name: what a row is, what is done to a batch of them in the model, in
``augment``, in ``collate`` or in the loss. Which of them may pass is not said here: a loop that is
accepted must keep the law, whatever it is made of.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random as legacy
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler as schedules

__all__ = ["AUGMENTS", "COLLATES", "LOSSES", "MIDDLES", "ROWS", "SCHEDULES", "Items", "network"]

WIDTH, CLASSES, LENGTH, TOKENS = 6, 3, 7, 20
Row = tuple[Tensor, Tensor]


def _numbers(generator: torch.Generator) -> Row:
    x = torch.randn(WIDTH, generator=generator)
    return x, torch.randint(0, CLASSES, (), generator=generator)


def _wholes(generator: torch.Generator) -> Row:
    x = torch.randint(0, 5, (WIDTH,), generator=generator)
    return x, torch.randint(0, CLASSES, (), generator=generator)


def _bytes(generator: torch.Generator) -> Row:
    x = torch.randint(0, 2, (WIDTH,), generator=generator, dtype=torch.uint8)
    return x, torch.randint(0, CLASSES, (), generator=generator)


def _words(generator: torch.Generator) -> Row:
    length = int(torch.randint(1, LENGTH, (), generator=generator))
    x = torch.randint(1, TOKENS, (length,), generator=generator)
    return x, torch.randint(0, CLASSES, (), generator=generator)


def _holes(generator: torch.Generator) -> Row:
    x, y = _numbers(generator)
    return torch.where(torch.rand(WIDTH, generator=generator) < 0.2, torch.nan, x), y


ROWS: dict[str, Callable[[torch.Generator], Row]] = {
    "numbers": _numbers, "wholes": _wholes, "bytes": _bytes, "words": _words, "holes": _holes,
}  # fmt: skip
"""An ordinary row."""


def odd_row(kind: str, how: str, generator: torch.Generator) -> Row:
    """A row that somebody made up, or that came out of a damaged file."""
    x, y = ROWS[kind](generator)
    if how == "label":
        return x, torch.tensor(10**6)
    if how == "ignored":
        return x, torch.tensor(-100)
    if kind == "words":
        return torch.ones(40 if how != "small" else 1, dtype=torch.int64), y
    if kind == "bytes":
        return torch.full_like(x, 255), y
    if kind == "wholes":
        return torch.full_like(x, {"nan": 30_000, "small": -3}.get(how, 255)), y
    value = {"nan": torch.nan, "inf": torch.inf, "huge": 1e30, "small": 1e-30}.get(how, 40.0)
    if how == "cell":
        return torch.cat([torch.tensor([torch.nan]), x[1:]]), y
    return torch.full_like(x, value), y


class Items(torch.utils.data.Dataset[Row]):
    """Rows as a data set; ``change`` is done to each when it is read."""

    def __init__(self, rows: list[Row], change: Callable[[Tensor, int], Tensor] | None) -> None:
        self.rows, self.change = rows, change

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        x, y = self.rows[index]
        return (x if self.change is None else self.change(x, index)), y


def _noisy_by_index(x: Tensor, index: int) -> Tensor:
    return x + torch.from_numpy(np.random.default_rng(index).normal(size=x.shape)).float()


def _noisy_by_index_torch(x: Tensor, index: int) -> Tensor:
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(index))


CHANGES: dict[str, Callable[[Tensor, int], Tensor] | None] = {
    "none": None,
    "noise": lambda x, _: x + torch.randn(x.shape),
    "numpy": lambda x, _: x + torch.from_numpy(legacy.normal(size=x.shape)).float(),
    "by index": _noisy_by_index,
    "by index, torch": _noisy_by_index_torch,
    "seeded": lambda x, _: (torch.manual_seed(0), x + torch.randn(x.shape))[1],
}
"""What a data set does to a row when it is read."""


def _pad(items: list[Row], length: int, value: int = 0) -> tuple[Tensor, Tensor]:
    rows = [F.pad(x[:length], (0, max(0, length - len(x))), value=value) for x, _ in items]
    return torch.stack(rows), torch.stack([y for _, y in items])


def _declared(items: list[Row]) -> Any:
    import sfumato as sf

    return sf.PadTo(LENGTH)(items)


COLLATES: dict[str, Callable[[list[Row]], Any] | None] = {
    "none": None,
    "declared": _declared,
    "by hand": lambda items: _pad(items, LENGTH),
    "longest": lambda items: _pad(items, max(len(x) for x, _ in items)),
    "longest, odd filler": lambda items: _pad(items, max(len(x) for x, _ in items), 7),
    "shortest": lambda items: _pad(items, max(1, min(len(x) for x, _ in items))),
    "mean": lambda items: _pad(items, max(1, sum(len(x) for x, _ in items) // len(items))),
    "sorted": lambda items: _pad(sorted(items, key=lambda item: len(item[0])), LENGTH),
}
"""What makes a batch of words."""


def _mixed(p: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x.flip(0) if legacy.rand() < p else x


AUGMENTS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "none": None,
    "noise": lambda x: x + torch.randn_like(x.float()),
    "numpy": lambda x: x + torch.from_numpy(legacy.normal(size=x.shape)).float(),
    "python": lambda x: x * torch.tensor([[random.choice([1.0, -1.0])] for _ in x]),
    "generator of its own": lambda x: x + torch.randn(x.shape, generator=_OWN),
    "mixup": _mixed(1.0),
    "mixup, seldom": _mixed(0.05),
    "largest": lambda x: x.float() / x.abs().amax().clamp(min=1),
    "by place": lambda x: x * torch.linspace(-1, 1, len(x))[:, None],
    "by size": lambda x: x if len(x) % 2 else -x,
}  # fmt: skip
"""What is done to a batch before the model."""
_OWN = torch.Generator().manual_seed(1)


def _filled(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x.nanmean(0), x)


MIDDLES: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda h: h,
    "minus mean": lambda h: h - h.mean(0),
    "minus a little of the mean": lambda h: h - 1e-3 * h.mean(0),
    "largest": lambda h: h / h.abs().amax().clamp(min=1e-6),
    "least": lambda h: h - h.amin(0),
    "median": lambda h: h - h.median(0).values,
    "softmax": lambda h: F.softmax(h, 0),
    "by place": lambda h: h * torch.arange(1, len(h) + 1)[:, None],
    "neighbour": lambda h: h + h.roll(1, 0),
    "attention": lambda h: F.softmax(h @ h.T, 1) @ h,
    "sorted": lambda h: h[h[:, 0].argsort()],
    "only if not finite": lambda h: h * 0 if bool(torch.isnan(h).any()) else h,
    "size": lambda h: h / len(h),
}
"""What is done inside of the model to all rows' features."""


def _each(scores: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(scores, y, reduction="none")


def _by_frequency(scores: Tensor, y: Tensor) -> Tensor:
    counts = torch.bincount(y.clamp(0, CLASSES - 1), minlength=CLASSES).float()
    return _each(scores, y) / counts[y.clamp(0, CLASSES - 1)]


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "each": _each,
    "by the mean": lambda s, y: _each(s, y) / _each(s, y).detach().mean().clamp(min=1e-3),
    "by frequency": _by_frequency,
    "by counted labels": lambda s, y: _each(s, y) / (y != -100).float().mean().clamp(min=1e-3),
    "none if any is bad": lambda s, y: _each(s, y) * float(torch.isfinite(_each(s, y)).all()),
    "contrast": lambda s, y: _each(s @ s.T, torch.arange(len(s))),
}
"""Losses, a number a row."""


SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "steps": lambda o: schedules.StepLR(o, 1),
    "cosine": lambda o: schedules.CosineAnnealingLR(o, 4),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=3),
    "a function": lambda o: schedules.LambdaLR(o, lambda step: 0.5**step),
    "by the loss": lambda o: schedules.ReduceLROnPlateau(o),
}
"""Learning rates over a run."""


class network(nn.Module):  # noqa: N801 - a function in all but name
    """Whatever rows there are, features, a part in the middle, and scores."""

    def __init__(self, kind: str, dropout: float, norm: str, fill: bool, middle: str) -> None:
        super().__init__()
        self.kind, self.fill, self.middle = kind, fill, MIDDLES[middle]
        self.precision = ""
        self.first: nn.Module = (
            nn.Embedding(TOKENS, 8) if kind.startswith("words") else nn.Linear(WIDTH, 8)
        )
        norms = {"none": nn.Identity, "batch": lambda: nn.BatchNorm1d(8)}
        norms |= {"layer": lambda: nn.LayerNorm(8), "group": lambda: nn.GroupNorm(2, 8)}
        self.recurrent = nn.LSTM(8, 8, batch_first=True) if kind == "words, last" else None
        self.rest = nn.Sequential(norms[norm](), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        if self.precision == "autocast":
            with torch.autocast("cpu", torch.bfloat16):
                return self._scores(x).float()
        return self._scores(x)

    def _scores(self, x: Tensor) -> Tensor:
        if self.kind.startswith("words"):
            found = self.first(x)
            if self.recurrent is not None:
                h = self.recurrent(found)[0][:, -1]
            elif self.kind == "words, masked":
                used = (x != 0).float()[..., None]
                h = (found * used).sum(1) / used.sum(1).clamp(min=1)
            else:
                h = found.mean(1)
        else:
            x = x.to(self.head.weight.dtype)
            x = _filled(x) if self.fill else x
            h = self.first(x)
        return self.head(self.middle(self.rest(h)))
