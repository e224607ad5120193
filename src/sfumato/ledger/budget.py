"""A budget: the guarantee that a dataset's releases will never go beyond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sfumato.core import validation
from sfumato.ledger import amounts

__all__ = ["Budget"]

MOST_EPSILON = 1e6
_SMALLEST_DELTA = 1e-15


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta): what all releases in its scope promise together, whatever is asked.

    Attributes:
        epsilon: the cap.
        delta: the probability mass the cap does not cover. 0 admits pure releases alone.
        opaque_delta: the part of ``delta`` set aside for releases of which only (epsilon, delta) is
            known, such as a plan declared in advance or a threshold on unknown groups; half of
            delta by default. The rest turns Rényi divergences into the cap, which Gaussian noise
            needs.

    Example:
        >>> Budget(3.0, 1e-6)
        Budget(epsilon=3.0, delta=1e-06, opaque_delta=5e-07)
    """

    epsilon: float
    delta: float = 0.0
    opaque_delta: float | None = None

    def __post_init__(self) -> None:
        epsilon = validation.positive("epsilon", self.epsilon)
        if not 1e-9 <= epsilon <= MOST_EPSILON:
            validation.fail("epsilon", f"between 1e-09 and {MOST_EPSILON:g}", self.epsilon)
        delta = validation.delta("delta", self.delta)
        if 0 < delta < _SMALLEST_DELTA:
            validation.fail("delta", f"0 or at least {_SMALLEST_DELTA:g}", self.delta)
        opaque = delta / 2 if self.opaque_delta is None else self.opaque_delta
        opaque = validation.delta("opaque_delta", opaque)
        if opaque > delta:
            validation.fail("opaque_delta", f"at most delta ({delta:g})", self.opaque_delta)
        for name, value in (("epsilon", epsilon), ("delta", delta), ("opaque_delta", opaque)):
            object.__setattr__(self, name, value)

    @property
    def opaque(self) -> float:
        """``opaque_delta``, which is a number once the budget is made."""
        assert self.opaque_delta is not None
        return self.opaque_delta

    @property
    def conversion_delta(self) -> float:
        """What is left of delta for Rényi divergences, rounded down."""
        return amounts.as_delta(amounts.delta_down(self.delta) - amounts.delta_up(self.opaque))

    def times(self, count: int) -> Budget:
        """A budget ``count`` times as large, in decimals: 3 times 0.1 is 0.3."""
        parts = (self.epsilon, self.delta, self.opaque)
        return Budget(*(float(count * Decimal(repr(part))) for part in parts))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"epsilon": self.epsilon, "delta": self.delta, "opaque_delta": self.opaque}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Budget:
        """The inverse of :meth:`to_dict`."""
        return cls(data["epsilon"], data["delta"], data["opaque_delta"])
