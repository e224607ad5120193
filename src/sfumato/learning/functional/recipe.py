"""A recipe: everything about a run of the functional network, before any row is read.

    >>> recipe = FunctionalRecipe(epsilon=1.0)
    >>> FunctionalRecipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.noise, FunctionalRecipe(epsilon=1.0, delta=1e-5).noise
    ('laplace', 'gaussian')

All of it is public, and none of it may be chosen by looking at private rows: ``origin`` says where
the choice comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm
from sfumato.learning.features import FeatureMap, Plain
from sfumato.learning.functional.expansion import CURVATURES
from sfumato.learning.functional.networks import Topology
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["FunctionalRecipe"]

_PLAIN = Plain()


@final
@dataclass(frozen=True)
class FunctionalRecipe:
    """How to train a small network by noisy quadratic expansions of its loss.

    Attributes:
        epsilon, delta: of the run; a delta of 0, the usual, asks for a pure guarantee by Laplace
            noise, any other for normal noise.
        neighbours, unit: of the guarantee; add-remove or replace-one.
        hidden: units of each hidden layer; none for a linear model.
        activation: of hidden units: "sigmoid", "tanh" or "relu".
        centred: whether features between 0 and 1 are stretched to -1 and 1, for better steps.
        loss: "cross-entropy", or "squares" of logistic outputs.
        curvature: "gauss-newton", "lecun", or "none", which spends nothing on second derivatives.
        clip: C, what one record's slopes and curvatures add up to at most.
        kappa: weight of curvatures in that.
        rounds: R expansions, each around the last one's minimiser and each paid for; None for a
            function of public facts
            (:attr:`~sfumato.learning.functional.plan.FunctionalPlan.rounds`).
        sample_rate: q, with which each record enters a round; below 1 for add-remove only.
        rate: share of a step that is taken.
        damping: lambda, added to each record's curvature; None for 0.01, and 0.03 where curvatures
            are not released and it is all there is.
        reach: rho, the farthest that a weight moves in a round.
        memory: share of the last rounds' noisy sums in a step, 0 for none; costs nothing.
        features: what stands before; public ones only.
        seed: of the first weights; privacy does not rest on it.
        origin: where the hyper-parameters come from.
    """

    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    hidden: tuple[int, ...] = ()
    activation: str = "tanh"
    centred: bool = True
    loss: str = "cross-entropy"
    curvature: str = "gauss-newton"
    clip: float = 8.0
    kappa: float = 1.0
    rounds: int | None = None
    sample_rate: float = 1.0
    rate: float = 0.3
    damping: float | None = None
    reach: float = 0.3
    memory: float = 0.7
    features: FeatureMap = _PLAIN
    seed: int = 0
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.damping is None:
            object.__setattr__(self, "damping", 0.03 if self.curvature == "none" else 0.01)
        for name in ("epsilon", "clip", "kappa", "rate", "damping", "reach"):
            object.__setattr__(self, name, validation.positive(name, getattr(self, name)))
        object.__setattr__(self, "delta", validation.delta("delta", self.delta))
        if self.rounds is not None:
            validation.count("rounds", self.rounds)
        validation.at_least("seed", self.seed, 0)
        validation.sample_rate("sample_rate", self.sample_rate)
        if not 0 <= validation.finite("memory", self.memory) < 1:
            validation.fail("memory", "from 0 to below 1", self.memory)
        if self.curvature not in CURVATURES:
            validation.fail("curvature", f"one of {', '.join(CURVATURES)}", self.curvature)
        for name in ("unit", "origin"):
            validation.name(name, getattr(self, name))
        self._check_neighbours()
        self.topology((1,), 2)  # or says what is wrong with the layers
        if self.features.event(self.neighbours, self.unit) is not None:
            validation.fail("features", "public ones, or none", self.features.kind)

    def _check_neighbours(self) -> None:
        if self.neighbours is Neighbours.ZERO_OUT:
            raise ValueError(
                "neighbours must be 'add-remove' or 'replace-one': a row that is blanked out still "
                "counts here, as one at the declared defaults. 'replace-one' covers it"
            )
        if self.sample_rate < 1 and self.neighbours is not Neighbours.ADD_REMOVE:
            raise ValueError(
                f"sample_rate must be 1 with neighbours={self.neighbours.value!r}, got "
                f"{self.sample_rate!r}: amplification by sampling is claimed for add-remove alone"
            )

    @property
    def noise(self) -> str:
        """Laplace noise for a pure guarantee, normal noise otherwise."""
        return "laplace" if self.delta == 0 else "gaussian"

    @property
    def norm(self) -> Norm:
        """In which records are clipped."""
        return Norm.L1 if self.delta == 0 else Norm.L2

    def topology(self, shape: tuple[int, ...], classes: int) -> Topology:
        """The network for features of this shape."""
        inputs = 1
        for size in shape:
            inputs *= size
        return Topology(
            inputs, self.hidden, classes, self.activation, self.loss, centred=self.centred
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {
            "features": self.features.to_dict(), "neighbours": self.neighbours.value,
            "hidden": list(self.hidden),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FunctionalRecipe:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {"features": FeatureMap.from_dict(data["features"])}
        return cls(**(dict(data) | parts))
