"""Numbers that a model or a loss keeps from one batch to the next, beside its tensors.

A running mean of private losses carries rows from batch to batch without noise, also as a Python
number that matters only after a warm-up of a hundred batches, which no rehearsal reaches. So in
``fit``, where nothing but the loss runs meanwhile, numbers with a point, arrays, and lists of them
must be the same after each batch's losses as before. Whole numbers may change: they count batches,
and text and yes-or-no are settings. In a loop of one's own this cannot be told from what the loop
itself sets, such as a temperature.
"""

from __future__ import annotations

import functools
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import nn

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.watching import MODULES_OWN, modules_of

__all__ = ["Remembered"]

_NUMBERS = (float, complex, np.floating, np.complexfloating)
_LISTS = (list, tuple, deque, set, frozenset)
_SETTINGS = frozenset({str, int, bool, type(None)})
_LIBRARIES = ("torch", "transformers", "peft", "accelerate", "sfumato")
_LONGEST = 1000  # longer lists are known by their lengths and ends
_LOOKED_AT = 100_000  # numbers of an array, about, evenly spread
_DEEPEST = 3

_Key = tuple[Any, ...]
"""The number of a module, or None for the loss, and the way to what it keeps."""


class Remembered:
    """What a model and a loss keep; noted before a batch's losses, checked after them."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any]) -> None:
        self._model, self._loss = model, loss
        self._noted: dict[_Key, Any] = {}

    def note(self) -> None:
        """Takes what is kept now."""
        self._noted = dict(self._numbers())

    def check(self) -> None:
        """Raises if a number came, went or changed.

        Raises:
            TrainingError: naming what keeps it, not the number.
        """
        now = dict(self._numbers())
        if now == self._noted:
            return
        keys = [*self._noted, *now]
        changed = next(key for key in keys if now.get(key) != self._noted.get(key))
        raise TrainingError(
            f"{self._name(changed)} changed while the losses of a batch were computed: a number "
            "that is kept from batch to batch carries private rows along without noise. Keep "
            "statistics and logs of losses out of the model and the loss"
        )

    def _name(self, key: _Key) -> str:
        number, *way = key
        if number is None:
            return f"the loss's {str(way[0])!r}"
        prefix = list(dict(self._model.named_modules()))[number]
        return repr(f"{prefix}.{way[0]}".lstrip("."))

    def _numbers(self) -> Iterator[tuple[_Key, Any]]:
        for number, module in enumerate(modules_of(self._model)):
            kept = vars(module)
            for name in kept.keys() - MODULES_OWN:
                if type(value := kept[name]) not in _SETTINGS:
                    yield from _within((number, name), value, _DEEPEST)
        loss = self._loss
        names = getattr(getattr(loss, "__code__", None), "co_freevars", ())
        for name, cell in zip(names, getattr(loss, "__closure__", None) or (), strict=False):
            yield from _within((None, name), _content(cell), _DEEPEST)
        if not isinstance(loss, nn.Module) and not _is_librarys(type(loss)):
            yield from _of_object((None,), loss, _DEEPEST)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _within(key: _Key, value: Any, depth: int) -> Iterator[tuple[_Key, Any]]:
    """Numbers in a value, each with the way to it."""
    if type(value) in _SETTINGS or _is_librarys(type(value)):
        return
    if isinstance(value, _NUMBERS):
        yield key, repr(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "fc":
            some = value.reshape(-1)[:: max(1, value.size // _LOOKED_AT)]
            yield key, (value.shape, zlib.crc32(np.ascontiguousarray(some).data))
    elif not depth or isinstance(value, nn.Module) or callable(value):
        return
    elif isinstance(value, (dict, *_LISTS)):
        if len(value) > _LONGEST:
            ends = [] if isinstance(value, dict | set | frozenset) else [value[0], value[-1]]
            yield key, (len(value), *(repr(end) for end in ends if isinstance(end, _NUMBERS)))
            return
        for name, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield from _within((*key, name), item, depth - 1)
    else:
        yield from _of_object(key, value, depth - 1)


@functools.cache
def _is_librarys(kind: type) -> bool:
    """Whether a type is one of those that keep no numbers of a batch, or that others watch."""
    return str(getattr(kind, "__module__", "")).partition(".")[0] in _LIBRARIES


def _of_object(key: _Key, value: Any, depth: int) -> Iterator[tuple[_Key, Any]]:
    """Of an object of the user's own class, such as a meter."""
    for name, item in list(getattr(value, "__dict__", {}).items()):
        yield from _within((*key, name), item, depth)
