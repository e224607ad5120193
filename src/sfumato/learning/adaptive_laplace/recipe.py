"""A recipe: everything about a run of the adaptive Laplace mechanism, before any row is read.

    >>> recipe = AdaptiveLaplaceRecipe(epsilon=10.0)
    >>> AdaptiveLaplaceRecipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.guarantee
    Guarantee: epsilon 10, delta 0, replace one record

All of it is public, and none of it may be chosen by looking at private rows: ``origin`` says where
the choice comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, final

from sfumato.core import validation
from sfumato.core.events import Event, LaplaceEvent, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.adaptive_laplace.budget import Parts, split_epsilon
from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.adaptive_laplace.labels import NoisyLabels
from sfumato.learning.features import FeatureMap, MeanPool, Plain
from sfumato.learning.recipes.recipe import NOT_STATED
from sfumato.learning.relevance.private import PrivateRelevance
from sfumato.learning.relevance.rules import AlphaBetaRule, RelevanceRule
from sfumato.learning.relevance.sources import PublicSource

__all__ = ["CENTROIDS", "AdaptiveLaplaceRecipe"]

CENTROIDS = "centroids"
"""The model that needs no training: the class whose mean is nearest."""

_RULE, _SOURCE = AlphaBetaRule(1.0), PublicSource(options=(("hidden", 64),))


@final
@dataclass(frozen=True)
class AdaptiveLaplaceRecipe:
    """How to tell records with noise, and what to learn from that.

    Formal guarantee: (e1 + e2 + e3)-DP for replacing one record, pure, with e1 for relevance, e2
    for inputs and e3 for labels, which add up to ``epsilon``. Given the shares by relevance, which
    are public by then, what is told of each record is (e2 + e3)-DP by itself: local privacy. If
    the network that relevance is computed with was trained on the same records, the guarantee of
    its training comes on top.

    Attributes:
        epsilon: of everything.
        relevance_share: of epsilon, for relevance; 0 for none: then all inputs have equal shares.
        label_share: of the rest, for labels; None for what makes class means clearest.
        pool: of images, means over squares of so many pixels a side stand for these, before
            anything else: a public function of each record. Noise is in proportion to d, so that
            to tell less is to tell it far more clearly.
        floor: of shares by relevance, before they are scaled.
        rule: how layers share relevance, or its name.
        source: the public network of relevance, unless another one is given.
        labels: "response" or "one-hot".
        model: "centroids", or a network by its name in :mod:`sfumato.learning.models`.
        options: of that network.
        epochs, batch, rate, weight_decay: of its training, by AdamW; post-processing.
        delta: at which the guarantee is stated where it is not pure, because the network of
            relevance was trained with some delta.
        unit: whom it protects.
        seed: of first weights and orders; privacy does not rest on it.
        origin: where the hyper-parameters come from.
    """

    epsilon: float
    relevance_share: float = 0.02
    label_share: float | None = None
    pool: int = 1
    floor: float = 0.1
    rule: RelevanceRule = _RULE
    source: PublicSource = _SOURCE
    labels: str = "response"
    model: str = CENTROIDS
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    epochs: float = 10.0
    batch: int = 256
    rate: float = 1e-3
    weight_decay: float = 0.0
    delta: float = 1e-5
    unit: str = "record"
    seed: int = 0
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        for name in ("epsilon", "epochs", "rate"):
            object.__setattr__(self, name, validation.positive(name, getattr(self, name)))
        if isinstance(self.rule, str):
            object.__setattr__(self, "rule", RelevanceRule.named(self.rule))
        object.__setattr__(self, "options", dict(self.options))
        validation.delta("floor", self.floor)
        validation.count("batch", self.batch)
        validation.count("pool", self.pool)
        validation.non_negative("weight_decay", self.weight_decay)
        validation.open_probability("delta", self.delta)
        validation.name("unit", self.unit)
        validation.name("model", self.model)
        validation.at_least("seed", self.seed, 0)
        validation.name("origin", self.origin)
        if self.model == CENTROIDS and self.options:
            validation.fail("options", "left out for centroids", self.options)
        self.event(2)

    def told_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of what is told of inputs of this shape, channels first.

        Raises:
            ValueError: if they cannot be pooled.
        """
        if self.pool == 1:
            return shape
        if len(shape) != 3 or min(shape[1:]) < self.pool:
            validation.fail("pool", "1, or at most the side of an image", self.pool)
        return self.pooling.out_shape(shape)

    @property
    def pooling(self) -> FeatureMap:
        """What is told of an input, before noise: means over squares, or all of it."""
        return Plain() if self.pool == 1 else MeanPool(self.pool)

    def parts(self, classes: int) -> Parts:
        """The three epsilons."""
        return split_epsilon(self.epsilon, classes, self.relevance_share, self.label_share)

    def relevance(self, public_size: int | None = None) -> PrivateRelevance | None:
        """The release of relevance; None if there is none."""
        epsilon = self.parts(2).relevance  # it does not depend on the number of classes
        if epsilon == 0:
            return None
        return PrivateRelevance(epsilon, Neighbours.REPLACE_ONE, self.unit, self.rule, public_size)

    def noisy_inputs(self, classes: int, shares: Any) -> NoisyInputs:
        """What is told of inputs between 0 and 1."""
        return NoisyInputs(self.parts(classes).inputs, shares, 0.0, 1.0, self.unit)

    def noisy_labels(self, classes: int) -> NoisyLabels:
        """What is told of labels."""
        return NoisyLabels(self.parts(classes).labels, classes, self.labels, self.unit)

    def event(self, classes: int) -> Event:
        """All three releases, known before any row is read: shares add up to d whatever they are.

        (A public network of relevance costs nothing; of a private one see
        :meth:`~sfumato.learning.relevance.KnownModel.privately_trained`.)
        """
        inputs: LaplaceEvent = self.noisy_inputs(classes, (1.0,)).event
        first = self.relevance()
        told = (inputs, self.noisy_labels(classes).event)
        return compose(*told) if first is None else compose(first.event, *told)

    @property
    def guarantee(self) -> Guarantee:
        """Of all three."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def local_guarantee(self, classes: int) -> Guarantee:
        """Of what is told of one record, given the shares."""
        parts = self.parts(classes)
        whole = parts.inputs + parts.labels
        return Guarantee(whole, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {
            "rule": self.rule.to_dict(), "source": self.source.to_dict(),
            "options": dict(self.options),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AdaptiveLaplaceRecipe:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {
            "rule": RelevanceRule.from_dict(data["rule"]),
            "source": PublicSource.from_dict(data["source"]),
        }
        return cls(**(dict(data) | parts))
