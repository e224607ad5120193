"""Inputs scaled by their private relevance, before DP-SGD.

    >>> from sfumato.learning.recipes import Rate, Recipe
    >>> features = RelevanceScaling(noise_multiplier=10.0)
    >>> common = {"lot_size": 256, "rate": Rate(0.5), "noise_multiplier": 1.0, "epochs": 5}
    >>> Recipe("mlp", **common).plan(60_000).guarantee
    Guarantee: epsilon 0.7841, delta 1e-05, add or remove one record
    >>> Recipe("mlp", features=features, **common).plan(60_000).guarantee  # relevance, too
    Guarantee: epsilon 0.8436, delta 1e-05, add or remove one record

To scale input j by s_j and train is to train with the update of the first layer's weights for input
j scaled by s_j^2: a diagonal preconditioner. Gradients are clipped and noised as a whole, so that
what is given to inputs that matter is not given to those that do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.base import FeatureMap, checked_shape
from sfumato.learning.relevance.private import check_inputs, relevance_sum
from sfumato.learning.relevance.rules import AlphaBetaRule, RelevanceRule
from sfumato.learning.relevance.shares import feature_shares
from sfumato.learning.relevance.sources import PublicSource
from sfumato.mechanisms.sampling import add_laplace, grid_for

__all__ = ["RelevanceScaling", "ScaledInputs"]

_SOURCE, _RULE = PublicSource(options=(("hidden", 64),)), AlphaBetaRule(1.0)


@final
@dataclass(frozen=True)
class RelevanceScaling(FeatureMap):
    """x_j -> x_j beta_j^power, with shares beta from one Laplace release of relevance.

    Formal guarantees
        - The network is public, so each record's scaled relevance is of the record alone (taken to
          be so to the last bit; see :mod:`~sfumato.learning.relevance.private`), and of L1 norm 1
          at most. Added, removed or zeroed out (inputs of 0 have relevance 0), a record
          moves the sum by at most 1; replaced, by at most 2.
        - Laplace noise of scale ``noise_multiplier`` on each number: epsilon is 1 over it, or 2
          over it under replacements. Shares and scales follow from the noisy sum.
        - Training behind it keeps its own sensitivity, since each record is scaled by itself; both
          releases are in one account (``TrainingPlan.before``).

    Attributes:
        noise_multiplier: the scale of the noise.
        source: the public network.
        rule: how its layers share relevance.
        floor: of the shares before they are scaled, at least 0 and below 1.
        power: 0 for none; 1/2 makes squared scales add up to the number of inputs.
    """

    kind: ClassVar[str] = "relevance"
    noise_multiplier: float = 10.0
    source: PublicSource = _SOURCE
    rule: RelevanceRule = _RULE
    floor: float = 0.2
    power: float = 0.5

    def __post_init__(self) -> None:
        noise = validation.positive("noise_multiplier", self.noise_multiplier)
        grid_for(noise)
        object.__setattr__(self, "noise_multiplier", noise)
        if isinstance(self.source, Mapping):
            object.__setattr__(self, "source", PublicSource.from_dict(self.source))
        if isinstance(self.rule, Mapping):
            object.__setattr__(self, "rule", RelevanceRule.from_dict(self.rule))
        elif isinstance(self.rule, str):
            object.__setattr__(self, "rule", RelevanceRule.named(self.rule))
        validation.delta("floor", self.floor)
        validation.non_negative("power", self.power)

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """Inputs as they are, until it is fitted."""
        self.source.known(check_inputs(checked_shape(shape)))  # or says why not, before any row
        return ScaledInputs(shape)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """``shape``."""
        return checked_shape(shape)

    def event(self, neighbours: Neighbours, unit: str) -> LaplaceEvent:
        """One Laplace release."""
        relation = Neighbours.parse(neighbours)
        moved = 2 if relation is Neighbours.REPLACE_ONE else 1
        return LaplaceEvent(self.noise_multiplier / moved, relation, unit)

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Fills ``scale`` from private rows."""
        if not isinstance(module, ScaledInputs):
            validation.fail("module", "what build(shape) returned", type(module).__name__)
        known = self.source.known(tuple(inputs.shape[1:]))
        known.module.to(inputs.device)
        total = relevance_sum(known, inputs, self.rule)
        noise = self.noise_multiplier
        shares = feature_shares(add_laplace(total, noise, grid_for(noise), coins), self.floor)
        module.scale.copy_(torch.from_numpy(np.power(shares, self.power)))

    @property
    def provenance(self) -> str:
        """The public network; the rest is learnt from private rows, and charged."""
        return (
            f"{self.source.provenance}; relevance of the private rows by it is charged (computed "
            "in floating point, taken to be a function of each row alone)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with ``"kind"``."""
        parts = {"source": self.source.to_dict(), "rule": self.rule.to_dict()}
        return super().to_dict() | parts


class ScaledInputs(nn.Module):
    """(n, *shape) times ``scale`` (*shape), which is 1 until it is fitted or loaded."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(shape, dtype=torch.float32))
        self.scale: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Input by input."""
        return inputs * self.scale
