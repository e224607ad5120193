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
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from sfumato.core import validation
from sfumato.learning.dp_sgd.company import Company
from sfumato.learning.dp_sgd.deferred import Deferred
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.in_order import InOrder
from sfumato.learning.dp_sgd.items import Fetched, Items
from sfumato.learning.dp_sgd.made_up import SEED, made_up_tensor
from sfumato.learning.dp_sgd.other_coins import refuse_seeds
from sfumato.learning.dp_sgd.structure import common_length, map_leaves, require_same_structure
from sfumato.learning.secret_coins import ModelCoins, set_states

__all__ = ["Source"]

Rows = NDArray[np.int64]


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
            data set a list of items), for :meth:`imitation` to use instead of made-up ones. They
            declare what items look like; without them most of the first nine do. Items that
            cannot be read or collated are left out. A stream that is too short is an error.

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
        self._is_public = example is not None
        self._items: Items | None = None
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
            self._items = Items(data, collate, example)
            self._length = len(data)

    def __len__(self) -> int:
        return self._length

    @property
    def is_dataset(self) -> bool:
        """Whether rows come from a data set's own code, not from tensors or arrays."""
        return self._items is not None

    @property
    def is_public(self) -> bool:
        """Whether imitations are made of a public example."""
        return self._is_public

    @property
    def can_be_read_again(self) -> bool:
        """Whether any row of a data set can be read at any time, as those of a stream cannot."""
        return self._items is not None and not isinstance(self._items.data, InOrder)

    def fetch(self, rows: Rows) -> Any:
        """The batch of these rows, in this order; of no rows, an empty one."""
        return self.fetched(rows).batch

    def fetched(self, rows: Rows) -> Fetched:
        """The batch of these rows, and which of them could not be read or collated."""
        wanted = np.asarray(rows, dtype=np.int64).reshape(-1)
        if self._items is None:
            data = self._data if self._later is None else self._later.made()
            return Fetched(_index(data, wanted))
        return self._items.batch(wanted) if len(wanted) else Fetched(self.imitation(0))

    def stream(self, lots: Iterable[Rows], coins: ModelCoins) -> Iterator[Fetched]:
        """:meth:`fetched` of many row arrays, in order, each prepared before it is asked for.

        ``lots`` may be endless. It is read in this process, at most twice the number of workers
        ahead; without workers not ahead at all. Closing the iterator ends the workers.

        A batch's rows are fetched with fresh ``coins`` in the generators, in whichever process; and
        when it comes out, this process's generators hold fresh ones.
        """
        if self._items is None or not self.workers:
            for rows in lots:
                coins.fresh()
                yield self.fetched(rows)
            return
        loader = DataLoader(
            _Whole(self),
            batch_sampler=((rows, coins.draw()) for rows in lots),  # pyright: ignore
            collate_fn=_same,
            num_workers=self.workers,
            prefetch_factor=2,
            generator=torch.Generator(),  # so that torch's own is left alone
        )
        for batch in loader:
            if isinstance(batch, TrainingError):
                raise batch
            coins.fresh()
            yield batch

    def check_collate(self, several: bool = False, crowd: int = 0) -> None:
        """Raises if a data set draws other coins than it is given, or its ``collate`` mixes items.

        Made-up items are collated. Without an example the first row is read, of which nothing is
        used.

        Args:
            several: whether a row that comes may move others to another batch.
            crowd: rows of the largest physical batch.

        Raises:
            TrainingError: if, with the same coins, another row than a changed item's moves, if
                other coins are drawn, or if collate draws once for a whole batch.
        """
        if self._items is not None:
            self._items.check_collate(several, crowd)

    def companies(self, rows_per_unit: int) -> list[Company]:
        """What company of other lengths the model must be tried in."""
        return [] if self._items is None else self._items.companies(rows_per_unit)

    def imitation(self, rows: int) -> Any:
        """A public batch of so many made-up rows in the structure of the data.

        Floating-point leaves are standard normal, whole numbers and booleans 0 or 1. A data set's
        items are made up so, and then collated. The same every time; no global generator is
        touched. With ``example``, its rows in turn.

        Raises:
            ValueError: if the data set is empty and there is no example.
        """
        count = validation.at_least("rows", rows, 0)
        if self._items is not None:
            return self._items.imitation(count)
        if self._example is not None:
            turns = np.arange(count) % max(1, common_length(self._example, "example"))
            return _index(self._example, turns)
        generator = torch.Generator().manual_seed(SEED)
        return map_leaves(
            lambda leaf: made_up_tensor(leaf, (count, *leaf.shape[1:]), generator), self._data
        )


# --- for workers ----------------------------------------------------------------------------------


class _Whole(Dataset[Any]):
    """Whole batches by row arrays and coins, for torch's workers."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __getitem__(self, index: Any) -> Any:
        rows, words = index
        set_states(words)
        try:
            batch = self._source.fetched(rows)
            refuse_seeds(ModelCoins.seeded_since())
        except TrainingError as error:  # torch would bury its message in a traceback
            return error
        return batch

    def __getitems__(self, indices: Any) -> Any:
        return self[indices]


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
