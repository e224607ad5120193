"""Units of several rows: owners are sampled and clipped as a whole, so that they are protected.

A unit in a lot brings at most ``rows_per_unit`` of its rows, with weights that sum to 1: its
gradient is the mean over the rows used. Clipping that mean bounds what the owner adds to the lot's
sum, however many rows it has.

    >>> from sfumato.core.randomness import SeededCoins
    >>> owners = Owners(["ann", "bob", "ann"], rows_per_unit=2)
    >>> len(owners), owners.rows
    (2, 3)
    >>> rows, weights = owners.rows_of(np.array([0, 1]), SeededCoins(1))
    >>> rows.tolist(), weights.tolist()
    ([[0, 2], [1, 1]], [[0.5, 0.5], [1.0, 0.0]])
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.odd_values import read_each
from sfumato.core.randomness import Coins
from sfumato.learning.dp_sgd.draws import below

__all__ = ["Owners", "RowsAreUnits", "Units"]

Positions = NDArray[np.int64]
Weights = NDArray[np.float64]
_MISSING = -1


class Units(Protocol):
    """Which rows each unit holds."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        ...

    @property
    def rows_per_unit(self) -> int:
        """The most rows of one unit in a lot; public."""
        ...

    def __len__(self) -> int: ...

    def rows_of(self, positions: Positions, coins: Coins) -> tuple[Positions, Weights]:
        """The rows that some units bring to a lot, and what each row counts.

        Args:
            positions: which units.
            coins: to choose among a unit's rows.

        Returns:
            Two arrays of shape (units, rows_per_unit).
        """
        ...


@final
class RowsAreUnits:
    """Every row is a unit of its own.

    Args:
        rows: how many there are.
    """

    def __init__(self, rows: int) -> None:
        self.rows = validation.at_least("rows", rows, 0)
        self.rows_per_unit = 1

    def __len__(self) -> int:
        return self.rows

    def rows_of(self, positions: Positions, coins: Coins) -> tuple[Positions, Weights]:
        """The positions themselves, with weight 1; no coin is used."""
        rows = np.asarray(positions, dtype=np.int64).reshape(-1, 1)
        return rows, np.ones(rows.shape)


@final
class Owners:
    """Rows by owner.

    Guarantee: each owner of a lot brings between 1 and ``rows_per_unit`` different rows, all its
    own, whose weights are equal and sum to 1; if it has more rows, every subset of that size is
    equally likely, afresh each time. Places left over repeat the owner's first row with weight 0.

    Ids are private and never raise: rows whose id is missing (None, NaN, NaT) or cannot be compared
    are never used. (As one shared owner they would protect no one: another person without an id
    would *replace* that owner's contribution, which moves a sum by twice the clip norm.)

    Args:
        ids: for each row whose it is: whole numbers, words, or other things that can be compared.
        rows_per_unit: the most rows of one owner in a lot.
    """

    def __init__(self, ids: ArrayLike, rows_per_unit: int) -> None:
        self.rows_per_unit = validation.count("rows_per_unit", rows_per_unit)
        codes = _codes(ids)
        self.rows = len(codes)
        known = np.flatnonzero(codes != _MISSING)
        # A stable order keeps each owner's rows in theirs.
        self._order: Positions = known[np.argsort(codes[known], kind="stable")].astype(np.int64)
        _, self._sizes = np.unique(codes[known], return_counts=True)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def rows_of(self, positions: Positions, coins: Coins) -> tuple[Positions, Weights]:
        """At most ``rows_per_unit`` rows of each owner; see the class."""
        where = np.asarray(positions, dtype=np.int64)
        sizes, most = self._sizes[where], self.rows_per_unit
        place = np.arange(most)
        present = place < sizes[:, None]
        picked = np.where(present, place, 0)
        large = np.flatnonzero(sizes > most)
        picked[large] = _subsets(sizes[large], most, coins)
        rows = self._order[self._starts[where][:, None] + picked]
        return rows, present / np.minimum(sizes, most)[:, None]


def _subsets(sizes: Positions, most: int, coins: Coins) -> Positions:
    """For each size n above ``most`` a uniformly random subset of 0 .. n - 1, ascending.

    R. Floyd's algorithm for all at once: for j = n - most, .., n - 1 take a uniform t of 0 .. j, or
    j itself if t is taken. (Bentley and Floyd, Communications of the ACM 30(9), 1987.)
    """
    chosen = np.empty((len(sizes), most), dtype=np.int64)
    for i in range(most):
        j = sizes - most + i
        t = below(j + 1, coins)
        taken = (chosen[:, :i] == t[:, None]).any(axis=1)
        chosen[:, i] = np.where(taken, j, t)
    chosen.sort(axis=1)
    return chosen


def _codes(ids: Any) -> Positions:
    """For each row a number that stands for its owner."""
    for method in ("to_numpy", "cpu", "numpy"):  # a column of a table, a tensor
        if not isinstance(ids, np.ndarray) and hasattr(ids, method):
            ids = getattr(ids, method)()
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        validation.fail("ids", "a sequence with one id for each row", type(ids).__name__)
    if not isinstance(ids, np.ndarray):
        return _codes_of_objects(list(ids))
    if ids.ndim != 1:
        validation.fail("ids", "one for each row, in one dimension", ids.shape)
    if isinstance(ids, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(ids), _MISSING, _codes(ids.data))
    if ids.dtype.kind in "iubUS":
        return np.unique(ids, return_inverse=True)[1].astype(np.int64, copy=False)
    if ids.dtype.kind in "fcmM":
        missing = np.isnat(ids) if ids.dtype.kind in "mM" else np.isnan(ids)
        codes = np.full(len(ids), _MISSING, dtype=np.int64)
        codes[~missing] = np.unique(ids[~missing], return_inverse=True)[1]
        return codes
    return _codes_of_objects(ids.tolist())


def _codes_of_objects(values: list[Any]) -> Positions:
    known: dict[Any, int] = {}
    return np.array(read_each(lambda value: _code(value, known), values, _MISSING), dtype=np.int64)


def _code(value: Any, known: dict[Any, int]) -> int:
    """A number for an id that can be compared; may fail, which means the same as missing."""
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", 1) == 0:
        value = value.item()  # a number in an array or a tensor
    if type(value).__hash__ in (None, object.__hash__) or hasattr(value, "ndim"):
        return _MISSING  # equal things would not be found equal
    if value is None or bool(value != value):  # NaN is what differs from itself
        return _MISSING
    return known.setdefault(value, len(known))
