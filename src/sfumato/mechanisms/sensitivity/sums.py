"""Sums and means of bounded values, with declared sensitivities.

Each function is a frozen dataclass. Its fields are public; the data is the argument of the call::

    >>> height = BoundedSum(0, 7)  # feet
    >>> float(height([5.5, 6.0, float("nan"), 90]))
    18.5
    >>> height.sensitivity("add-remove").bound
    7.0

The sensitivities hold for *every* table: rows out of bounds are clamped, rows that are no numbers
become the declared default, and an empty table has a value like any other. They are bounds for real
arithmetic, rounded up. The float returned lies within one unit in its last place of the exact
value, so that a step may move it by up to two such units more: a share of n 2^-51 of the bound for
n rows. No mechanism adds that; where n is so large that it matters, declare it.

Reference: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), sec. 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.rounding import at_least_product, at_least_ratio
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity import values
from sfumato.mechanisms.sensitivity.declared import scalar_sensitivity
from sfumato.mechanisms.sensitivity.values import Vector

__all__ = ["BoundedSum", "GroupSum", "Mean", "SumAndCount", "VectorSum"]


@dataclass(frozen=True)
class BoundedSum:
    """The sum of values clamped to declared bounds [l, u].

    A row adds a value in [l, u] or, absent or blanked out, adds 0: it moves the sum by at most
    max(|l|, |u|). Replaced, it moves the sum by at most u - l.

    Attributes:
        lower: l, public.
        upper: u, public.
        default: what a row that is no number counts as; 0, or the bound nearest to 0, unless given.

    Example:
        >>> total = BoundedSum(10, 20)
        >>> [total.sensitivity(relation).bound for relation in Neighbours]
        [20.0, 10.0, 20.0]
    """

    lower: float
    upper: float
    default: float | None = None

    def __post_init__(self) -> None:
        lower, upper = values.bounds(self.lower, self.upper)
        default = min(max(0.0, lower), upper) if self.default is None else self.default
        default = validation.finite("default", default)
        if not lower <= default <= upper:
            validation.fail("default", f"between the bounds {lower:g} and {upper:g}", default)
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "default", default)

    def clamped(self, data: Iterable[Any]) -> Vector:
        """What each row that was not blanked out contributes."""
        assert self.default is not None
        rows = data if type(data) is np.ndarray and data.dtype != object else values.present(data)
        return values.clamp(rows, self.lower, self.upper, self.default)

    @property
    def largest(self) -> float:
        """max(|l|, |u|): the most that one row contributes."""
        return max(abs(self.lower), abs(self.upper))

    def __call__(self, data: Iterable[Any], /) -> np.float64:
        """The sum, correctly rounded."""
        return np.float64(math.fsum(self.clamped(data)))

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """max(|l|, |u|); under replace-one u - l."""
        return scalar_sensitivity(
            neighbours,
            norm,
            add_remove=self.largest,
            replace_one=values.width(self.lower, self.upper),
            zero_out=self.largest,
        )


@dataclass(frozen=True)
class Mean:
    """The mean of values in [l, u] over a table whose size n is public.

    The clamped sum divided by the *declared* n, hence (u - l) / n under replace-one. Under
    add/remove the number of rows is itself private: no scale may use it, and 1/n is no bound (one
    row added to an empty table moves the mean by a whole value). Release :class:`SumAndCount`, or a
    noisy sum and a noisy count, instead.

    Attributes:
        lower: l, public.
        upper: u, public.
        size: n, public; the divisor even where the table turns out to have another length.
        default: what a row that is no number counts as.

    Example:
        >>> Mean(0, 1, size=50).sensitivity("replace-one").bound
        0.02
    """

    lower: float
    upper: float
    size: int
    default: float | None = None

    def __post_init__(self) -> None:
        summed = BoundedSum(self.lower, self.upper, self.default)
        for name in ("lower", "upper", "default"):
            object.__setattr__(self, name, getattr(summed, name))
        object.__setattr__(self, "size", validation.count("size", self.size))

    def __call__(self, data: Iterable[Any], /) -> np.float64:
        """The clamped sum over the declared size."""
        return np.float64(BoundedSum(self.lower, self.upper, self.default)(data) / self.size)

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """(u - l) / n under replace-one, max(|l|, |u|) / n under zero-out.

        Raises:
            ValueError: under add-remove, where n is private.
        """
        relation = Neighbours.parse(neighbours)
        if relation is Neighbours.ADD_REMOVE:
            raise ValueError(
                "neighbours must be 'replace-one' or 'zero-out' for a mean over a public size, "
                "got 'add-remove', where the size is private and no scale may use it: release a "
                "noisy sum and a noisy count, for instance with SumAndCount, and divide them"
            )
        summed = BoundedSum(self.lower, self.upper).sensitivity(relation, norm)
        return Sensitivity(at_least_ratio(summed.bound, self.size), summed.norm, relation)


@dataclass(frozen=True)
class SumAndCount:
    """The pair (clamped sum, number of rows), from which a mean follows without a public size.

    A row present or absent moves the pair by (v, 1) with v in [l, u]: L1 M + 1, L2 sqrt(M^2 + 1),
    Linf max(M, 1), where M = max(|l|, |u|). Replaced, it moves the pair by (v - v', 0): u - l in
    every norm. All are attained. One noise scale serves both numbers, so choose units in which M is
    near 1, or release the two apart.

    Attributes:
        lower: l, public.
        upper: u, public.
        default: what a row that is no number counts as.

    Example:
        >>> pair = SumAndCount(0, 1)
        >>> pair.sensitivity("add-remove").bound, pair.sensitivity("replace-one").bound
        (2.0, 1.0)
        >>> pair.mean_from(31.2, 60.0), pair.mean_from(3.0, -0.4)
        (0.52, 1.0)
    """

    lower: float
    upper: float
    default: float | None = None

    def __post_init__(self) -> None:
        summed = BoundedSum(self.lower, self.upper, self.default)
        for name in ("lower", "upper", "default"):
            object.__setattr__(self, name, getattr(summed, name))

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """The sum and the count."""
        contributions = BoundedSum(self.lower, self.upper, self.default).clamped(data)
        return np.array([math.fsum(contributions), float(len(contributions))])

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """The norm of (M, 1); under replace-one u - l."""
        relation = Neighbours.parse(neighbours)
        target = validation.choice("norm", norm or Norm.L1, Norm)
        largest = BoundedSum(self.lower, self.upper).largest
        bound = {
            Norm.L1: values.width(-1.0, largest),
            Norm.L2: _at_least_hypot(largest, 1.0),
            Norm.LINF: max(largest, 1.0),
        }[target]
        if relation is Neighbours.REPLACE_ONE:
            bound = values.width(self.lower, self.upper)
        return Sensitivity(bound, target, relation, dimension=2)

    def mean_from(self, total: float, count: float) -> float:
        """The mean that a *released* sum and count suggest, within the bounds; costs nothing."""
        total, count = validation.finite("total", total), validation.finite("count", count)
        return min(max(total / max(count, 1.0), self.lower), self.upper)


@dataclass(frozen=True)
class GroupSum:
    """The sum over groups of values in [0, u], where a whole group is present or absent.

    A row is a group; its first k members count, each clamped. It adds at most k u, whichever the
    relation: salaries capped at 50,000 in groups of four give 200,000. The same number is group
    privacy: ``BoundedSum(0, u).sensitivity().for_group(k)``.

    Attributes:
        upper: u, public.
        group_size: k, public.

    Example:
        >>> salaries = GroupSum(50_000, group_size=4)
        >>> salaries.sensitivity().bound, salaries.sensitivity().unit
        (200000.0, 'group of 4 records')
        >>> float(salaries([[20_000, 30_000], [90_000, 0, 10_000]]))
        110000.0
    """

    upper: float
    group_size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "upper", values.bounds(0.0, self.upper)[1])
        object.__setattr__(self, "group_size", validation.count("group_size", self.group_size))

    def __call__(self, data: Iterable[Any], /) -> np.float64:
        """The sum over all groups, correctly rounded."""
        groups = (values.take(group, self.group_size) for group in values.present(data))
        clamped = (BoundedSum(0.0, self.upper).clamped(members) for members in groups)
        return np.float64(math.fsum(value for group in clamped for value in group))

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """The group size times the bound of one member, for the group as unit."""
        member = BoundedSum(0.0, self.upper).sensitivity(neighbours, norm)
        bound = at_least_product(self.group_size, self.upper)
        return replace(member.for_group(self.group_size), bound=bound)


@dataclass(frozen=True)
class VectorSum:
    """The sum of k-dimensional rows, each scaled down to a declared bound B on its norm.

    A row contributes a vector of norm at most B, in any direction: B when present, absent or
    blanked out, 2 B when replaced by its opposite. In another norm B grows by k^(1/p - 1/q) towards
    a smaller p and stays towards a larger one, both attained (at equal entries, at one entry). Rows
    of another shape, or with an entry that is not finite, contribute the zero vector.

    Attributes:
        dimension: k, public.
        norm: the norm that is clipped.
        bound: B, public.

    Example:
        >>> gradients = VectorSum(dimension=4, norm=Norm.L2, bound=1.0)
        >>> gradients.sensitivity("add-remove").bound, gradients.sensitivity(norm="l1").bound
        (1.0, 2.0)
        >>> gradients([[30, 0, 0, 40], [0, 0.5, 0, 0], "no vector"]).round(6).tolist()
        [0.6, 0.5, 0.0, 0.8]
    """

    dimension: int
    norm: Norm
    bound: float

    def __post_init__(self) -> None:
        bound = validation.positive("bound", self.bound)
        object.__setattr__(self, "dimension", validation.count("dimension", self.dimension))
        object.__setattr__(self, "norm", validation.choice("norm", self.norm, Norm))
        object.__setattr__(self, "bound", values.bounds(-bound, bound)[1])

    def __call__(self, data: Iterable[Any], /) -> Vector:
        """The sum of the clipped rows."""
        rows = (values.as_vector(row, self.dimension) for row in values.present(data))
        clipped = (values.clip(row, self.norm, self.bound) for row in rows if row is not None)
        return values.total(clipped, self.dimension)

    def sensitivity(
        self,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        norm: Norm | str | None = None,
    ) -> Sensitivity:
        """B in the norm that is clipped, twice that under replace-one."""
        present = Sensitivity(self.bound, self.norm, dimension=self.dimension)
        return present.under(neighbours).to(norm or self.norm)


def _at_least_hypot(a: float, b: float) -> float:
    """A float that is not below sqrt(a^2 + b^2), and within one or two units of it."""
    rounded = math.hypot(a, b)
    while Fraction(rounded) ** 2 < Fraction(a) ** 2 + Fraction(b) ** 2:
        rounded = math.nextafter(rounded, math.inf)
    return rounded
