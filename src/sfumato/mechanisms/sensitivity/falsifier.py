"""A search for neighbouring data sets that a claimed sensitivity does not cover.

A sensitivity is a statement about *every* pair of neighbours, so one pair refutes it::

    >>> from sfumato.mechanisms.sensitivity.domains import Interval
    >>> claim = Sensitivity(1 / 50, neighbours=Neighbours.ADD_REMOVE)
    >>> mean = lambda table: sum(table) / max(len(table), 1)
    >>> print(falsify(mean, Interval(0, 1), claim))
    claim refuted (add or remove one record): moved by 1, claimed at most 0.02 in l1, ratio 50
      f([1.0]) = [1.0]
      f([]) = [0.0]

Finding nothing proves nothing; :func:`largest_found` says how near to the claim the search came.

**Never run this on private data.** It makes up its own data sets from a public domain and reports
what the function says about them; its seed is public and makes a report repeatable. A function that
reads private data by itself must not be handed in.

The search: single records at the edges of the domain; then tables of 1 to ``max_size`` records,
equal or mixed, at edges or at random, with sizes around powers of two (where counters overflow);
then hill climbing from the best pairs. Of a refuting pair, records that play no part are removed.

A pair counts as refuting beyond a relative 1e-9 of the claim plus two units in the last place of
the compared values, so that honest rounding of a result is not taken for an error.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity.domains import Domain
from sfumato.mechanisms.sensitivity.values import NULL, Vector, norm_of

__all__ = ["RELATIVE_TOLERANCE", "Witness", "distance", "falsify", "largest_found"]

RELATIVE_TOLERANCE: Final = 1e-9
_ELITES = 6

Table = tuple[Any, ...]
Function = Callable[[Table], Any]


@dataclass(frozen=True)
class Witness:
    """Two neighbouring data sets and how far apart a function's values on them are.

    Attributes:
        first: a data set.
        second: its neighbour.
        first_value: the function's value on the first, as a flat tuple.
        second_value: on the second.
        distance: between the values, in the norm of the claim.
        claim: what was claimed.
    """

    first: Table
    second: Table
    first_value: tuple[float, ...]
    second_value: tuple[float, ...]
    distance: float
    claim: Sensitivity

    @property
    def bound(self) -> float:
        """The claimed bound."""
        return self.claim.bound

    @property
    def neighbours(self) -> Neighbours:
        """The relation of the two data sets."""
        return self.claim.neighbours

    @property
    def ratio(self) -> float:
        """How many times the claimed bound the distance is."""
        if self.bound == 0:
            return 0.0 if self.distance == 0 else math.inf
        return self.distance / self.bound

    @property
    def violates(self) -> bool:
        """Whether the distance exceeds the claim by more than rounding explains."""
        if self.distance <= self.bound or math.isinf(self.distance):
            return self.distance > self.bound
        first, second = np.array(self.first_value), np.array(self.second_value)
        last_place = np.nan_to_num(np.spacing(np.maximum(np.abs(first), np.abs(second))))
        rounding = 2 * norm_of(last_place, self.claim.norm)
        return self.distance > self.bound * (1 + RELATIVE_TOLERANCE) + rounding

    def __str__(self) -> str:
        verdict = "claim refuted" if self.violates else "claim not refuted"
        relation = self.neighbours.describe(self.claim.unit)
        return (
            f"{verdict} ({relation}): moved by {self.distance:.6g}, claimed at most "
            f"{self.bound:.6g} in {self.claim.norm}, ratio {self.ratio:.4g}\n"
            f"  f({_short(self.first)}) = {_short(self.first_value)}\n"
            f"  f({_short(self.second)}) = {_short(self.second_value)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; numbers that JSON lacks, and values of other types, as text."""
        return {
            "violates": self.violates,
            "distance": _plain(self.distance),
            "bound": self.bound,
            "ratio": _plain(self.ratio),
            "norm": self.claim.norm.value,
            "neighbours": self.neighbours.value,
            "unit": self.claim.unit,
            "first": _plain(self.first),
            "second": _plain(self.second),
            "first_value": _plain(self.first_value),
            "second_value": _plain(self.second_value),
        }


def falsify(
    function: Function,
    domain: Domain,
    claim: Sensitivity,
    *,
    budget: int = 2000,
    seed: int | np.random.Generator = 0,
    max_size: int = 16,
) -> Witness | None:
    """A pair of neighbours that refutes ``claim``, or None if the search found none.

    Args:
        function: from a tuple of records to a number or an array of ``claim.dimension`` numbers.
            What it raises is passed on with the table noted: an error that depends on the data is a
            release of the data.
        domain: which records a data set may hold.
        claim: the bound to refute, with its norm and its relation.
        budget: how many pairs to try.
        seed: of the search; public.
        max_size: the most records in a table.

    Returns:
        A small refuting pair, or None.
    """
    search = _Search(function, domain, claim, np.random.default_rng(seed), max_size)
    for pair, witness in search.run(validation.count("budget", budget)):
        if witness.violates:
            return search.shrink(pair, witness)
    return None


def largest_found(
    function: Function,
    domain: Domain,
    claim: Sensitivity,
    *,
    budget: int = 2000,
    seed: int | np.random.Generator = 0,
    max_size: int = 16,
) -> Witness:
    """The pair of neighbours furthest apart that the search found, whether it refutes or not.

    Its ``distance`` is a lower bound on the true sensitivity and its ``ratio`` says how tight the
    claim is at least; only the claim's norm and relation steer the search. See :func:`falsify` for
    the arguments.
    """
    search = _Search(function, domain, claim, np.random.default_rng(seed), max_size)
    found = search.run(validation.count("budget", budget))
    return max((witness for _, witness in found), key=lambda witness: witness.distance)


def distance(first: Vector, second: Vector, norm: Norm) -> float:
    """Between two values; infinite where one has a NaN or an infinity that the other has not."""
    with np.errstate(all="ignore"):
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        gaps = np.where(same, 0.0, np.abs(first - second))
        return norm_of(np.where(np.isnan(gaps), math.inf, gaps), norm)


@dataclass(frozen=True)
class _Pair:
    """A table and what becomes of one of its records."""

    table: Table
    place: int
    replacement: Any

    def neighbour(self, relation: Neighbours) -> Table:
        before, after = self.table[: self.place], self.table[self.place + 1 :]
        if relation is Neighbours.ADD_REMOVE:
            return before + after
        put = NULL if relation is Neighbours.ZERO_OUT else self.replacement
        return (*before, put, *after)


class _Search:
    """One search: proposals first, then hill climbing from the best of them."""

    def __init__(
        self,
        function: Function,
        domain: Domain,
        claim: Sensitivity,
        rng: np.random.Generator,
        max_size: int,
    ) -> None:
        self.function, self.domain, self.claim, self.rng = function, domain, claim, rng
        self.max_size = validation.count("max_size", max_size)
        self.extremes = tuple(domain.extremes())
        if not self.extremes:
            validation.fail("domain", "one with at least one extreme record", domain)

    def run(self, budget: int) -> Iterator[tuple[_Pair, Witness]]:
        """Every pair tried, with what came of it."""
        elites: list[tuple[_Pair, Witness]] = []
        proposals = self._proposals(max(1, budget // 4))
        for spent in range(budget):
            climbing = spent > budget // 2
            pair = self._mutated(self._pick(elites)[0]) if climbing else next(proposals)
            tried = pair, self.measure(pair)
            yield tried
            elites.append(tried)
            elites.sort(key=lambda elite: elite[1].distance, reverse=True)
            del elites[_ELITES:]

    def measure(self, pair: _Pair) -> Witness:
        """How far apart the function's values on a pair are."""
        first, second = pair.table, pair.neighbour(self.claim.neighbours)
        values = self._evaluate(first), self._evaluate(second)
        apart = distance(*values, self.claim.norm)
        return Witness(
            first, second, tuple(values[0].tolist()), tuple(values[1].tolist()), apart, self.claim
        )

    def _evaluate(self, table: Table) -> Vector:
        try:
            with np.errstate(all="ignore"):
                value = np.asarray(self.function(table), dtype=np.float64).ravel()
        except Exception as error:
            error.add_note(f"raised by the function under test on the table {_short(table)}")
            raise
        if value.size != self.claim.dimension:
            expected = f"{self.claim.dimension}, the size of the function's value"
            validation.fail("claim dimension", expected, value.size)
        return value

    def shrink(self, pair: _Pair, witness: Witness) -> Witness:
        """The same violation without the records that it does not need."""
        for place in reversed(range(len(pair.table))):
            if place == pair.place:
                continue
            smaller = _without(pair, place)
            found = self.measure(smaller)
            if found.violates:
                pair, witness = smaller, found
        return witness

    def _pick(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def _record(self) -> Any:
        return (
            self._pick(self.extremes) if self.rng.random() < 0.5 else self.domain.sample(self.rng)
        )

    def _proposals(self, single: int) -> Iterator[_Pair]:
        """Up to ``single`` tables of one record at an edge, then tables of many shapes."""
        others: tuple[Any, ...] = (
            self.extremes if self.claim.neighbours is Neighbours.REPLACE_ONE else (None,)
        )
        edges = list(itertools.product(self.extremes, others))
        if len(edges) > single:
            edges = [edges[int(index)] for index in self.rng.choice(len(edges), single, False)]
        for record, replacement in edges:
            yield _Pair((record,), 0, replacement)
        sizes = _sizes(self.max_size)
        while True:
            yield self._table(self._pick(sizes))

    def _table(self, size: int) -> _Pair:
        """A table of equal, of random or of mixed records, one of them to change."""
        style = int(self.rng.integers(3))
        common = self._record()
        rows = [common if style == 0 else self._record() for _ in range(size)]
        if style == 1:
            rows = [self.domain.sample(self.rng) for _ in range(size)]
        place = int(self.rng.integers(size))
        rows[place] = self._record()
        return _Pair(tuple(rows), place, self._record())

    def _mutated(self, pair: _Pair) -> _Pair:
        """A pair near ``pair``: one record moved, dropped, doubled or sent to an edge."""
        table, place = list(pair.table), pair.place
        chosen = int(self.rng.integers(len(table)))
        move = int(self.rng.integers(6))
        if move == 0 and self.claim.neighbours is Neighbours.REPLACE_ONE:
            return _Pair(pair.table, place, self.domain.mutate(self.rng, pair.replacement))
        if move == 1 and chosen != place:
            return _without(pair, chosen)
        if move == 2 and len(table) < self.max_size:
            return _Pair((*pair.table, table[chosen]), place, pair.replacement)
        if move == 3:
            table[chosen] = self._pick(self.extremes)
        else:
            chosen = place if move == 4 else chosen
            table[chosen] = self.domain.mutate(self.rng, table[chosen])
        return _Pair(tuple(table), place, pair.replacement)


def _without(pair: _Pair, place: int) -> _Pair:
    rest = pair.table[:place] + pair.table[place + 1 :]
    return _Pair(rest, pair.place - (place < pair.place), pair.replacement)


def _sizes(largest: int) -> list[int]:
    """1 to 8, and the neighbours of powers of two, up to ``largest``."""
    powers = [2**k + d for k in range(3, largest.bit_length() + 1) for d in (-1, 0, 1)]
    return [size for size in sorted({*range(1, 9), *powers}) if size <= largest]


def _short(rows: Sequence[Any]) -> str:
    """At most six items, with the number of those left out."""
    shown = ", ".join(_clip_text(repr(row)) for row in rows[:6])
    return f"[{shown}, ... {len(rows) - 6} more]" if len(rows) > 6 else f"[{shown}]"


def _clip_text(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."


def _plain(value: Any) -> Any:
    """``value`` as JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return repr(value)
