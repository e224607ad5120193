"""Which parts of a batch are looked up somewhere, and what they are compared with.

Made-up whole numbers are 0 or 1. To see that a model scales them by the batch's largest, or counts
the labels that are not -100, rows with other numbers must be tried. But a token beyond the
vocabulary, or a label that is no class, raises; on a GPU it ends all work there. So in the first
turn of a rehearsal it is followed where a batch's tensors go: whether they, or what is made of
them, are an index of something, and of how many entries. Whatever numbers they are compared with (a
padding token, an ignored label, -999 for a missing value) is noted, too, as these mean something.

What leaves torch, through NumPy or as Python's numbers, is taken for looked up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.gradients.uses import function_name

__all__ = ["Looked", "Lookups"]

_TABLES = frozenset({"embedding", "embedding_bag"})
_CLASSES = frozenset({"cross_entropy", "nll_loss", "nll_loss_nd", "nll_loss2d"})
_OTHERS = frozenset(  # of a size that is not known here, or that follows the index
    {
        "__index__", "__int__", "__setitem__", "__array__", "bincount", "ctc_loss", "gather",
        "index_add", "index_add_", "index_copy", "index_fill", "index_put", "index_put_",
        "index_select", "multi_margin_loss", "multilabel_margin_loss", "numpy", "one_hot",
        "repeat_interleave", "scatter", "scatter_", "scatter_add", "scatter_add_", "take",
        "take_along_dim", "tolist",
    }
)  # fmt: skip
_UNCHECKED = frozenset({"ctc_loss"})
_OUT = frozenset({"__array__", "item", "numpy", "tolist"})  # of torch
_SAME = frozenset(  # leave values as they are
    {
        "__getitem__", "clone", "contiguous", "cpu", "cuda", "detach", "expand", "flatten", "int",
        "long", "narrow", "permute", "reshape", "squeeze", "t", "to", "transpose", "type",
        "unsqueeze", "view",
    }
)  # fmt: skip
_SUMMED = frozenset({"amax", "amin", "count_nonzero", "max", "mean", "min", "std", "sum", "var"})
_COMPARED = {"eq": (0,), "ne": (0,), "lt": (0, -1), "ge": (0, -1), "le": (0, 1), "gt": (0, 1)}
_IGNORED = -100
_MOST = 6  # numbers that one part is compared with
_COUNTED = 10**6 + 1
_ROOM = 8  # entries left over, where a number is looked up that was made of another


@dataclass
class Looked:
    """What became of one part of a batch.

    Attributes:
        at: whether it was an index.
        itself: whether it was so as it is; not something that was made of it.
        top: the largest number that can be looked up as far as is known; -1 for none.
        compared: whole numbers that it was compared with.
        marks: numbers that a part with a point was compared with, or a bit beside them.
        ignored: numbers that are looked up nowhere although others are.
        unchecked: whether a number beyond all is no error, but a look at other memory.
    """

    at: bool = False
    itself: bool = True
    top: int | None = None
    compared: list[int] = field(default_factory=list[int])
    marks: list[float] = field(default_factory=list[float])
    ignored: set[int] | None = None
    unchecked: bool = False

    def note(self, top: int, itself: bool, ignored: set[int]) -> None:
        """One more use as an index."""
        self.top = top if self.top is None else min(top, self.top)
        self.itself = self.itself and itself
        self.ignored = ignored if self.ignored is None else self.ignored & ignored
        self.at = True

    def takes(self, value: int) -> bool:
        """Whether a number is known to be looked up without an error."""
        if not self.at:
            return True
        assert self.top is not None
        return 0 <= value <= self.top or value in (self.ignored or ())


class Lookups(TorchFunctionMode):
    """Follows the parts of one batch.

    Attributes:
        of: by the number of the part, what became of it; empty if nothing was followed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[int, Looked] = {}
        self._met: dict[int, tuple[Tensor, frozenset[int], bool]] = {}
        self._largest: dict[int, int] = {}

    @contextlib.contextmanager
    def following(self, batch: Any, wanted: bool = True) -> Generator[None]:
        """For the time of the block, in which the batch is used.

        Args:
            batch: made-up rows.
            wanted: whether to.
        """
        if not wanted:
            yield
            return
        self.of = {}
        for number, leaf in enumerate(_leaves(batch)):
            self.of[number] = Looked()
            self._met[id(leaf)] = leaf, frozenset({number}), True
            self._largest[number] = int(leaf.max()) if _is_whole(leaf) and leaf.numel() else 0
        try:
            with self:
                yield
        finally:
            self._met.clear()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in _leaves((args, kwargs)) if id(leaf) in self._met]
        if not given:
            return func(*args, **kwargs)
        name = function_name(func)
        self._note(name, args, kwargs, given)
        out = func(*args, **kwargs)
        parts = frozenset[int]().union(*(self._met[id(leaf)][1] for leaf in given))
        first = given[0]
        itself = name in _SAME and len(given) == 1 and first is args[0] and self._met[id(first)][2]
        of_all = name in _SUMMED  # one number, which is nobody's index
        for leaf in _leaves(out):
            if of_all and not leaf.ndim:
                continue
            if leaf.dtype != torch.bool and id(leaf) not in self._met:
                self._met[id(leaf)] = leaf, parts, itself
        return out

    def _note(self, name: str, args: Any, kwargs: Any, given: list[Tensor]) -> None:
        plain = name.strip("_")
        if plain in _COMPARED and len(args) > 1:
            for value in _whole_numbers(args[:2]):
                self._compare(given, [value + more for more in _COMPARED[plain]])
            for value in _numbers(args[:2]):
                self._mark(given, [value + more for more in _COMPARED[plain]])
        elif name in ("isin", "isclose"):
            for value in _whole_numbers(args[1:2]):
                self._compare(given, [value])
            self._mark(given, [*_numbers(args[1:2])])
        elif name in _TABLES or name in _CLASSES or name in _OTHERS or name == "__getitem__":
            of_rows = args[:1] if name in ("__getitem__", "__setitem__", *_CLASSES) else ()
            for leaf in given:
                if not any(leaf is base for base in of_rows):
                    self._look_up(name, args, kwargs, leaf)
        elif name == "item" and any(map(_is_whole, given)):
            for leaf in given:
                self._look_up(name, args, kwargs, leaf)

    def _compare(self, given: list[Tensor], values: list[int]) -> None:
        for leaf in given:
            for part in self._met[id(leaf)][1]:
                kept = self.of[part].compared
                kept.extend(v for v in values if v not in kept and len(kept) < _MOST)

    def _mark(self, given: list[Tensor], values: list[float]) -> None:
        for leaf in given:
            for part in self._met[id(leaf)][1] if leaf.is_floating_point() else ():
                kept = self.of[part].marks
                kept.extend(v for v in values if v not in kept and len(kept) < _MOST)

    def _look_up(self, name: str, args: Any, kwargs: Any, leaf: Tensor) -> None:
        if not _is_whole(leaf) and name in (*_TABLES, *_CLASSES, *_OUT):
            return  # rows of a table; probabilities of classes; no index, wherever they go
        _, parts, itself = self._met[id(leaf)]
        size = _size(name, args, kwargs)
        if name in _UNCHECKED:
            for part in parts:
                self.of[part].unchecked = True
            targets = args[1] if len(args) > 1 else kwargs.get("targets")
            size = len(args[0][0, 0]) if leaf is targets and args[0].ndim == 3 else None
        ignored = {int(kwargs.get("ignore_index", _IGNORED))} if name in _CLASSES else set[int]()
        if name in _CLASSES:
            self._compare([leaf], sorted(ignored))
        left = -1 if size is None or not leaf.numel() else size - 1 - int(leaf.max())
        for part in parts:
            if left < 0:
                top = -1
            elif itself:
                top = self._largest[part] + left
            else:
                top = self._largest[part] + 1 if left >= _ROOM else -1
            self.of[part].note(top, itself, ignored)


def _size(name: str, args: Any, kwargs: Any) -> int | None:
    """Of what is looked up in; None if that is not known."""
    tensors = [leaf for leaf in (*args, *kwargs.values()) if isinstance(leaf, Tensor)]
    if name in _TABLES:
        tables = [leaf for leaf in tensors if not _is_whole(leaf)]
        return len(tables[0]) if tables and tables[0].ndim else None
    if name in _CLASSES and tensors:
        scores = tensors[0]
        return scores.shape[1] if scores.ndim > 1 else scores.shape[0]
    if name == "bincount":  # grows as it has to
        return _COUNTED
    if name == "one_hot":
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return classes if isinstance(classes, int) and classes > 0 else None
    if name == "__getitem__" and isinstance(args[1], Tensor) and args[0].ndim:
        return len(args[0])
    return None


def _whole_numbers(values: Any) -> Iterator[int]:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            yield value
        elif isinstance(value, Tensor) and _is_whole(value) and value.ndim < 2:
            yield from (int(each) for each in value.flatten()[:_MOST])


def _numbers(values: Any) -> Iterator[float]:
    for value in values:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if plain or (isinstance(value, Tensor) and value.is_floating_point() and not value.ndim):
            yield float(value)


def _is_whole(leaf: Tensor) -> bool:
    return not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool)


def _leaves(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]
