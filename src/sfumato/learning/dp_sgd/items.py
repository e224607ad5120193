"""A data set's items: read one by one, collated, and left out where a private one does not fit.

What a batch looks like is declared: by the public ``example``, or else by items made up in the
structure that most of the first items have, by so far that no two tables that differ by one item
declare two (or an error asks for an example). Its *form* is each part's type and its lengths after
the first dimension; a length is open where the collate accepts made-up items of several.

Guarantee: whether an item can be used is a function of that item alone. It can if the user's
collate takes it in the company of the declared item (the first of the example, or the made-up one)
and the batch then has the declared form. Others (unreadable, of another type or shape, or of a
length that the collate does not take) are left out: a declared item stands in for them, with
weight 0, and no error tells. Items are read by their own numbers, never several at once, since a
data set that makes several at once may make one look like the others (a transform that pads). Each
is copied before the next is read (:mod:`~sfumato.learning.dp_sgd.kept_items`).

Where lengths are open, the declared item is in every batch that is collated, so that no item is
ever without company; what company does to it is tried in the rehearsal
(:mod:`~sfumato.learning.dp_sgd.company`).
"""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import default_collate

from sfumato.core import validation
from sfumato.learning.dp_sgd.company import Company, PublicItems
from sfumato.learning.dp_sgd.errors import StreamError, TrainingError
from sfumato.learning.dp_sgd.in_order import InOrder
from sfumato.learning.dp_sgd.kept_items import kept
from sfumato.learning.dp_sgd.made_up import WORDS, kind_of, made_up_item, sizes_of
from sfumato.learning.dp_sgd.other_coins import (
    Watched,
    drawn_by,
    refuse_held,
    refuse_unrepeated,
    same_coins,
)
from sfumato.learning.dp_sgd.own_rows import own_rows_alone
from sfumato.learning.dp_sgd.structure import map_leaves

__all__ = ["Fetched", "Items"]

Rows = NDArray[np.int64]
_SEEN = 9  # items whose structures are compared
_LEAD = 3


class Fetched(NamedTuple):
    """A batch, and which of its rows are to count for nothing.

    Attributes:
        batch: as the user's loop takes it.
        left_out: (rows,) of booleans, or None if all of them count.
    """

    batch: Any
    left_out: NDArray[np.bool_] | None = None


@final
class Items:
    """A map-style data set, item by item.

    Args:
        data: the data set.
        collate: how a list of items becomes a batch; torch's ``default_collate`` if None.
        example: public items.
    """

    def __init__(self, data: Any, collate: Callable[[list[Any]], Any] | None, example: Any) -> None:
        self.data, self._example = data, None if example is None else list(example)
        if self._example == []:
            validation.fail("example", "a list of at least one item", example)
        self._collate = collate or default_collate
        self._any_shape = collate is not None
        self._watched_in = 0  # the process that made a batch and was watched
        self._error: Exception | None = None  # the last of the collate's

    # --- private items ----------------------------------------------------------------------------

    def batch(self, rows: Rows) -> Fetched:
        """These rows, in this order; whoever makes them is watched.

        The first time in a process every function of torch's is looked at, later on what seeds.
        """
        self._public.form  # noqa: B018  before any of the rows is read: a stream goes on only
        known, watched = self._watched_in == os.getpid(), Watched()
        with watched, contextlib.nullcontext() if known else watched.calls():
            found = self._batch(rows)
        self._watched_in = os.getpid()
        return found

    def _batch(self, rows: Rows) -> Fetched:
        public = self._public
        items, left_out = list[Any](), np.zeros(len(rows), bool)
        with own_rows_alone(self.data):
            for place, index in enumerate(rows.tolist()):
                try:
                    items.append(kept(self.data[index]))
                except StreamError:  # about the declared number of rows: all rest would be left out
                    raise
                except Exception:  # whatever a private row makes the user's code do
                    items.append(public.declared)
                    left_out[place] = True
        found = self._behind_declared(items) if public.form.is_open else self._collated(items)
        if found is None:
            for place, item in enumerate(items):
                if not left_out[place] and self._behind_declared([item]) is None:
                    items[place], left_out[place] = public.declared, True
            found = self._behind_declared(items)
        if found is None:
            raise TrainingError(
                "collate fails on a batch whose items it takes one by one: it depends on which "
                "items come together; give it items of one shape, or collate=sf.PadTo(length)"
            ) from self._error
        return Fetched(found, left_out if left_out.any() else None)

    def _collated(self, items: list[Any]) -> Any:
        """The batch, or None if the collate fails or gives another form than declared."""
        try:
            batch = self._collate(items)
        except Exception as error:  # whatever a private row makes the user's code do
            self._error = error
            return None
        return batch if self._public.form.holds(batch, len(items)) else None

    def _behind_declared(self, items: list[Any]) -> Any:
        """The batch of items, collated together with the declared one."""
        batch = self._collated([self._public.declared, *items])
        return None if batch is None else map_leaves(_without_first, batch)

    # --- public items -----------------------------------------------------------------------------

    def imitation(self, count: int) -> Any:
        """A batch of public items; the same every time."""
        return self._public.imitation(count)

    def check_collate(self, several: bool, crowd: int = 0) -> None:
        """Raises if the collate mixes items, or something draws other coins than it is given."""
        collate = self._collate if self._any_shape else None
        refuse_held(data=self.data, collate=collate)
        if self._example is None and len(self.data):
            drawn_by(lambda: self._read(0), 1, 0)
            if not isinstance(self.data, InOrder):  # which some can read only once
                first = self._read(0)
                refuse_unrepeated("the data set", first, self._read(0))
                for other in range(1, min(_SEEN, len(self.data))):
                    self._read(other)
                refuse_unrepeated("the data set", first, self._read(0))
        if collate is not None:
            self._public.check(several, crowd)
            refuse_held(collate=collate)  # which may have made one by now

    def companies(self, rows_per_unit: int) -> list[Company]:
        """What the model must be tried on; see :meth:`PublicItems.companies`."""
        return self._public.companies(rows_per_unit)

    @cached_property
    def _public(self) -> PublicItems:
        if self._example is not None:
            return self._tried(self._example, public=True)
        if not len(self.data):
            raise ValueError(
                "data is an empty data set, which does not show its structure: give a few public "
                "items as example="
            )
        return self._tried([made_up_item(self._typical(), 0)], public=False)

    def _tried(self, like: list[Any], *, public: bool) -> PublicItems:
        return PublicItems(self._collate, like, public=public, any_shape=self._any_shape)

    def _typical(self) -> Any:
        """One of the first items, of the structure that most of them have."""
        if isinstance(self.data, InOrder):  # which some can read only once
            return kept(self.data[0])
        items = [self._read(i) for i in range(min(_SEEN, len(self.data)))]
        alike = [items[i] for i in _commonest([kind_of(item) for item in items])]
        if isinstance(alike[0], Exception):
            raise alike[0]
        if len(alike) == 1:
            return alike[0]
        may_vary = self._tried([made_up_item(alike[0], 0)], public=False).open_places
        sizes = [sizes_of(item) for item in alike]
        fixed = [
            str({p: n for p, n in found.items() if p not in may_vary and p[-1] != WORDS})
            for found in sizes
        ]
        chosen = sorted(
            _commonest(fixed), key=lambda i: sum(sizes[i][p] for p in may_vary if p in sizes[i])
        )
        return alike[chosen[len(chosen) // 2]]  # neither the longest nor an empty one

    def _read(self, index: int) -> Any:
        """The item, or what its reading raised; the user's generators stay as they are.

        How much is drawn for an item may depend on it.
        """
        try:
            with same_coins(0), own_rows_alone(self.data):
                return kept(self.data[index])
        except Exception as error:
            return error


def _commonest(kinds: Sequence[str]) -> list[int]:
    """Where the commonest is, if it is so by far.

    Of two tables that differ by one item, each count differs by one at most. So if both pass, the
    same kind is the commonest in both, unless there is one item.
    """
    (top, count), *others = collections.Counter(kinds).most_common(2)
    if others and count - others[0][1] < _LEAD:
        raise TrainingError(
            "the first items of the data set have several structures, so that none can be taken "
            "as declared: give a few public items as example=, or let collate make them alike, as "
            "collate=sf.PadTo(length) does for lengths"
        )
    return [i for i, kind in enumerate(kinds) if kind == top]


def _without_first(leaf: Any) -> Any:
    return leaf[1:] if leaf.ndim else leaf
