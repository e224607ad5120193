"""Made-up items in company of others: what a user's collate makes of them.

A collate that pads to the longest row, or cuts to the shortest, makes another row of the same item
when its company changes. So made-up items of several lengths are collated together with usual ones,
at every place where an item has a length that the collate lets vary. The model is then tried on
both batches: it may leave padding out by a mask, or mix rows by their lengths although all are
padded to one. What lengths the collate takes also says which lengths of a batch are open, and which
are declared.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, final

import numpy as np
import torch
from torch import Tensor

from sfumato.learning.crafted_coins import RARE, Level
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.layout import telling_sizes
from sfumato.learning.dp_sgd.made_up import (
    MISSING,
    Place,
    holed,
    made_extreme,
    made_up_item,
    resized,
    sizes_of,
)
from sfumato.learning.dp_sgd.other_coins import (
    Noted,
    drawn_by,
    refuse_shared,
    refuse_unrepeated,
    same_coins,
)
from sfumato.learning.dp_sgd.places import refuse_places
from sfumato.learning.dp_sgd.structure import leaves_of, map_leaves

__all__ = ["Company", "Form", "PublicItems"]

_TRIALS, _ROWS = 64, 4  # to catch a collate that mixes now and then
_IN_CROWDS = 4
_VARIED = 256  # made-up items; then they come again
_TOGETHER = 17  # items that are collated at least, so that they are padded alike
_UNITS = 3  # in a comparison of company
_LONG = (33, 129, 513, 2049)  # lengths that are tried, besides those near an item's own
_LARGEST = 2**20  # elements of a made-up item
_MOST_PLACES = 24


class Company(NamedTuple):
    """Two batches of three units in which some are the same, in company of other lengths.

    Attributes:
        usual: a batch of made-up rows.
        other: the same, but for one unit with rows of another length.
        units: which of the units are the same.
    """

    usual: Any
    other: Any
    units: tuple[int, ...]

    def changed(self, change: Callable[[Any], Any]) -> Company:
        """The same with ``change`` applied to the batches."""
        return Company(change(self.usual), change(self.other), self.units)


@final
class PublicItems:
    """A user's collate, and public items to try it on.

    Args:
        collate: how a list of items becomes a batch.
        like: public items, or made-up ones, of which the first says what others look like.
        public: whether they are the user's own, and plausible: then they are used as they are.
        any_shape: whether the collate could take items of several shapes in one batch.
    """

    def __init__(
        self, collate: Callable[[list[Any]], Any], like: list[Any], *, public: bool, any_shape: bool
    ) -> None:
        self._collate, self._like, self._public = collate, like, public
        self._any_shape = any_shape

    @property
    def declared(self) -> Any:
        """The item that stands in for others."""
        return self.made_up(1)[0]

    @functools.cached_property
    def form(self) -> Form:
        """What batches look like, as far as it is the same whatever lengths items have."""
        form = Form(self.collated(self.made_up(2)), 2)
        for trial in self._trials:
            form.open_where_it_differs(trial.other)
        for usual, changed, _ in self._changed_by_values:
            form.open_where_it_differs(self.collated(usual))
            form.open_where_it_differs(self.collated(changed))
        return form

    def made_up(self, count: int) -> list[Any]:
        """So many public items: the user's in turn, or made-up ones."""
        if self._public:
            # A collate may change what it is given.
            return [copy.copy(self._like[i % len(self._like)]) for i in range(count)]
        varied = [made_up_item(self._like[0], i) for i in range(min(count, _VARIED))]
        return [varied[i % _VARIED] for i in range(count)]

    def imitation(self, count: int) -> Any:
        """A batch of public items; the same every time, and as wide whatever the count."""
        together = max(1, count)
        if self._any_shape and self.form.is_open:
            together = max(count, _TOGETHER, len(self._like))

        def first(leaf: Any) -> Any:
            return leaf[:count] if leaf.ndim and len(leaf) == together else leaf

        batch = self.collated(self.made_up(together))
        return batch if count == together else map_leaves(first, batch)

    def collated(self, items: list[Any], seed: int = 0, level: Level | None = None) -> Any:
        """The batch of public items."""
        try:
            with same_coins(seed, level):
                return self._collate(items)
        except Exception as error:
            error.add_note(
                "raised by collate on public or made-up items: nothing was charged. Made-up whole "
                "numbers are 0 or 1, texts a few words, other objects None; give a few public, "
                "plausible items as example="
            )
            raise

    def check(self, several: bool = False, crowd: int = 0) -> None:
        """Raises if, with the same coins, another row than a changed item's moves.

        Rows that become longer or shorter with an item's values are left to :meth:`companies`.
        Raises also if other coins are drawn, or some once for a whole batch.

        Args:
            several: whether a row that comes may move others to another batch.
            crowd: items of the largest physical batch, in case they are mixed among many only.
        """
        if not self._any_shape:
            return
        drawn = self._drawn()
        for trial in range(_IN_CROWDS if crowd > _ROWS else 0):
            items = self.made_up(crowd)
            self._compare(items, trial, self._varied(-1 - trial), trial)
        for trial in range(_TRIALS):
            items = [self._varied(_ROWS * trial + i) for i in range(_ROWS)]
            row = trial % _ROWS
            self._compare(items, row, self._varied(-1 - trial), trial)
            try:
                self._compare(items, row, made_extreme(items[row], trial), trial)
            except TrainingError:
                raise
            except Exception:  # a private item at which the collate fails is left out
                continue
        for count in (_ROWS, crowd) if crowd > _ROWS else (_ROWS,):
            self._check_rare(count)
            self._refuse_places(count)
        self._refuse_cuts()
        refuse_shared("collate", *drawn, several)

    def _check_rare(self, count: int) -> None:
        """As :meth:`check`, under coins by which rare things happen, and beside missing numbers."""
        items = self.made_up(count)
        for trial, level in enumerate(RARE):
            self._compare(self.made_up(count), 0, self._varied(-1 - trial), trial, level)
        for hole in MISSING:
            beside = [items[0], *(holed(item, hole) for item in items[1:])]
            for trial in range(_IN_CROWDS):
                try:
                    self._compare(list(beside), 0, self._varied(-1 - trial), trial)
                except TrainingError:
                    raise
                except Exception:  # such items are left out
                    continue

    def _refuse_places(self, count: int) -> None:
        def made(order: list[int]) -> list[Tensor]:
            items = self.made_up(count)
            return list(_tensors_in(self._collate([items[i] for i in order])).values())

        refuse_places("collate", made, count, ragged=True)

    def _compare(
        self, items: list[Any], row: int, other: Any, seed: int, level: Level | None = None
    ) -> None:
        """Raises if another row's numbers change with this one's item."""
        others = [i for i in range(len(items)) if i != row]
        listed = [*items[:row], other, *items[row + 1 :]]
        found = (_tensors_in(self.collated(each, seed, level)).values() for each in (items, listed))
        for one, two in zip(*found, strict=True):
            rows_first = one.ndim > 0 and len(one) == len(two) == len(items)
            if rows_first and one.shape == two.shape and not _equal(one[others], two[others]):
                raise TrainingError(
                    "collate mixes the items of a batch (as mixup does), so that one record's "
                    "gradient would depend on others: collate each item by itself"
                )

    def _refuse_cuts(self) -> None:
        """Raises if company of other lengths, or more of it, takes something away from a row.

        Two rows of one length need no more padding for a shorter third, no less for a longer one,
        and the same among many. The model could not tell: to a mean over a mask, made-up tokens
        look the same however many of them are left.
        """
        for places in self._variations:
            size = self._sizes[places[0]]
            for held in (size, 2 * size + 1):
                alike = [self._with(places, held) for _ in range(_UNITS)]
                usual = self._taken(alike[0], 0, alike)
                if usual is None:
                    continue
                if self._lost(usual, self._among_many(alike[0]), longer=False):
                    _refuse_company("many others come into their batch")
                for longer in (False, True):
                    for item in self._others(places, held, longer):
                        batch = self._taken(item, _UNITS - 1, alike)
                        if batch is not None and self._lost(usual, batch, longer):
                            _refuse_company("a longer or shorter row comes into their batch")

    def _others(self, places: Sequence[Place], held: int, longer: bool) -> Iterator[Any]:
        for wanted in _sizes_near(held, longer=longer):
            item = self._with(places, wanted)
            if _elements(item) <= _LARGEST:
                yield item

    def _among_many(self, item: Any) -> Any:
        """The first rows of a batch of many such items."""
        many = max(_UNITS, min(_VARIED, _LARGEST // (1 + _elements(item))))
        batch = self.collated([copy.copy(item) for _ in range(many)])
        return map_leaves(
            lambda leaf: leaf[:_UNITS] if leaf.ndim and len(leaf) == many else leaf, batch
        )

    def _lost(self, usual: Any, batch: Any, longer: bool) -> bool:
        """Whether the first rows have less in the second batch, or, for a shorter item, other."""
        if not longer and not self._is_random:
            return not _same_rows(usual, batch, range(_UNITS - 1))
        first, second = _tensors_in(usual), _tensors_in(batch)
        return any(
            size > now
            for name, leaf in first.items()
            if len(leaf) == _UNITS and leaf.ndim == second[name].ndim
            for size, now in zip(leaf.shape, second[name].shape, strict=True)
        )

    @functools.cached_property
    def _is_random(self) -> bool:
        again = self.collated(self._three(short=False), seed=1)
        return not _same_rows(self._usual, again, range(_UNITS))

    def _drawn(self) -> tuple[Noted, Noted]:
        """What is drawn for some items, and for twice as many."""
        whole = _tensors_in(self.collated(self.made_up(1)))
        size = telling_sizes(n for leaf in whole.values() for n in leaf.shape[1:])[0]
        first, again, more = (
            drawn_by(functools.partial(self._collate, self.made_up(n)), n, 0)
            for n in (size, size, 2 * size)
        )
        refuse_unrepeated("collate", first[0], again[0])
        return again[1], more[1]

    def _varied(self, number: int) -> Any:
        like = self._like[number % len(self._like)]
        return made_up_item(like, number, public=self._public)

    def companies(self, rows_per_unit: int) -> list[Company]:
        """What the model must be tried on: company of other lengths, wherever they may vary.

        First of all company by which the collate changes other rows. Where there is none of it, as
        for :class:`~sfumato.learning.dp_sgd.padding.PadTo`, a mask still tells the model how long
        others are.
        """
        found = dict[Any, Company]()
        for trial in sorted(self._trials, key=lambda trial: not trial.moves):
            kind = (*trial.kind, trial.at if trial.moves else 0)
            if kind not in found and (trial.moves or not any(k[:2] == trial.kind for k in found)):
                found[kind] = self._company(trial, rows_per_unit)
        return [*found.values(), *self._by_values(rows_per_unit)]

    def _by_values(self, rows_per_unit: int) -> Iterator[Company]:
        """Company in which other rows become longer or shorter with an item's values: one a place.

        So it is with texts whose words are of several lengths, or numbers that are looked up.
        """
        for usual, changed, at in self._changed_by_values:
            one, two = (
                self.collated([item for item in items for _ in range(rows_per_unit)])
                for items in (usual, changed)
            )
            yield Company(one, two, tuple(i for i in range(_UNITS) if i != at))

    @functools.cached_property
    def _changed_by_values(self) -> list[tuple[list[Any], list[Any], int]]:
        """Items, the same with another one in one place, by which other rows change; the place."""
        found = list[tuple[list[Any], list[Any], int]]()
        for at in range(_UNITS) if self._any_shape else ():
            others = [i for i in range(_UNITS) if i != at]
            for trial in range(at, _TRIALS, _UNITS):
                usual = [self._varied(_UNITS * trial + i) for i in range(_UNITS)]
                changed = [*usual[:at], self._varied(-1 - trial), *usual[at + 1 :]]
                if not _same_rows(self.collated(usual), self.collated(changed), others):
                    found.append((usual, changed, at))
                    break
        return found

    def _company(self, trial: _Trial, rows_per_unit: int) -> Company:
        items = self._three(trial.short)
        usual = [item for item in items for _ in range(rows_per_unit)]
        items[trial.at] = trial.item
        other = [item for item in items for _ in range(rows_per_unit)]
        units = tuple(i for i in range(_UNITS) if i != trial.at)
        return Company(self.collated(usual), self.collated(other), units)

    def _three(self, short: bool) -> list[Any]:
        """Usual items; or the same half as long wherever lengths may vary."""
        items = self.made_up(_UNITS)
        if not short:
            return items
        halves = [
            {p: max(1, n // 2) for p, n in sizes_of(item).items() if p in self.open_places}
            for item in items
        ]
        return [resized(item, half) for item, half in zip(items, halves, strict=True)]

    @functools.cached_property
    def open_places(self) -> set[Place]:
        """Where the collate lets the sizes of items vary."""
        return {place for places in self._variations for place in places}

    @functools.cached_property
    def _variations(self) -> list[tuple[Place, ...]]:
        """Sets of places whose sizes the collate lets vary from item to item, together.

        Places of one size go together if the collate takes it (tokens and their mask); else those
        of them that may vary alone, or by twos: others have that size by chance.
        """
        by_size: dict[int, list[Place]] = {}
        for place, size in list(self._sizes.items())[:_MOST_PLACES]:
            by_size.setdefault(size, []).append(place)
        found = list[tuple[Place, ...]]()
        for places in by_size.values():
            alone = [place for place in places if self._varies((place,))]
            for together in (places, alone):
                if together and self._varies(tuple(together)):
                    found.append(tuple(together))
                    break
            else:
                found += [(place,) for place in alone]
                found += filter(self._varies, itertools.combinations(places, 2))
        return found

    def _varies(self, places: tuple[Place, ...]) -> bool:
        """Whether the collate takes an item that is a little longer or shorter at these places."""
        size = self._sizes[places[0]]
        for wanted in (size + 1, size - 1):
            item = self._with(places, wanted) if wanted > 0 else None
            if item is None or sizes_of(item).get(places[0]) != wanted:  # an empty list stays so
                continue
            if self._taken(item, 0, self.made_up(_UNITS)) is not None:
                return True
        return False

    @functools.cached_property
    def _sizes(self) -> dict[Place, int]:
        return sizes_of(self._like[0])

    def _with(self, places: Sequence[Place], size: int) -> Any:
        return resized(self._like[0], dict.fromkeys(places, size))

    def _taken(self, item: Any, at: int, company: list[Any]) -> Any:
        """The batch with such an item in one place, or None if the collate does not take it."""
        items = [*company[:at], item, *company[at + 1 :]]
        try:
            with same_coins(0):
                batch = self._collate(items)
        except Exception:
            return None
        found, usual = _tensors_in(batch), _tensors_in(self._usual)
        taken = found.keys() == usual.keys() and all(
            leaf.dtype == usual[name].dtype and leaf.shape[:1] == usual[name].shape[:1]
            for name, leaf in found.items()
        )
        return batch if taken else None

    @functools.cached_property
    def _usual(self) -> Any:
        return self.collated(self._three(short=False))

    @functools.cached_property
    def _trials(self) -> list[_Trial]:
        """Everything of other lengths that the collate took in one batch with usual items.

        What is longer is tried beside short ones, in case the collate cuts what is longer still.
        """
        if not self._any_shape:  # torch's own takes items of one shape
            return []
        trials = list[_Trial]()
        for places, short in itertools.product(self._variations, (True, False)):
            company = self._three(short)
            usual = self.collated(company)
            for size in _sizes_near(self._sizes[places[0]], longer=short):
                item = self._with(places, size)
                if _elements(item) > _LARGEST:
                    continue
                # Behind an item of another length, a collate that draws coins draws others.
                for at in (2,) if self._is_random else (0, 1):
                    batch = self._taken(item, at, company)
                    if batch is not None:
                        others = [i for i in range(_UNITS) if i != at]
                        moves = not _same_rows(usual, batch, others)
                        trials.append(_Trial(item, batch, at, short, moves, (places, short)))
        return trials


class _Trial(NamedTuple):
    """An item of another size that the collate took."""

    item: Any
    other: Any
    """The batch."""
    at: int
    short: bool
    """Whether the others are short ones."""
    moves: bool
    """Whether the others' rows were changed."""
    kind: Any


@final
class Form:
    """The types and lengths of a batch's parts, where they are tensors with one row an item.

    Attributes:
        is_open: whether any length may vary from batch to batch.
    """

    def __init__(self, batch: Any, rows: int) -> None:
        self._parts = {
            name: (leaf.dtype, list[int | None](leaf.shape[1:]))
            for name, leaf in _tensors_in(batch).items()
            if leaf.shape[:1] == (rows,)
        }
        self._names = set(_tensors_in(batch))
        self.is_open = False

    def open_where_it_differs(self, batch: Any) -> None:
        """Leaves lengths open that are others in this batch."""
        for name, leaf in _tensors_in(batch).items():
            lengths = self._parts[name][1] if name in self._parts else []
            if len(lengths) != leaf.ndim - 1:
                continue
            for dim, size in enumerate(leaf.shape[1:]):
                if lengths[dim] != size:
                    lengths[dim], self.is_open = None, True

    def holds(self, batch: Any, rows: int) -> bool:
        """Whether a batch of so many rows has this form."""
        found = _tensors_in(batch)
        return found.keys() == self._names and all(
            found[name].dtype == dtype and self._fits(found[name], rows, lengths)
            for name, (dtype, lengths) in self._parts.items()
        )

    @staticmethod
    def _fits(leaf: Tensor, rows: int, lengths: list[int | None]) -> bool:
        if leaf.shape[:1] != (rows,) or leaf.ndim - 1 != len(lengths):
            return False
        return all(
            size in (None, found) for size, found in zip(lengths, leaf.shape[1:], strict=True)
        )


def _refuse_company(when: str) -> NoReturn:
    raise TrainingError(
        f"collate changes the rows of others when {when}, as by cutting them to the shortest, to "
        "the mean or to a sum, so that one row would move everybody's gradient: cut and fill up "
        "each row to a declared length (collate=sf.PadTo(length))"
    )


def _sizes_near(size: int, *, longer: bool) -> list[int]:
    """Sizes to try instead: the clearest cases first."""
    if longer:
        return [2 * size + 1, size + 1, size, *(n for n in _LONG if n > 2 * size + 1)]
    return list(dict.fromkeys(n for n in (size // 2, size - 1, 1, 0) if 0 <= n < size))


def _elements(item: Any) -> int:
    """A bound on how many numbers or words an item holds."""
    if isinstance(item, (Tensor, np.ndarray)):
        return int(np.prod(item.shape, dtype=np.int64))
    if isinstance(item, dict):
        return sum(map(_elements, item.values()))
    if isinstance(item, (list, tuple)):
        return sum(map(_elements, item)) + len(item)
    return 1


def _tensors_in(batch: Any) -> dict[str, Tensor]:
    return {name: leaf for name, leaf in leaves_of(batch).items() if isinstance(leaf, Tensor)}


def _same_rows(one: Any, two: Any, rows: Sequence[int]) -> bool:
    """Whether two batches have the same tensors in these rows, and of the same shape."""
    first, second = _tensors_in(one), _tensors_in(two)
    chosen = list(rows)
    return first.keys() == second.keys() and all(
        a.ndim == second[name].ndim
        and (not a.ndim or len(a) != _UNITS or _equal(a[chosen], second[name][chosen]))
        for name, a in first.items()
    )


def _equal(one: Tensor, two: Tensor) -> bool:
    same = one.shape == two.shape and one.dtype == two.dtype
    return same and torch.allclose(one, two, rtol=0, atol=0, equal_nan=True)
