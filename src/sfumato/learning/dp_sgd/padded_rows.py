"""Rows that are padded already, in company of fuller ones: who cuts a batch to its longest row.

Rows of one shape may still have lengths: zeros at their ends, a mask, a column of lengths. A model
or a loss that cuts a batch to its longest row makes every row depend on that one, as a collate that
pads does. So three units of made-up rows end in zeros; then one of them is full. Whole numbers are
zeros and ones otherwise, which are no lengths; where rows are public (``example=``), units with
the smallest number in a column meet the one with the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.company import Company

__all__ = ["padded_companies"]

_UNITS = 3
_PUBLIC = 64  # public rows that are looked at


def padded_companies(
    imitate: Callable[[int], Any], rows_per_unit: int, public: bool
) -> list[Company]:
    """What a model must be tried on, for batches of one shape.

    Args:
        imitate: makes a batch of so many rows up.
        rows_per_unit: how many.
        public: whether its rows are somebody's own example, and plausible as they are.
    """
    batch = imitate(_UNITS * rows_per_unit)
    found = list[Company]()
    if any(leaf.ndim > 1 and leaf.shape[1] > 1 for leaf in _tensors(batch)):
        usual = pytree.tree_map(_ending_in_zeros, batch)
        full = pytree.tree_map(_full, batch)
        found.append(Company(usual, _with_first_of(full, usual, rows_per_unit), (1, 2)))
    if public:
        found += _extremes(imitate(_PUBLIC), rows_per_unit)
    return found


def _extremes(batch: Any, rows_per_unit: int) -> Iterator[Company]:
    for leaf in _tensors(batch):
        if leaf.ndim == 1 and not (leaf.is_floating_point() or leaf.is_complex()):
            values = leaf.to(torch.int64)
            least, most = int(values.argmin()), int(values.argmax())
            if values[least] != values[most]:
                usual, full = (_all(batch, row, rows_per_unit) for row in (least, most))
                yield Company(usual, _with_first_of(full, usual, rows_per_unit), (1, 2))


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim]


def _all(batch: Any, row: int, rows_per_unit: int) -> Any:
    """One row in everybody's place."""
    return pytree.tree_map(
        lambda leaf: leaf[[row] * (_UNITS * rows_per_unit)] if _has_rows(leaf) else leaf, batch
    )


def _with_first_of(one: Any, others: Any, rows_per_unit: int) -> Any:
    """The first unit of ``one``, and all further ones of ``others``."""
    return pytree.tree_map(
        lambda a, b: torch.cat([a[:rows_per_unit], b[rows_per_unit:]]) if _has_rows(a) else a,
        one,
        others,
    )


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def _ending_in_zeros(leaf: Any) -> Any:
    if not _has_rows(leaf) or leaf.ndim < 2:
        return leaf
    padded = leaf.clone()
    padded[:, max(1, leaf.shape[1] // 2) :] = 0
    return padded


def _full(leaf: Any) -> Any:
    """With the first number of each row, or 1, where there is none."""
    if not _has_rows(leaf) or leaf.ndim < 2 or not leaf.shape[1]:
        return leaf
    first = leaf[:, :1]
    first = torch.where(first == 0, torch.ones_like(first), first)
    return torch.where(leaf == 0, first, leaf)
