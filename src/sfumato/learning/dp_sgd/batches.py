"""Where a trainer's rows come from: tensors, arrays, or any map-style data set.

Only the *structure* of the data is looked at before a run: how many leaves, their shapes after the
first dimension, their types. Errors are about that structure, never about values. A batch made up
from it (:meth:`Source.imitation`) serves the checks before a run.

    >>> source = Source((torch.zeros(100, 3), torch.zeros(100, dtype=torch.long)))
    >>> len(source)
    100
    >>> x, y = source.fetch(np.array([5, 7]))
    >>> x.shape, y.shape
    (torch.Size([2, 3]), torch.Size([2]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from sfumato.core import validation
from sfumato.learning.dp_sgd.augmenting import same_coins
from sfumato.learning.dp_sgd.deferred import Deferred
from sfumato.learning.dp_sgd.errors import StreamError, TrainingError
from sfumato.learning.dp_sgd.in_order import InOrder
from sfumato.learning.dp_sgd.structure import (
    common_length,
    map_leaves,
    require_same_structure,
    structure_of,
)

__all__ = ["Source"]

Rows = NDArray[np.int64]
_TRIALS, _ROWS = 64, 4  # to catch a collate that mixes now and then
_SEED = 20_220_428  # of made-up rows, which are public


@final
class Source:
    """A training set.

    Args:
        data: a tensor or array; tuples, lists and dictionaries of them, all of the same length; a
            torch ``TensorDataset``; ``Deferred`` rows; or a map-style data set, whose items are
            collated.
        workers: processes that prepare a data set's batches. Tensors need none.
        collate: how a list of a data set's items becomes a batch; torch's ``default_collate`` if
            None.
        example: a few public, plausible rows (for tensors of the same structure as ``data``, for a
            data set a list of items), for :meth:`imitation` to use instead of made-up ones. A data
            set's rows that cannot be read, or not collated, then count as the first of them;
            without it what the data set raises is raised. A stream that is too short is an error
            either way.

    Raises:
        ValueError: if rows cannot be told from ``data``, naming the remedy.
    """

    def __init__(
        self,
        data: Any,
        *,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        example: Any = None,
    ) -> None:
        self.workers = validation.at_least("workers", workers, 0)
        _refuse_mistakes(data)
        if type(data) is TensorDataset:  # not a subclass, which may do more than index
            data = data.tensors
        self._items: _Items | None = None
        self._later = data if isinstance(data, Deferred) else None
        if isinstance(data, (Tensor, np.ndarray, tuple, list, dict, Deferred)):
            self._data = data if self._later is None else self._later.like
            self._length = len(data) if self._later is not None else common_length(data, "data")
            if collate is not None:
                validation.fail("collate", "None for tensors, which are indexed directly", collate)
            if example is not None:
                require_same_structure(self._data, example)
            self._example = example
        else:
            if self.workers and isinstance(data, InOrder):
                data.check_reopens()
            self._items = _Items(data, collate, example)
            self._length = len(data)

    def __len__(self) -> int:
        return self._length

    @property
    def is_dataset(self) -> bool:
        """Whether rows come from a data set's own code, not from tensors or arrays."""
        return self._items is not None

    def fetch(self, rows: Rows) -> Any:
        """The batch of these rows, in this order; of no rows, an empty one."""
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if self._items is None:
            return _index(self._data if self._later is None else self._later.made(), wanted)
        return self._items.batch(wanted) if len(wanted) else self.imitation(0)

    def stream(self, lots: Iterable[Rows]) -> Iterator[Any]:
        """The batches of many row arrays, in order, each prepared before it is asked for.

        ``lots`` may be endless. It is read in this process, at most twice the number of workers
        ahead; without workers not ahead at all. Closing the iterator ends the workers.
        """
        if self._items is None or not self.workers:
            yield from map(self.fetch, lots)
            return
        loader = DataLoader(
            _Whole(self),
            batch_sampler=lots,  # pyright: ignore[reportArgumentType]
            collate_fn=_same,
            num_workers=self.workers,
            prefetch_factor=2,
            generator=torch.Generator(),  # so that torch's own is left alone
        )
        yield from loader

    def check_collate(self) -> None:
        """Raises if the user's ``collate`` mixes items; made-up ones are tried.

        Raises:
            TrainingError: if, with the same coins, another row than a changed item's moves.
        """
        if self._items is not None:
            self._items.check_collate()

    def imitation(self, rows: int) -> Any:
        """A public batch of so many made-up rows in the structure of the data.

        Floating-point leaves are standard normal, whole numbers and booleans 0 or 1, words empty.
        The same every time; no global generator is touched. With ``example``, its rows in turn.

        Raises:
            ValueError: if the data set is empty and there is no example.
        """
        count = validation.at_least("rows", rows, 0)
        generator = torch.Generator().manual_seed(_SEED)
        if self._items is None:
            if self._example is not None:
                turns = np.arange(count) % max(1, common_length(self._example, "example"))
                return _index(self._example, turns)
            return map_leaves(
                lambda leaf: _made_up(leaf, (count, *leaf.shape[1:]), generator), self._data
            )
        batch = self._items.public_batch(max(1, count))
        if self._items.example is None:
            batch = map_leaves(lambda leaf: _made_up(leaf, tuple(leaf.shape), generator), batch)
        return batch if count else map_leaves(lambda leaf: leaf[:0] if leaf.ndim else leaf, batch)


# --- data sets ----------------------------------------------------------------------------------


class _Items:
    """A map-style data set, item by item."""

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None, example: Any) -> None:
        self.data, self.example = data, None if example is None else list(example)
        if self.example == []:
            validation.fail("example", "a list of at least one item", example)
        self._collate = collate or default_collate
        self._usual = collate is None

    def batch(self, rows: Rows) -> Any:
        indices = rows.tolist()
        if self.example is not None:
            items = [self._item(i, self.example[0]) for i in indices]
        elif callable(getattr(self.data, "__getitems__", None)):
            items = self.data.__getitems__(indices)
        else:
            items = [self.data[i] for i in indices]
        return self._collate(items)

    def _item(self, index: int, default: Any) -> Any:
        """The item, or the public default if it cannot be read or collated."""
        try:
            item = self.data[index]
            # With the user's own collate, items of different shapes may be meant.
            fits = not self._usual or structure_of(item) == structure_of(default)
        except StreamError:  # about the declared number of rows: the rest would all be defaults
            raise
        except Exception:  # whatever a private row makes the user's code do
            return default
        return item if fits else default

    def check_collate(self) -> None:
        if self._usual:
            return
        for trial in range(_TRIALS):
            items = [self._made_up_item(_ROWS * trial + i) for i in range(_ROWS)]
            row, found = trial % _ROWS, list[list[Tensor]]()
            for chosen in (items[row], self._made_up_item(-1 - trial)):
                listed = [*items[:row], chosen, *items[row + 1 :]]
                with same_coins(trial):
                    leaves = pytree.tree_leaves(self._collate(listed))
                found.append([t for t in leaves if isinstance(t, Tensor)])
            others = [i for i in range(_ROWS) if i != row]
            for one, two in zip(*found, strict=True):
                rows_first = one.ndim > 0 and len(one) == len(two) == _ROWS
                if rows_first and not _equal(one[others], two[others]):
                    raise TrainingError(
                        "collate mixes the items of a batch (as mixup does), so that one record's "
                        "gradient would depend on others: collate each item by itself"
                    )

    def _made_up_item(self, number: int) -> Any:
        item = self.data[0] if self.example is None else self.example[number % len(self.example)]
        generator = torch.Generator().manual_seed(_SEED + number)
        return map_leaves(lambda leaf: _made_up(leaf, tuple(leaf.shape), generator), item)

    def public_batch(self, count: int) -> Any:
        """Of the example, or of the first item, from which the caller takes the structure only."""
        if self.example is not None:
            return self._collate([self.example[i % len(self.example)] for i in range(count)])
        if not len(self.data):
            raise ValueError(
                "data is an empty data set, which does not show its structure: give a few public "
                "items as example="
            )
        return self._collate([self.data[0]] * count)


class _Whole(Dataset[Any]):
    """Whole batches by row arrays, for torch's workers."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, index: Any) -> Any:
        return self._source.fetch(index)

    def __getitems__(self, indices: Any) -> Any:
        return self._source.fetch(indices)


def _same(batch: Any) -> Any:
    return batch


def _refuse_mistakes(data: Any) -> None:
    if hasattr(data, "to_numpy"):
        raise ValueError(
            f"data must be tensors or arrays, got a {type(data).__name__}: pass "
            'data.to_numpy("float32"), features and labels apart'
        )
    if isinstance(data, DataLoader):
        raise ValueError(
            "data must be the data set, got a DataLoader: pass its .dataset; lots are drawn here, "
            "so its batch size, order and sampler would not hold"
        )
    if isinstance(data, (IterableDataset, Iterator)):
        raise ValueError(
            f"data must give any row by its number, got {type(data).__name__}, which can only be "
            "read in order: lots are random samples; load it into a map-style data set, or InOrder "
            "with StreamedLots"
        )
    if isinstance(data, Deferred):
        return
    indexed = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not indexed or isinstance(data, (str, bytes, type)):
        raise ValueError(
            "data must be a tensor, an array, a tuple or dictionary of them, or a data set with "
            f"__len__ and __getitem__, got {type(data).__name__}"
        )


def _index(data: Any, rows: Rows) -> Any:
    def take(leaf: Any) -> Tensor:
        if isinstance(leaf, np.ndarray):  # reads a memory-mapped file's rows alone
            return torch.from_numpy(np.ascontiguousarray(leaf[rows]))
        return leaf.index_select(0, torch.from_numpy(rows).to(leaf.device))

    return map_leaves(take, data)


def _equal(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and torch.allclose(one, two, rtol=0, atol=0, equal_nan=True)


def _made_up(leaf: Any, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    like = torch.from_numpy(np.empty(0, leaf.dtype)) if isinstance(leaf, np.ndarray) else leaf
    if like.is_complex():
        values = torch.randn(shape, generator=generator, dtype=torch.complex64)
    elif like.is_floating_point():
        values = torch.randn(shape, generator=generator)
    else:
        values = torch.randint(0, 2, shape, generator=generator)
    return values.to(dtype=like.dtype, device=like.device)
