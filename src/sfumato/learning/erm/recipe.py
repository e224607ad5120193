"""A recipe: everything about a run of private linear learning, before any row is read.

    >>> recipe = ErmRecipe(epsilon=1.0)
    >>> ErmRecipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.way, ErmRecipe(model="regression").way
    ('objective', 'functional')

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

__all__ = ["CLASSIFIERS", "MODELS", "REGRESSIONS", "ErmRecipe"]

CLASSIFIERS = ("logistic", "svc")
REGRESSIONS = ("regression", "ridge")
MODELS = (*CLASSIFIERS, *REGRESSIONS)
_OF_SQUARES = ("functional", "input")  # ways that take least squares as it is, not Huber's loss
_PLAIN = Plain()


@final
@dataclass(frozen=True)
class ErmRecipe:
    """How to learn a linear model of a data set.

    Attributes:
        model: of classes "logistic", or "svc" for a support vector machine; of numbers
            "regression", or "ridge" for scikit-learn's penalty.
        way: see :func:`~sfumato.learning.erm.ways.way_names`; empty is "functional" for numbers,
            "objective" for classes.
        epsilon, delta: of the run; a delta of 0 asks for a pure guarantee.
        neighbours, unit: of the guarantee.
        regularisation: lambda; None for a function of public facts. Not for "ridge".
        norm: rows of this length, once columns are between -1 and 1, get length 1; None is 1 for
            classes, and for numbers the length of the longest row there can be.
        width: of the machine's rounded hinge.
        alpha: the penalty of "ridge"; None is 1 there.
        threshold: of Huber's loss, which stands for least squares in all ways but "functional"
            and "input", in halves of the labels' range; None is 1.
        features: what stands before; public ones only.
        origin: where the hyper-parameters come from.
    """

    model: str = "logistic"
    way: str = ""
    epsilon: float = 1.0
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    regularisation: float | None = None
    norm: float | None = None
    width: float = 0.5
    features: FeatureMap = _PLAIN
    origin: str = NOT_STATED
    alpha: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        if self.model not in MODELS:
            validation.fail("model", f"one of {', '.join(MODELS)}", self.model)
        if self.way == "":
            object.__setattr__(self, "way", "functional" if self.of_numbers else "objective")
        if self.norm is None and not self.of_numbers:
            object.__setattr__(self, "norm", 1.0)
        self._check_penalty()
        self._check_threshold()
        if self.features.event(self.neighbours, self.unit) is not None:
            validation.fail("features", "public ones, or none, before erm", self.features.kind)
        validation.name("origin", self.origin)

    def _check_penalty(self) -> None:
        if self.model == "ridge":
            if self.regularisation is not None:
                raise ValueError(
                    f"regularisation must be left out for ridge, got {self.regularisation!r}: its "
                    "penalty is alpha, which is regularisation times the number of records"
                )
            alpha = 1.0 if self.alpha is None else self.alpha
            object.__setattr__(self, "alpha", validation.positive("alpha", alpha))
        elif self.alpha is not None:
            raise ValueError(
                f"alpha must be left out but for model 'ridge', got {self.alpha!r} for "
                f"{self.model!r}: its penalty is regularisation"
            )

    def _check_threshold(self) -> None:
        if self.threshold is None:
            return
        if not self.of_numbers or self.way in _OF_SQUARES:
            raise ValueError(
                f"threshold must be left out for {self.model!r} by way {self.way!r}, got "
                f"{self.threshold!r}: it is of Huber's loss, for numbers by objective, output or "
                "sgd"
            )
        validation.positive("threshold", self.threshold)

    @property
    def of_numbers(self) -> bool:
        """Whether the model tells numbers, and not classes."""
        return self.model in REGRESSIONS

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"features": self.features.to_dict(), "neighbours": self.neighbours.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ErmRecipe:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {"features": FeatureMap.from_dict(data["features"])}
        return cls(**(dict(data) | parts))
