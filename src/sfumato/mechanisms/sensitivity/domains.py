"""Domains: which records a data set may hold, described so that a search can walk through them.

A domain is public: it says what *could* be in a table. With ``raw`` it also holds what tables hold
before anyone cleaned them: NaN, infinities, the largest and the smallest float, text, None.

    >>> Interval(0, 1).extremes()
    (0.0, 1.0, 0.5)
    >>> Product((Ball(1.0, 2), Interval(-1, 1))).sample(np.random.default_rng(0))
    ((..., ...), ...)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sfumato.core import validation
from sfumato.core.sensitivity import Norm
from sfumato.mechanisms.sensitivity.values import Vector, as_number, as_vector, norm_of

__all__ = ["Ball", "Box", "Categories", "Domain", "Groups", "Interval", "Product"]

_RAW_NUMBERS = (math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, -0.0, 10**400)
_RAW_OTHERS = (None, "text", (), True)
_CORNERS = 32  # at most about this many corners or combinations are listed


class Domain(Protocol):
    """What a search needs to know of the records; supply your own for other kinds."""

    def sample(self, rng: np.random.Generator) -> Any:
        """A random record."""
        ...

    def extremes(self) -> Sequence[Any]:
        """Records at the edges, where a sensitivity is usually attained; at least one."""
        ...

    def mutate(self, rng: np.random.Generator, record: Any) -> Any:
        """A record near ``record``, which may be any that this domain gave."""
        ...


@dataclass(frozen=True)
class Interval:
    """Numbers in [lower, upper]; with ``raw`` anything a column of numbers may hold besides."""

    lower: float
    upper: float
    raw: bool = False

    def __post_init__(self) -> None:
        lower, upper = validation.interval("interval", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)

    def sample(self, rng: np.random.Generator) -> Any:
        """Uniform; one in five an edge."""
        if rng.random() < 0.2:
            return _pick(rng, self.extremes())
        share = float(rng.random())
        return self.lower * (1 - share) + self.upper * share

    def extremes(self) -> tuple[Any, ...]:
        """The bounds, the middle, 0 if it is inside, and the raw ones."""
        inside = (0.0,) if self.lower < 0 < self.upper else ()
        middle = self.lower / 2 + self.upper / 2
        edges = dict.fromkeys((self.lower, self.upper, middle, *inside))
        return (*edges, *_RAW_NUMBERS, *_RAW_OTHERS) if self.raw else tuple(edges)

    def mutate(self, rng: np.random.Generator, record: Any) -> Any:
        """A step of random size, or a fresh record."""
        value = as_number(record)
        if not math.isfinite(value) or rng.random() < 0.2:
            return self.sample(rng)
        step = (self.upper / 2 - self.lower / 2) * _step(rng)
        return min(max(value + step, self.lower), self.upper)


@dataclass(frozen=True)
class Categories:
    """One of finitely many values; with ``raw`` also values that are none of them."""

    values: tuple[Any, ...]
    raw: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            validation.fail("values", "one or more", self.values)

    def sample(self, rng: np.random.Generator) -> Any:
        """Uniform."""
        return _pick(rng, self.extremes())

    def extremes(self) -> tuple[Any, ...]:
        """All of them."""
        return (*self.values, *_RAW_NUMBERS, *_RAW_OTHERS, []) if self.raw else self.values

    def mutate(self, rng: np.random.Generator, record: Any) -> Any:
        """Any other."""
        return self.sample(rng)


@dataclass(frozen=True)
class Box:
    """Vectors whose entries all lie in [lower, upper], as tuples."""

    lower: float
    upper: float
    dimension: int
    raw: bool = False

    def __post_init__(self) -> None:
        lower, upper = validation.interval("box", self.lower, self.upper)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "dimension", validation.count("dimension", self.dimension))

    def sample(self, rng: np.random.Generator) -> tuple[float, ...]:
        """Uniform, or a random corner."""
        shares = rng.random(self.dimension)
        if rng.random() < 0.5:
            shares = np.round(shares)
        return _row(self.lower * (1 - shares) + self.upper * shares)

    def extremes(self) -> tuple[Any, ...]:
        """The corners (some of them, if there are many), the middle, and the raw ones."""
        edges = [_row(corner) for corner in self._corners()]
        edges.append((self.lower / 2 + self.upper / 2,) * self.dimension)
        return (*edges, *_raw_rows(self.dimension)) if self.raw else tuple(edges)

    def _corners(self) -> list[Vector]:
        if 2**self.dimension <= _CORNERS:
            sides = itertools.product((self.lower, self.upper), repeat=self.dimension)
            return [np.array(side) for side in sides]
        low, high = np.full(self.dimension, self.lower), np.full(self.dimension, self.upper)
        alternating = np.where(np.arange(self.dimension) % 2, low, high)
        single = [np.where(np.arange(self.dimension) == place, high, low) for place in range(4)]
        return [low, high, alternating, *single]

    def mutate(self, rng: np.random.Generator, record: Any) -> tuple[float, ...]:
        """Some entries moved by a step of random size."""
        vector = as_vector(record, self.dimension)
        if vector is None or rng.random() < 0.2:
            return self.sample(rng)
        steps = (self.upper / 2 - self.lower / 2) * _steps(rng, self.dimension)
        return _row(np.clip(vector + steps, self.lower, self.upper))


@dataclass(frozen=True)
class Ball:
    """Vectors of norm at most ``radius``, as tuples; with ``raw`` also vectors far outside."""

    radius: float
    dimension: int
    norm: Norm = Norm.L2
    raw: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", validation.positive("radius", self.radius))
        object.__setattr__(self, "dimension", validation.count("dimension", self.dimension))
        object.__setattr__(self, "norm", validation.choice("norm", self.norm, Norm))

    def sample(self, rng: np.random.Generator) -> tuple[float, ...]:
        """A random direction, on the sphere or inside."""
        shrink = 1.0 if rng.random() < 0.5 else float(rng.random())
        return self._scaled(rng.standard_normal(self.dimension), shrink)

    def extremes(self) -> tuple[Any, ...]:
        """On the sphere: one entry alone, all entries equal, signs in turn; the centre; raw."""
        axes = np.eye(min(self.dimension, 4), self.dimension)
        equal = np.ones(self.dimension)
        turns = np.where(np.arange(self.dimension) % 2, -1.0, 1.0)
        rows = [self._scaled(s * v) for v in (*axes, equal, turns) for s in (1.0, -1.0)]
        edges = (*dict.fromkeys(rows), (0.0,) * self.dimension)
        return (*edges, *_raw_rows(self.dimension)) if self.raw else edges

    def mutate(self, rng: np.random.Generator, record: Any) -> tuple[float, ...]:
        """Some entries moved, then drawn back into the ball."""
        vector = as_vector(record, self.dimension)
        if vector is None or norm_of(vector, self.norm) > 2 * self.radius or rng.random() < 0.2:
            return self.sample(rng)
        moved = vector + self.radius * _steps(rng, self.dimension)
        return self._scaled(moved, min(1.0, norm_of(moved, self.norm) / self.radius))

    def _scaled(self, vector: Vector, share: float = 1.0) -> tuple[float, ...]:
        """``vector`` scaled to ``share`` of the radius, a hair inside."""
        size = norm_of(vector, self.norm)
        return _row(vector * (share * self.radius * (1 - 1e-15) / size) if size else vector)


@dataclass(frozen=True)
class Product:
    """Records of several parts, as tuples; with ``raw`` also things that are no such tuples."""

    parts: tuple[Domain, ...]
    raw: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            validation.fail("parts", "one or more domains", self.parts)

    def sample(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """Every part on its own."""
        return tuple(part.sample(rng) for part in self.parts)

    def extremes(self) -> tuple[Any, ...]:
        """Every combination of the parts' extremes, or at most 500 of them."""
        edges = [part.extremes() for part in self.parts]
        every = -(-math.prod(len(edge) for edge in edges) // 500)
        combinations = itertools.islice(itertools.product(*edges), 0, None, every | 1)
        return (*combinations, *_RAW_OTHERS) if self.raw else tuple(combinations)

    def mutate(self, rng: np.random.Generator, record: Any) -> tuple[Any, ...]:
        """One part moved."""
        if not isinstance(record, tuple) or len(record) != len(self.parts):  # pyright: ignore[reportUnknownArgumentType]
            return self.sample(rng)
        parts: list[Any] = list(record)  # pyright: ignore[reportUnknownArgumentType]
        place = int(rng.integers(len(parts)))
        parts[place] = self.parts[place].mutate(rng, parts[place])
        return tuple(parts)


@dataclass(frozen=True)
class Groups:
    """Records that are groups of up to ``largest`` members; with ``raw`` also larger ones."""

    member: Domain
    largest: int
    raw: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", validation.count("largest", self.largest))

    def sample(self, rng: np.random.Generator) -> tuple[Any, ...]:
        """A group of random size."""
        size = int(rng.integers(self.largest + 1 + self.largest * self.raw))
        return tuple(self.member.sample(rng) for _ in range(size))

    def extremes(self) -> tuple[Any, ...]:
        """The empty group, and full groups of equal members; raw: twice as large."""
        full = tuple((edge,) * self.largest for edge in self.member.extremes())
        double = tuple(2 * group for group in full)
        return ((), *full, *double, *_RAW_OTHERS) if self.raw else ((), *full)

    def mutate(self, rng: np.random.Generator, record: Any) -> tuple[Any, ...]:
        """One member moved, or a fresh group."""
        if not isinstance(record, tuple) or not record or rng.random() < 0.2:
            return self.sample(rng)
        members: list[Any] = list(record)  # pyright: ignore[reportUnknownArgumentType]
        place = int(rng.integers(len(members)))
        members[place] = self.member.mutate(rng, members[place])
        return tuple(members)


def _pick(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _step(rng: np.random.Generator) -> float:
    """A normal step whose scale is itself random, from 1 down to 1e-4."""
    return float(rng.standard_normal() * 10.0 ** -rng.uniform(0, 4))


def _steps(rng: np.random.Generator, dimension: int) -> Vector:
    """The same for some entries of a vector, for all of them now and then."""
    chosen = rng.random(dimension) < (1.0 if rng.random() < 0.5 else 1.5 / dimension)
    return np.where(chosen, rng.standard_normal(dimension) * 10.0 ** -rng.uniform(0, 4), 0.0)


def _row(vector: Vector) -> tuple[float, ...]:
    return tuple(vector.tolist())


def _raw_rows(dimension: int) -> tuple[Any, ...]:
    """Vectors with one odd entry or only odd ones, of the wrong length, and no vectors at all."""
    odd = [float(number) for number in _RAW_NUMBERS if not isinstance(number, int)]
    single = [(number, *(0.0,) * (dimension - 1)) for number in odd]
    return (*single, *((n,) * dimension for n in odd), (1.0,) * (dimension + 1), *_RAW_OTHERS)
