"""A recipe: everything about a run of private linear learning, before any row is read.

    >>> recipe = ErmRecipe(epsilon=1.0)
    >>> ErmRecipe.from_dict(recipe.to_dict()) == recipe
    True

All of it is public, and none of it may be chosen by looking at private rows: ``origin`` says where
the choice comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.learning.features import FeatureMap, Plain
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["MODELS", "ErmRecipe"]

MODELS = ("logistic", "svc")
_PLAIN = Plain()


@final
@dataclass(frozen=True)
class ErmRecipe:
    """How to learn a linear classifier of a data set.

    Attributes:
        model: "logistic", or "svc" for a support vector machine.
        way: see :func:`~sfumato.learning.erm.ways.way_names`.
        epsilon, delta: of the run; a delta of 0 asks for a pure guarantee.
        neighbours, unit: of the guarantee.
        regularisation: lambda; None for a function of public facts.
        norm: rows of this length, once columns are between -1 and 1, get length 1.
        width: of the machine's rounded hinge.
        features: what stands before; public ones only.
        origin: where the hyper-parameters come from.
    """

    model: str = "logistic"
    way: str = "objective"
    epsilon: float = 1.0
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    regularisation: float | None = None
    norm: float = 1.0
    width: float = 0.5
    features: FeatureMap = _PLAIN
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        if self.model not in MODELS:
            validation.fail("model", f"one of {', '.join(MODELS)}", self.model)
        if self.features.event(self.neighbours, self.unit) is not None:
            validation.fail("features", "public ones, or none, before erm", self.features.kind)
        validation.name("origin", self.origin)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"features": self.features.to_dict(), "neighbours": self.neighbours.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ErmRecipe:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {"features": FeatureMap.from_dict(data["features"])}
        return cls(**(dict(data) | parts))
