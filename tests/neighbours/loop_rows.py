# ruff: noqa: NPY002 - NumPy's global generator is what is tried
"""Rows to train on, ordinary and odd ones, and how a data set and a collate hand them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random as legacy
import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["CHANGES", "CLASSES", "COLLATES", "MARK", "ROWS", "TOKENS", "WIDTH", "Items", "odd_row"]

MARK = -999.0  # which some write where a number is missing
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


def _marked(generator: torch.Generator) -> Row:
    x, y = _numbers(generator)
    return torch.where(torch.rand(WIDTH, generator=generator) < 0.2, MARK, x), y


def _holes(generator: torch.Generator) -> Row:
    x, y = _numbers(generator)
    return torch.where(torch.rand(WIDTH, generator=generator) < 0.2, torch.nan, x), y


ROWS: dict[str, Callable[[torch.Generator], Row]] = {
    "numbers": _numbers, "wholes": _wholes, "bytes": _bytes, "words": _words, "holes": _holes,
    "marked": _marked,
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
    value = {"nan": torch.nan, "inf": torch.inf, "huge": 1e30, "small": 1e-30, "mark": MARK}.get(
        how, 40.0
    )
    if how == "cell":
        return torch.cat([torch.tensor([torch.nan]), x[1:]]), y
    return torch.full_like(x, value), y


class Items(torch.utils.data.Dataset[Row]):
    """Rows as a data set; ``change`` is done to each when it is read."""

    def __init__(self, rows: list[Row], change: Change | None) -> None:
        self.rows, self.change, self.buffer = rows, change, torch.zeros(0)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        x, y = self.rows[index]
        return (x if self.change is None else self.change(x, index, self)), y


Change = Callable[[Tensor, int, Items], Tensor]


def _noisy_by_index(x: Tensor, index: int, items: Items) -> Tensor:
    return x + torch.from_numpy(np.random.default_rng(index).normal(size=x.shape)).float()


def _noisy_by_index_torch(x: Tensor, index: int, items: Items) -> Tensor:
    return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(index))


def _in_one_buffer(x: Tensor, index: int, items: Items) -> Tensor:
    if items.buffer.shape != x.shape:
        items.buffer = x.clone()
    return items.buffer.copy_(x)


def _choosy(x: Tensor, index: int, items: Items) -> Tensor:
    if not bool(torch.isfinite(x.float()).all()) or bool((x.float().abs() > 30).any()):
        raise ValueError(f"row {index} is out of range")
    return x


def _shortened(x: Tensor, index: int, items: Items) -> Tensor:
    return x[torch.isfinite(x.float())]


def _counted(x: Tensor, index: int, items: Items) -> Tensor:
    items.read = getattr(items, "read", 0) + 1  # pyright: ignore
    return x * items.read


CHANGES: dict[str, Change | None] = {
    "none": None,
    "noise": lambda x, *_: x + torch.randn(x.shape),
    "numpy": lambda x, *_: x + torch.from_numpy(legacy.normal(size=x.shape)).float(),
    "by index": _noisy_by_index,
    "by index, torch": _noisy_by_index_torch,
    "seeded": lambda x, *_: (torch.manual_seed(0), x + torch.randn(x.shape))[1],
    "with the next": lambda x, i, items: x + items[(i + 1) % len(items)][0],
    "how often read": _counted,
    "in one buffer": _in_one_buffer,
    "refuses odd ones": _choosy,
    "without the odd": _shortened,
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
