"""Items made up in the structure of others, and made longer or shorter.

What a data set's items may look like is known from one of them: a tree of mappings, tuples and
lists, with tensors, arrays, numbers and text as leaves. Their lengths have *places*: a dimension
of a tensor, the number of a list's elements, of a text's words. Elements of a list that are alike
share their places.

    >>> item = {"tokens": [5, 6, 7], "image": torch.zeros(2, 4)}
    >>> sizes_of(item)
    {('tokens', 'elements'): 3, ('image', 0): 2, ('image', 1): 4}
    >>> resized(item, {("tokens", "elements"): 5, ("image", 1): 1})["tokens"]
    [5, 6, 7, 5, 6]
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "MARKS",
    "MISSING",
    "NAN",
    "SEED",
    "TOLD",
    "WHOLE",
    "WORDS",
    "Place",
    "extreme",
    "holed",
    "kind_of",
    "made_extreme",
    "made_up_item",
    "made_up_tensor",
    "resized",
    "sizes_of",
    "with_holes",
    "with_whole",
]

SEED = 20_220_428  # of made-up rows, which are public
Place = tuple[Any, ...]
"""The way to a leaf or a list, then the dimension, "elements" or "words"."""
WORDS = "words"
_WORDS = ("cat", "red", "sky", "saw", "the", "old", "sea", "ran")  # as long for a reader of letters
_PLAIN = {int, float, bool, str}
_EXTREMES = (1e6, -1e6, math.nan, math.inf)
NAN = 2  # the number of the third of these
TOLD = "1e6, -1e6, NaN, infinity, or 255 in bytes"  # what these are, for messages
WHOLE = (255, 2, 30_000, -100, 10**6, 7)
"""Whole numbers of several sizes, and the one by which labels say that they do not count.

None is so large that a table of so many entries would not fit."""
MARKS = (-1.0, -9.0, -99.0, -999.0, -9999.0)
"""Numbers that people write where one is missing."""
MISSING = (math.nan, math.inf, -math.inf, *MARKS)
"""Whatever may stand where a number is missing."""
_TEXT = 4  # words of a made-up text


def made_up_tensor(leaf: Any, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard normal numbers, or zeros and ones, in the type and at the place of ``leaf``."""
    like = torch.from_numpy(np.empty(0, leaf.dtype)) if isinstance(leaf, np.ndarray) else leaf
    if like.is_complex():
        values = torch.randn(shape, generator=generator, dtype=torch.complex64)
    elif like.is_floating_point():
        values = torch.randn(shape, generator=generator)
    else:
        values = torch.randint(0, 2, shape, generator=generator)
    return values.to(dtype=like.dtype, device=like.device)


def made_up_item(like: Any, number: int, *, public: bool = False) -> Any:
    """An item of the structure and the lengths of ``like``, with other values; one a number.

    Args:
        like: of which nothing but the structure enters, unless it is public.
        number: which one.
        public: whether leaves that hold no numbers may stay as they are; else texts are made up,
            too, and what cannot be made up is None.
    """
    return _made_up(like, torch.Generator().manual_seed(SEED + number), public)


def made_extreme(item: Any, number: int) -> Any:
    """The item with numbers far from the usual: large, small, NaN or infinite in turn."""
    if isinstance(item, Tensor):
        return with_whole(extreme(item, number), number)
    if isinstance(item, np.ndarray) and item.dtype.kind in "fiu":
        return _of_array(item, lambda values: made_extreme(values, number))
    if isinstance(item, float):
        return _EXTREMES[number % len(_EXTREMES)]
    if isinstance(item, int) and not isinstance(item, bool):
        return WHOLE[number % len(WHOLE)]
    if isinstance(item, (Mapping, tuple, list)):
        return _rebuilt(item, lambda value, _: made_extreme(value, number))
    return item


def holed(item: Any, value: float) -> Any:
    """The item with ``value``, NaN or infinity, in place of some of its numbers."""
    if isinstance(item, Tensor):
        return with_holes(item[None], value)[0]
    if isinstance(item, np.ndarray) and item.dtype.kind == "f":
        return _of_array(item, lambda values: holed(values, value))
    if isinstance(item, float):
        return value
    if isinstance(item, (Mapping, tuple, list)):
        return _rebuilt(item, lambda value_, _: holed(value_, value))
    return item


def _of_array(array: Any, change: Callable[[Tensor], Tensor]) -> Any:
    try:
        values = torch.from_numpy(array.copy())
    except TypeError:  # a type that torch does not have
        return array
    return change(values).numpy()


def with_holes(leaf: Tensor, value: float) -> Tensor:
    """Rows in which every other number is ``value``, from the first on."""
    if not leaf.is_floating_point() or not leaf.numel():
        return leaf
    cells = leaf.clone().reshape(len(leaf), -1)
    cells[:, ::2] = value
    return cells.reshape(leaf.shape)


def with_whole(leaf: Tensor, number: int) -> Tensor:
    """Whole numbers of another size, as far as their type holds them; bytes as large as they can.

    Args:
        leaf: stays as it is if it holds no whole numbers.
        number: which size.
    """
    if leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool:
        return leaf
    limits = torch.iinfo(leaf.dtype)
    value = WHOLE[number % len(WHOLE)]
    return torch.full_like(leaf, max(limits.min, min(limits.max, value)))


def extreme(values: Tensor, number: int, *, dims: int = 1) -> Tensor:
    """The same for a tensor.

    Whole numbers stay, since they may be looked up somewhere; but bytes in so many dimensions are
    as large as they can be, since it is by their size that code tells pictures in bytes.
    """
    if values.is_floating_point() or values.is_complex():
        return torch.full_like(values, _EXTREMES[number % len(_EXTREMES)])
    in_bytes = values.dtype == torch.uint8 and values.ndim >= dims
    return torch.full_like(values, 255) if in_bytes else values


def _made_up(like: Any, generator: torch.Generator, public: bool) -> Any:
    if isinstance(like, Tensor):
        return _begun(made_up_tensor(like, tuple(like.shape), generator))
    if isinstance(like, np.ndarray):
        return _made_up_array(like, generator, public)
    if isinstance(like, str):
        return like if public else _text(generator)
    if isinstance(like, bool):
        return bool(torch.randint(0, 2, (), generator=generator))
    if isinstance(like, (int, np.integer)):
        return type(like)(int(torch.randint(0, 2, (), generator=generator)))
    if isinstance(like, (float, np.floating)):
        return type(like)(float(torch.randn((), generator=generator)))
    if isinstance(like, (Mapping, tuple, list)):
        made = _rebuilt(like, lambda value, _: _made_up(value, generator, public))
        if isinstance(made, list) and made and type(made[0]) is int:
            made[0] = 1  # as in a tensor
        return made
    return like if public else None


def _begun(values: Tensor) -> Tensor:
    """With a one at the start of whole numbers: of zeros alone, masks leave nothing over."""
    if values.ndim and len(values) and not (values.is_floating_point() or values.is_complex()):
        values[0] = 1
    return values


def _made_up_array(like: Any, generator: torch.Generator, public: bool) -> Any:
    if like.dtype.kind not in "fciub":
        return like.copy() if public else np.zeros(like.shape, like.dtype)
    try:
        return _begun(made_up_tensor(like, tuple(like.shape), generator)).numpy()
    except TypeError:  # a type that torch does not have
        drawn = torch.randint(0, 2, tuple(like.shape), generator=generator)
        return drawn.numpy().astype(like.dtype)


def _text(generator: torch.Generator) -> str:
    drawn = torch.randint(0, len(_WORDS), (_TEXT,), generator=generator)
    return " ".join(_WORDS[i] for i in drawn.tolist())


def _rebuilt(tree: Any, change: Callable[[Any, Any], Any]) -> Any:
    """The same container with ``change(value, key)`` in each place."""
    if isinstance(tree, MutableMapping):
        changed = copy.copy(tree)  # keeps what else a user's mapping has
        for key in tree:
            changed[key] = change(tree[key], key)
        return changed
    if isinstance(tree, Mapping):
        return {key: change(value, key) for key, value in tree.items()}
    values = [change(value, i) for i, value in enumerate(tree)]
    if isinstance(tree, tuple):
        return type(tree)(*values) if hasattr(tree, "_fields") else tuple(values)
    return values


# --- lengths --------------------------------------------------------------------------------------


def sizes_of(item: Any) -> dict[Place, int]:
    """The size at each place where an item has one."""
    found: dict[Place, int] = {}

    def note(place: Place, size: int) -> int:
        found[place] = max(size, found.get(place, 0))
        return size

    _walk(item, (), note)
    return found


def resized(item: Any, sizes: Mapping[Place, int]) -> Any:
    """The item with other sizes at these places: its values repeated, or cut off."""
    return _walk(item, (), lambda place, size: sizes.get(place, size))


def _walk(item: Any, path: Place, change: Callable[[Place, int], int]) -> Any:
    if isinstance(item, (Tensor, np.ndarray)):
        for dim in range(item.ndim):
            item = _cycled(item, dim, change((*path, dim), item.shape[dim]))
        return item
    if isinstance(item, str):
        words = item.split()
        return _same_or(item, words, change((*path, WORDS), len(words)), " ".join)
    if isinstance(item, Mapping):
        return _rebuilt(item, lambda value, key: _walk(value, (*path, key), change))
    if not isinstance(item, (list, tuple)):
        return item
    if _is_record(item, path) or not _alike(item):
        return _rebuilt(item, lambda value, i: _walk(value, (*path, i), change))
    values = [_walk(value, (*path, "each"), change) for value in item]
    return type(item)(_repeated(values, change((*path, "elements"), len(values))))


def _is_record(item: Any, path: Place) -> bool:
    """Whether its elements are parts with names or places of their own, as an item's are."""
    if path or hasattr(item, "_fields"):
        return hasattr(item, "_fields")
    return isinstance(item, tuple) or not all(type(value) in _PLAIN for value in item)


def _alike(values: Sequence[Any]) -> bool:
    """Whether they are elements of one kind: numbers, or the same apart from their sizes."""
    kinds = set(map(type, values))
    if kinds <= _PLAIN - {str}:
        return True
    return len(kinds) == 1 and len(set(map(kind_of, values))) == 1


def kind_of(value: Any) -> str:
    """Its structure, without sizes."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{type(value)} {value.ndim} {value.dtype}"
    if isinstance(value, (list, tuple)):
        plain = set(map(type, value))
        kinds = map(str, plain) if plain <= _PLAIN else map(kind_of, value)
        together = sorted(set(kinds)) if _alike(value) else list(kinds)
        return f"{type(value)} {together}"
    if isinstance(value, Mapping):
        return f"{type(value)} { {key: kind_of(each) for key, each in value.items()} }"
    return str(type(value))


def _cycled(item: Any, dim: int, size: int) -> Any:
    held = item.shape[dim]
    if size == held:
        return item
    if not held:
        shape = (*item.shape[:dim], size, *item.shape[dim + 1 :])
        return (
            np.zeros(shape, item.dtype) if isinstance(item, np.ndarray) else item.new_zeros(shape)
        )
    places = np.arange(size) % held
    if isinstance(item, np.ndarray):
        return np.take(item, places, axis=dim)
    return item.index_select(dim, torch.from_numpy(places).to(item.device))


def _repeated(values: Sequence[Any], size: int) -> list[Any]:
    return [values[i % len(values)] for i in range(size if len(values) else 0)]


def _same_or(item: Any, parts: Sequence[Any], size: int, joined: Callable[[Any], Any]) -> Any:
    return item if size == len(parts) else joined(_repeated(parts, size))
