"""Sensitivity: how far one neighbour step can move a function's value, declared and never measured.

    Delta = max over neighbours D, D' of || f(D) - f(D') ||

The norm matters: Laplace noise is calibrated to L1, Gaussian noise to L2, and a bound in the wrong
norm is an error rather than a silent factor of sqrt(k).

    >>> Sensitivity(1.0, Norm.LINF, dimension=16).to("l2").bound
    4.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours, require_conversion
from sfumato.core.rounding import at_least_product, at_least_root

__all__ = ["Norm", "Sensitivity", "required"]


class Norm(StrEnum):
    """The norm in which a sensitivity is measured."""

    L1 = "l1"
    L2 = "l2"
    LINF = "linf"


_ORDER = {Norm.L1: 1.0, Norm.L2: 2.0, Norm.LINF: math.inf}


@dataclass(frozen=True)
class Sensitivity:
    """A declared bound on how far one neighbour step moves a ``dimension``-dimensional value.

    Attributes:
        bound: the bound; 0 says that the value does not depend on any one unit.
        norm: in which norm; in one dimension all norms agree.
        neighbours: for which relation.
        unit: whose data one step changes.
        dimension: how many numbers are released together.
    """

    bound: float
    norm: Norm = Norm.L1
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    dimension: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", validation.non_negative("sensitivity", self.bound))
        object.__setattr__(self, "norm", validation.choice("norm", self.norm, Norm))
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        object.__setattr__(self, "dimension", validation.count("dimension", self.dimension))
        validation.name("unit", self.unit)

    def to(self, norm: Norm | str) -> Sensitivity:
        """The bound that follows in another norm (Hölder): ||x||_p <= k^(1/p - 1/q) ||x||_q, p < q.

        Towards a larger p the bound stays as it is, which is safe but loses what a bound declared
        in that norm could have gained.
        """
        target = validation.choice("norm", norm, Norm)
        p, q = _ORDER[target], _ORDER[self.norm]
        if p >= q or self.dimension == 1:
            return replace(self, norm=target)
        factor = float(self.dimension) if (p, q) == (1, math.inf) else at_least_root(self.dimension)
        return replace(self, bound=at_least_product(self.bound, factor), norm=target)

    def require(self, norm: Norm) -> float:
        """The bound, positive and in ``norm``, for a mechanism calibrated to it.

        Raises:
            ValueError: if it was declared in another norm, or is 0 so that no noise is needed.
        """
        if self.norm is not norm and self.dimension > 1:
            raise ValueError(
                f"sensitivity must be an {norm.value} bound for this mechanism, got {self.bound!r} "
                f"in {self.norm.value} over {self.dimension} dimensions: declare it in "
                f"{norm.value}, or convert it with .to({norm.value!r})"
            )
        if self.bound == 0:
            raise ValueError(
                "sensitivity must be above 0 for noise to be calibrated, got 0: "
                "a value that no one unit can change needs no noise"
            )
        return self.bound

    def for_group(self, size: int, unit: str = "") -> Sensitivity:
        """The bound for ``size`` units changing together: ``size`` times as much (triangle)."""
        size = validation.count("size", size)
        unit = unit or (self.unit if size == 1 else f"group of {size} {self.unit}s")
        return replace(self, bound=at_least_product(self.bound, size), unit=unit)

    def under(self, neighbours: Neighbours | str) -> Sensitivity:
        """The bound that follows for another relation, or ``ValueError`` where none does.

        Two add/remove steps make one replacement, so the bound at most doubles; a bound declared
        for the relation itself is often smaller.
        """
        target = Neighbours.parse(neighbours)
        steps = require_conversion(self.neighbours, target)
        return replace(self, bound=at_least_product(self.bound, steps), neighbours=target)


def required(sensitivity: object, norm: Norm) -> float:
    """The bound of what is given as a mechanism's ``sensitivity``; see :meth:`Sensitivity.require`.

    Raises:
        ValueError: also for anything that is no :class:`Sensitivity`, such as a bare number.
    """
    if not isinstance(sensitivity, Sensitivity):
        validation.fail("sensitivity", "a Sensitivity, such as Sensitivity(1.0)", sensitivity)
    return sensitivity.require(norm)
