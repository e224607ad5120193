"""A recipe: everything about a private auto-encoder, before any row is read.

    >>> recipe = AutoEncoderRecipe(widths=(50, 20), epsilon=2.0)
    >>> AutoEncoderRecipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.noise, AutoEncoderRecipe(delta=0.0).noise
    ('gaussian', 'laplace')

All of it is public, and none of it may be chosen by looking at private rows: ``origin`` says where
the choice comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.learning.autoencoder.sensitivity import check_relation
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["HEADS", "WAYS", "AutoEncoderRecipe"]

WAYS = ("functional", "dp-sgd")
HEADS = ("objective", "functional", "none")


@final
@dataclass(frozen=True)
class AutoEncoderRecipe:
    """How to learn an auto-encoder and a classifier on its codes.

    Attributes:
        widths: how many codes each layer has, the first layer first.
        way: "functional" for noise on the coefficients of each layer's objective, "dp-sgd" for
            noise on gradients of the whole network's reconstruction error.
        epsilon, delta: of the run; a delta of 0 asks for a pure guarantee, by Laplace noise.
        neighbours, unit: of the guarantee.
        head: how classes are learnt from the last codes, by ways of linear learning: "objective",
            "functional", or "none".
        head_share: which part of the budget the classifier has. Where all noise is normal, a part
            of 1 over the squared multiplier; otherwise of epsilon and of delta.
        seed: of what is random and public: first encoders, first weights.
        rounds: of "functional", how many releases a layer makes. The first has a random encoder;
            each later one has the transpose of what the one before released.
        gain: of "functional", how steep a tied encoder's sigmoid is, over the root of the inputs.
        random_gain: the same of a random encoder.
        epochs, lot_size, clip, rate: of "dp-sgd": passes, expected records in a lot, clip norm,
            Adam's learning rate.
        origin: where the hyper-parameters come from.
    """

    widths: tuple[int, ...] = (25,)
    way: str = "functional"
    epsilon: float = 1.0
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    head: str = "objective"
    head_share: float = 0.3
    seed: int = 0
    rounds: int = 2
    gain: float = 14.0
    random_gain: float = 56.0
    epochs: float = 5.0
    lot_size: int = 1024
    clip: float = 1.0
    rate: float = 0.03
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        widths = tuple(validation.count("widths", width) for width in self.widths)
        if not widths:
            validation.fail("widths", "one number of codes or more, such as (25,)", self.widths)
        object.__setattr__(self, "widths", widths)
        if self.way not in WAYS:
            validation.fail("way", f"one of {', '.join(WAYS)}", self.way)
        validation.positive("epsilon", self.epsilon)
        validation.delta("delta", self.delta)
        if self.head not in HEADS:
            validation.fail("head", f"one of {', '.join(HEADS)}", self.head)
        validation.open_probability("head_share", self.head_share)
        validation.name("unit", self.unit)
        validation.name("origin", self.origin)
        self._check_ways()

    def _check_ways(self) -> None:
        for name in ("gain", "random_gain", "epochs", "clip", "rate"):
            validation.positive(name, getattr(self, name))
        validation.at_least("seed", self.seed, 0)
        for name in ("rounds", "lot_size"):
            validation.count(name, getattr(self, name))
        if self.way == "functional":
            check_relation(self.neighbours)
        elif self.delta == 0:
            raise ValueError(
                "delta must be above 0 for way 'dp-sgd', whose noise is normal: delta=1e-5, or "
                "way='functional'"
            )

    @property
    def noise(self) -> str:
        """Of what law it is."""
        return "gaussian" if self.delta else "laplace"

    @property
    def share(self) -> float:
        """What of the budget the classifier has, 0 for none."""
        return 0.0 if self.head == "none" else self.head_share

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"widths": list(self.widths), "neighbours": self.neighbours.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AutoEncoderRecipe:
        """The inverse of :meth:`to_dict`."""
        values: dict[str, Any] = dict(data) | {"widths": tuple(data["widths"])}
        return cls(**values)
