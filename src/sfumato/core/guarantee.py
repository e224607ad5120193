"""The guarantee: never a bare epsilon.

A randomised algorithm M is (epsilon, delta)-differentially private for a neighbour relation if, for
every two neighbouring data sets D, D' and every set S of outputs,

    Pr[M(D) in S] <= e^epsilon Pr[M(D') in S] + delta.

Whatever is computed from M's output without the data keeps the guarantee (post-processing), so no
operation here is needed for it. For a group of ``k`` units see :meth:`Guarantee.for_group`.

Reference: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), sections
2.3 and 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sfumato.core import validation
from sfumato.core.html import facts_table
from sfumato.core.neighbours import Neighbours, require_conversion

__all__ = ["Guarantee", "round_down", "round_up"]


def round_up(value: float, digits: int = 4) -> float:
    """``value`` to ``digits`` significant digits, never below it: how an epsilon is shown.

    But for floating point's own rounding: 0.1 + 0.2 is shown as 0.3, not as 0.3001.
    """
    if value == 0 or not math.isfinite(value) or abs(value) > 1e300:
        return value
    step = digits - 1 - math.floor(math.log10(abs(value)))
    nearest = round(value, step)
    if math.isclose(nearest, value, rel_tol=1e-12):
        return nearest
    return nearest if nearest >= value else round(nearest + 10.0**-step, step)


def round_down(value: float, digits: int = 4) -> float:
    """``value`` to ``digits`` significant digits, never above it: how a lower bound is shown."""
    return -round_up(-value, digits) + 0.0


def _log_expm1(x: float) -> float:
    """ln(e^x - 1) without overflow."""
    return x + math.log(-math.expm1(-x))


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy for one unit under one neighbour relation.

    Attributes:
        epsilon: bound on the log ratio of probabilities; ``inf`` states that there is none.
        delta: the probability mass the bound does not cover; 0 for a pure guarantee.
        neighbours: the relation between the two data sets compared.
        unit: whose data one step changes: "record", "person", "label", ...
        accountant: which computation produced it, for the reader.
        note: what a reader must know besides, such as why an accountant fell back to another.

    Example:
        >>> Guarantee(1.0, 1e-5, Neighbours.ADD_REMOVE).for_group(3)
        Guarantee: epsilon 3, delta 0.0001111, add or remove one group of 3 records
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    unit: str = "record"
    accountant: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            validation.non_negative("epsilon", self.epsilon)
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "delta", validation.delta("delta", self.delta))
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        validation.name("unit", self.unit)

    def __str__(self) -> str:
        epsilon, delta, relation = self._shown()
        return f"epsilon {epsilon}, delta {delta}, {relation}"

    def __repr__(self) -> str:
        return f"Guarantee: {self}" + (f" ({self.note})" if self.note else "")

    def _repr_html_(self) -> str:
        epsilon, delta, relation = self._shown()
        rows = [("epsilon", epsilon), ("delta", delta), ("neighbours", relation)]
        if self.accountant:
            rows.append(("accountant", self.accountant))
        return facts_table("Guarantee", rows, note=self.note)

    def _shown(self) -> tuple[str, str, str]:
        """Epsilon, delta and the relation, in words."""
        epsilon = "infinite" if math.isinf(self.epsilon) else f"{round_up(self.epsilon):.10g}"
        delta = f"{round_up(self.delta):.10g}"
        return epsilon, delta, self.neighbours.describe(self.unit)

    def for_group(self, size: int, unit: str = "") -> Guarantee:
        """What the guarantee says of ``size`` = k units together.

        (k eps, delta (e^(k eps) - 1) / (e^eps - 1)). Give ``unit`` where a group has a name of its
        own: a guarantee for records becomes one for people who hold at most ``size`` records each.

        Reference: Dwork and Roth (2014), theorem 2.2 and its (epsilon, delta) form; Vadhan, "The
        Complexity of Differential Privacy" (2017), lemma 2.2.
        """
        size = validation.count("size", size)
        unit = unit or (self.unit if size == 1 else f"group of {size} {self.unit}s")
        return replace(
            self,
            epsilon=size * self.epsilon,
            delta=_group_delta(self.epsilon, self.delta, size),
            unit=unit,
        )

    def under(self, neighbours: Neighbours | str) -> Guarantee:
        """The guarantee that follows for another relation, or ``ValueError`` where none does."""
        target = Neighbours.parse(neighbours)
        steps = require_conversion(self.neighbours, target)
        return replace(self.for_group(steps, unit=self.unit), neighbours=target)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; always with the keys epsilon, delta, neighbours, unit."""
        known: dict[str, Any] = {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "neighbours": self.neighbours.value,
            "unit": self.unit,
        }
        return known | {k: v for k in ("accountant", "note") if (v := getattr(self, k))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guarantee:
        """The inverse of :meth:`to_dict`."""
        return cls(
            epsilon=float(data["epsilon"]),
            delta=data["delta"],
            neighbours=data["neighbours"],
            unit=data["unit"],
            accountant=data.get("accountant", ""),
            note=data.get("note", ""),
        )


def _group_delta(epsilon: float, delta: float, size: int) -> float:
    """Delta (1 + e^eps + ... + e^((k-1) eps)), capped just below 1 where it says nothing."""
    if delta == 0 or size == 1:
        return delta
    if epsilon == 0:
        total = size * delta
    elif math.isinf(epsilon):
        total = 1.0
    else:
        log_total = math.log(delta) + _log_expm1(size * epsilon) - _log_expm1(epsilon)
        total = math.exp(min(log_total, 0.0))
    return min(total, math.nextafter(1.0, 0.0))
