"""Rows of one declared length: what a batch looks like must not depend on its longest row.

A collate that pads to the longest row of the batch gives every row other padding when a long one
comes. Where the model attends to padding, averages over it or counts from its end, one row then
moves everybody's gradient, and no clipping bounds what it does. Padded to a declared length, a row
is a function of itself alone.

    >>> pad = PadTo(4, mask=True)
    >>> tokens, labels, mask = pad([([5, 6], 0), ([1, 2, 3, 4, 5, 6], 1)])
    >>> tokens
    tensor([[5, 6, 0, 0],
            [1, 2, 3, 4]])
    >>> mask.long()
    tensor([[1, 1, 0, 0],
            [1, 1, 1, 1]])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import default_collate

from sfumato.core import validation

__all__ = ["PadTo", "to_length"]

_MASK = "mask"
_ENDS = ("start", "end")


def to_length(
    values: Tensor, length: int, fill: float = 0, *, left: bool = False, keep: str = "start"
) -> Tensor:
    """One sequence, cut or filled up to ``length`` along its first dimension.

    Args:
        values: (n, ...).
        length: of the result.
        fill: what to fill up with.
        left: whether to fill on the left.
        keep: which end of a longer one is kept, "start" or "end".
    """
    values = values[:length] if keep == "start" else values[max(0, len(values) - length) :]
    missing = values.new_full((length - len(values), *values.shape[1:]), fill)
    return torch.cat([missing, values] if left else [values, missing])


@final
class PadTo:
    """A ``collate`` that cuts and fills up every row to a declared length, each by itself.

    Guarantee: a row of the batch is a function of its item alone, and has the same shape for every
    item. Items may be sequences, or tuples, lists and mappings of parts. Padded are the parts with
    a length of their own: tensors and arrays with at least one dimension, along the first, and
    lists of numbers that are not empty. Other parts are stacked as torch's ``default_collate``
    does it.

    Args:
        length: the declared length. A longer sequence is cut.
        value: what to fill up with; or a mapping from parts (their keys or positions) to it, with
            0 for those that it does not name.
        only: the keys or positions of the parts to pad, where others have lengths, too.
        mask: whether to add a part that is true where the first padded one holds values of the
            item: under the key "mask" in mappings, at the end of tuples.
        left: whether to fill on the left.
        keep: which end of a longer sequence is kept, "start" or "end".

    Example:
        >>> pad = PadTo(3, value={"labels": -100}, only=("tokens", "labels"))
        >>> rows = [{"tokens": [7], "labels": [7], "place": [0.5, 0.5]}] * 2
        >>> {name: value.tolist() for name, value in pad(rows).items()}
        {'tokens': [[7, 0, 0], [7, 0, 0]], 'labels': [[7, -100, -100], [7, -100, -100]],
         'place': [[0.5, 0.5], [0.5, 0.5]]}
    """

    def __init__(
        self,
        length: int,
        value: float | Mapping[Any, float] = 0,
        *,
        only: Collection[Any] | None = None,
        mask: bool = False,
        left: bool = False,
        keep: str = "start",
    ) -> None:
        self.length = validation.count("length", length)
        if keep not in _ENDS:
            validation.fail("keep", "'start' or 'end'", keep)
        if isinstance(only, str):
            validation.fail("only", "a tuple or list of keys or positions", only)
        self._values = dict(value) if isinstance(value, Mapping) else None
        self._value = 0 if isinstance(value, Mapping) else value
        self._only = None if only is None else tuple(only)
        self._mask, self._left, self._keep = mask, left, keep

    def __call__(self, items: Sequence[Any]) -> Any:
        """The batch."""
        return default_collate([self.row(item) for item in items])

    def row(self, item: Any) -> Any:
        """One item, with every sequence at the declared length."""
        if not isinstance(item, Mapping) and not _has_parts(item):
            return self._alone(item)
        named = isinstance(item, Mapping)
        parts: dict[Any, Any] = dict(item) if named else dict(enumerate(item))
        lengths = list[int]()
        for name, part in parts.items():
            sequence = _sequence(part)
            if sequence is not None and (self._only is None or name in self._only):
                lengths.append(len(sequence))
                sequence = self._fitted(sequence, name)
            parts[name] = part if sequence is None else sequence
        if self._mask:
            if not lengths:
                raise ValueError(
                    "mask needs an item with a sequence, such as a tensor of tokens: leave mask out"
                )
            parts[_MASK] = self._places(lengths[0])
        return parts if named else tuple(parts.values())

    def _alone(self, item: Any) -> Any:
        sequence = _sequence(item)
        if sequence is None:
            raise ValueError(
                f"PadTo needs items with a length, or tuples and mappings of them, got a "
                f"{type(item).__name__}: make each item a tensor, or a tuple of tensors"
            )
        fitted = self._fitted(sequence, None)
        return (fitted, self._places(len(sequence))) if self._mask else fitted

    def _fitted(self, sequence: Tensor, name: Any) -> Tensor:
        fill = self._value if self._values is None else self._values.get(name, 0)
        return to_length(sequence, self.length, fill, left=self._left, keep=self._keep)

    def _places(self, length: int) -> Tensor:
        """Where values of the item are."""
        held = torch.ones(length, dtype=torch.bool)
        return to_length(held, self.length, left=self._left, keep=self._keep)


def _has_parts(item: Any) -> bool:
    """Whether it is a tuple, or a list that is no sequence of numbers itself."""
    return isinstance(item, tuple) or (isinstance(item, list) and _sequence(item) is None)


def _sequence(part: Any) -> Tensor | None:
    """As a tensor, if it has a length of its own."""
    if isinstance(part, Tensor):
        return part if part.ndim else None
    if isinstance(part, np.ndarray):
        return torch.tensor(part) if part.ndim else None
    if isinstance(part, (list, tuple)) and part and _of_numbers(part):
        return torch.tensor(part)
    return None


def _of_numbers(values: Sequence[Any]) -> bool:
    """Whether it holds numbers, or lists of them."""
    return all(
        _of_numbers(value) if isinstance(value, (list, tuple)) and value else _is_number(value)
        for value in values
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, bool)
