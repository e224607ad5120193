"""The structure of data and batches: trees of tuples, lists and mappings with tensors as leaves.

Only structure is looked at here, never a value, so the errors are the same for all data of one
structure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["common_length", "leaves_of", "map_leaves", "require_same_structure", "structure_of"]

_MOST_LEAVES = 32  # more is a list of examples, whose tensors' first dimension is not the rows


def map_leaves(change: Callable[[Any], Any], data: Any) -> Any:
    """The same structure with every tensor or array changed, and other leaves blank."""
    if isinstance(data, (Tensor, np.ndarray)):
        return change(data)
    if isinstance(data, MutableMapping):
        changed = copy.copy(data)  # keeps what else a user's mapping has
        for key in data:
            changed[key] = map_leaves(change, data[key])
        return changed
    if isinstance(data, Mapping):
        return {key: map_leaves(change, value) for key, value in data.items()}
    if isinstance(data, tuple):
        values = [map_leaves(change, value) for value in data]
        return type(data)(*values) if hasattr(data, "_fields") else tuple(values)
    if isinstance(data, list):
        return [map_leaves(change, value) for value in data]
    return type(data)() if isinstance(data, (str, bytes, bool, int, float)) else None


def _leaves(data: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _leaves(value, f"{path}[{key!r}]")
    elif isinstance(data, (tuple, list)):
        for i, value in enumerate(data):
            yield from _leaves(value, f"{path}[{i}]")
    else:
        yield path, data


def leaves_of(data: Any) -> dict[str, Any]:
    """Every leaf by the way to it."""
    return dict(_leaves(data, ""))


def common_length(data: Any, name: str) -> int:
    """The first dimension's, the same in all leaves."""
    leaves = list(_leaves(data, name))
    remedy = "stack examples into one tensor each, or wrap them in a torch Dataset"
    if not 1 <= len(leaves) <= _MOST_LEAVES:  # how many there are may be private
        raise ValueError(
            f"{name} must hold 1 to {_MOST_LEAVES} tensors or arrays, each with all rows, got "
            f"{'none' if not leaves else 'more, as a list of rows has'}: {remedy}"
        )
    for path, leaf in leaves:
        if not isinstance(leaf, (Tensor, np.ndarray)) or leaf.ndim == 0:
            kind = "one without dimensions" if hasattr(leaf, "ndim") else type(leaf).__name__
            raise ValueError(
                f"{path} must be a tensor or array whose first dimension is the rows, got {kind}: "
                f"{remedy}"
            )
        _require_torch_type(path, leaf)
    first, rows = leaves[0][0], len(leaves[0][1])
    for path, leaf in leaves:
        if len(leaf) != rows:  # by how many is the data's secret
            raise ValueError(f"{path} must have as many rows as {first}, but has not: align them")
    return rows


def _require_torch_type(path: str, leaf: Any) -> None:
    if isinstance(leaf, np.ndarray):
        try:
            torch.from_numpy(np.empty(0, leaf.dtype))
        except (TypeError, ValueError):
            raise ValueError(
                f"{path} must have a type that torch has, got {leaf.dtype}: encode it as numbers"
            ) from None


def structure_of(data: Any) -> Any:
    """What two items must share to be collated."""
    if isinstance(data, (Tensor, np.ndarray)):
        return type(data), tuple(data.shape), data.dtype
    if isinstance(data, Mapping):
        return type(data), {key: structure_of(value) for key, value in data.items()}
    if isinstance(data, (tuple, list)):
        return "sequence", [structure_of(value) for value in data]
    return type(data)


def require_same_structure(
    data: Any, example: Any, name: str = "example", named: str = "data"
) -> None:
    """Raises unless the two differ in their numbers of rows and values only."""
    common_length(example, name)
    one, two = (structure_of(map_leaves(lambda leaf: leaf[:0], tree)) for tree in (data, example))
    if one != two:
        raise ValueError(
            f"{name} must have the structure of {named}: as many leaves, with the same shapes "
            "after the first dimension and the same types"
        )
