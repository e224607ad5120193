"""What is public of records: which values their features may have, and how common these are.

    >>> generator = np.random.default_rng(1)
    >>> Binary(6).draw(2, generator=generator).tolist()
    [[0.0, 1.0, 1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 1.0, 0.0]]
    >>> Within((0.0, -1.0), (100.0, 1.0)).draw(1, generator=generator).round(1).tolist()
    [[82.8, -0.2]]
    >>> ages = Marginal.histogram([0, 18, 65, 100], [0.2, 0.6, 0.2])
    >>> ages.draw(3, generator=generator).round().tolist()
    [43.0, 6.0, 55.0]

An attacker who makes records up (see :mod:`sfumato.attacks.membership.synthesis`) knows no more
than this. Bounds and shares must be public facts, never measured on the private data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["Binary", "Features", "Marginal", "Within", "some_features"]


class Features(Protocol):
    """What the features of a record may be."""

    @property
    def count(self) -> int:
        """How many features a record has."""
        ...

    def draw(self, rows: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
        """Records at random, uniform over all that may be."""
        ...

    def changed(
        self,
        records: NDArray[np.float64],
        where: NDArray[np.bool_],
        *,
        generator: np.random.Generator,
    ) -> NDArray[np.float64]:
        """The records with the features in ``where`` changed."""
        ...


@final
@dataclass(frozen=True)
class Binary:
    """Features that are 0 or 1. A change flips them.

    Attributes:
        count: how many.
    """

    count: int

    def __post_init__(self) -> None:
        validation.count("count", self.count)

    def draw(self, rows: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
        """Fair coins."""
        return generator.integers(0, 2, (rows, self.count)).astype(np.float64)

    def changed(
        self,
        records: NDArray[np.float64],
        where: NDArray[np.bool_],
        *,
        generator: np.random.Generator,
    ) -> NDArray[np.float64]:
        """Flips the features in ``where``."""
        return np.where(where, 1.0 - records, records)


@final
@dataclass(frozen=True)
class Within:
    """Numbers within public bounds. A change draws them anew, uniform between the bounds.

    Attributes:
        lower: the lowest value of each feature.
        upper: the highest value of each feature.
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.lower) != len(self.upper) or not self.lower:
            sizes = len(self.lower), len(self.upper)
            validation.fail("bounds", "one lower and one upper for each feature", sizes)
        for low, high in zip(self.lower, self.upper, strict=True):
            validation.interval("bounds", low, high)

    @classmethod
    def alike(cls, count: int, lower: float, upper: float) -> Within:
        """So many features with the same bounds."""
        size = validation.count("count", count)
        return cls((lower,) * size, (upper,) * size)

    @property
    def count(self) -> int:
        """How many."""
        return len(self.lower)

    def draw(self, rows: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
        """Uniform between the bounds."""
        return generator.uniform(self.lower, self.upper, (rows, self.count))

    def changed(
        self,
        records: NDArray[np.float64],
        where: NDArray[np.bool_],
        *,
        generator: np.random.Generator,
    ) -> NDArray[np.float64]:
        """Draws the features in ``where`` anew."""
        return np.where(where, self.draw(len(records), generator=generator), records)


@final
@dataclass(frozen=True)
class Marginal:
    """What is public of one feature: its values and how common each is.

    Attributes:
        values: the values, or the lower ends of bins.
        probabilities: how common each is; they add to 1.
        widths: the widths of the bins, within which all is as likely; none for plain values.
    """

    values: tuple[float, ...]
    probabilities: tuple[float, ...]
    widths: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        sizes = len(self.values), len(self.probabilities), len(self.widths or self.values)
        if len(set(sizes)) > 1 or not self.values:
            validation.fail("marginal", "as many values as probabilities (and widths)", sizes)
        for probability in self.probabilities:
            validation.non_negative("probabilities", probability)
        if abs(sum(self.probabilities) - 1) > 1e-6:
            validation.fail("probabilities", "numbers that add to 1", sum(self.probabilities))

    @classmethod
    def binary(cls, rate: float) -> Marginal:
        """1 with this probability, else 0."""
        return cls((0.0, 1.0), (1 - rate, rate))

    @classmethod
    def histogram(cls, edges: Sequence[float], probabilities: Sequence[float]) -> Marginal:
        """Bins between ``edges``, one probability each."""
        places = np.asarray(edges, dtype=np.float64)
        widths = np.diff(places)
        if places.ndim != 1 or len(places) < 2 or (widths <= 0).any():
            validation.fail("edges", "two or more rising numbers", list(edges))
        return cls(tuple(places[:-1].tolist()), tuple(probabilities), tuple(widths.tolist()))

    def draw(self, rows: int, *, generator: np.random.Generator) -> NDArray[np.float64]:
        """Values at random."""
        shares = np.asarray(self.probabilities) / sum(self.probabilities)
        picked = generator.choice(len(self.values), rows, p=shares)
        values = np.asarray(self.values, dtype=np.float64)[picked]
        if not self.widths:
            return values
        return values + np.asarray(self.widths)[picked] * generator.random(rows)


def some_features(
    counts: NDArray[np.int64], features: int, *, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """For each row, that many of its features, every choice as likely as another."""
    where = np.zeros((len(counts), features), dtype=bool)
    keys = generator.random((len(counts), features))
    for count in np.unique(counts):
        mine = np.flatnonzero(counts == count)
        if count >= features:
            where[mine] = True
        elif count > 0:
            picked = np.argpartition(keys[mine], count, axis=1)[:, :count]
            where[mine[:, None], picked] = True
    return where
