"""A recipe: everything about a run with private labels, before any label is read.

    >>> recipe = LabelRecipe(epsilon=2.0)
    >>> LabelRecipe.from_dict(recipe.to_dict()) == recipe
    True
    >>> recipe.guarantee
    Guarantee: epsilon 2, delta 0, replace one label

All of it is public, and none of it may be chosen by looking at private labels: ``origin`` says
where the choice comes from, and the record repeats it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, final

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, Event, RandomizedResponseEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.label_dp.alibi import NoisyOneHot
from sfumato.learning.label_dp.top_k import LABEL, TopKResponse, checked_unit
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["AUGMENTS", "MECHANISMS", "PRETRAININGS", "STARTS", "TARGETS", "LabelRecipe"]

MECHANISMS = ("response", "alibi")
"""Randomised response (with the last stage's prior from the second stage on), or ALIBI."""

TARGETS = ("hard", "soft", "debiased")
"""What a network learns: reports as they are, posteriors by the last model, or unbiased ones."""

STARTS = ("network", "least-squares")
"""What makes the first prior of soft targets."""

AUGMENTS = ("none", "shift", "crop-flip")
"""Random changes of images while a network learns."""

PRETRAININGS = ("none", "contrastive")
"""What networks learn from inputs before any label is read."""

# Left out of JSON as long as they are so: then older runs' journals are still of their recipe.
_LATER: Mapping[str, Any] = {"pretraining": "none", "pretraining_epochs": 150.0, "folds": 1}


@final
@dataclass(frozen=True)
class LabelRecipe:
    """How to train with private labels and public inputs.

    Attributes:
        epsilon: of each label's one report, hence of everything.
        mechanism: see :data:`MECHANISMS`.
        shares: of the labels that each stage reads; they add up to 1. One share is LP-1ST.
        temperature: a stage's logits are divided by it to make the next stage's prior.
        targets: see :data:`TARGETS`.
        rounds: so many networks follow each other in a stage, each on soft targets of the last.
        start: see :data:`STARTS`.
        features: "none", or "wavelets": scattering coefficients, then the principal components of
            the public inputs.
        components: of the features.
        network: by name, see :mod:`~sfumato.learning.label_dp.networks`.
        options: of the network.
        epochs: of each network's training, over the rows that have reports.
        batch: rows of a step.
        optimizer: "adamw", or "sgd" with Nesterov's momentum 0.9.
        rate: the highest learning rate; it rises for a twentieth of the steps, then falls.
        weight_decay: of the optimizer.
        mixup: alpha of each stage: pairs are mixed l to 1 - l, l from Beta(alpha, alpha); 0 for no
            mixing.
        augment: see :data:`AUGMENTS`.
        pretraining: see :data:`PRETRAININGS`; all networks then start from the same body, and least
            squares go by what it makes of inputs.
        pretraining_epochs: over all inputs, in batches of ``batch``.
        folds: of least squares: what it expects of a row comes from the other folds' reports. 1 for
            a single fit, which has seen the row's own.
        unit: "label": what is replaced, and nothing else.
        seed: of the split, of first weights and orders; privacy does not rest on it.
        origin: where the hyper-parameters come from.
    """

    epsilon: float
    mechanism: str = "response"
    shares: tuple[float, ...] = (0.6, 0.4)
    temperature: float = 1.0
    targets: str = "soft"
    rounds: int = 2
    start: str = "network"
    features: str = "none"
    components: int = 400
    network: str = "mlp"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    epochs: float = 6.0
    batch: int = 512
    optimizer: str = "adamw"
    rate: float = 2e-3
    weight_decay: float = 0.05
    mixup: tuple[float, ...] = (1.0, 1.0)
    augment: str = "none"
    pretraining: str = "none"
    pretraining_epochs: float = 150.0
    folds: int = 1
    unit: str = LABEL
    seed: int = 0
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        for name in ("shares", "mixup"):
            object.__setattr__(self, name, tuple(float(x) for x in getattr(self, name)))
        for name in ("epsilon", "temperature", "epochs", "rate", "pretraining_epochs"):
            object.__setattr__(self, name, validation.positive(name, getattr(self, name)))
        validation.non_negative("weight_decay", self.weight_decay)
        for name in ("rounds", "components", "folds"):
            validation.count(name, getattr(self, name))
        validation.at_least("batch", self.batch, 2)
        validation.at_least("seed", self.seed, 0)
        checked_unit(self.unit)
        self._check_choices()
        self._check_stages()
        if self.mechanism == "response":
            TopKResponse(self.epsilon)  # or says why not: no report has so small an epsilon
        self.event(2)

    def _check_choices(self) -> None:
        choices = {
            "mechanism": MECHANISMS, "targets": TARGETS, "start": STARTS, "augment": AUGMENTS,
            "features": ("none", "wavelets"), "optimizer": ("adamw", "sgd"),
            "pretraining": PRETRAININGS,
        }  # fmt: skip
        for name, known in choices.items():
            if getattr(self, name) not in known:
                validation.fail(name, f"one of {', '.join(known)}", getattr(self, name))
        if self.augment != "none" and self.features != "none":
            validation.fail("augment", "'none' with features, which are made once", self.augment)
        if self.pretraining != "none" and self.features != "none":
            wanted = "'none' with features: networks are pre-trained on images themselves"
            validation.fail("pretraining", wanted, self.pretraining)

    def _check_stages(self) -> None:
        shares, total = self.shares, math.fsum(self.shares)
        if not shares or min(shares) <= 0 or not math.isclose(total, 1.0, abs_tol=1e-9):
            validation.fail("shares", "above 0, adding up to 1", shares)
        if len(self.mixup) != len(shares) or min(self.mixup) < 0:
            wanted = f"{len(shares)} numbers, 0 or above, one a stage"
            validation.fail("mixup", wanted, self.mixup)
        if len(shares) > 1 and self.mechanism == "alibi":
            validation.fail("shares", "(1.0,) for alibi, which has one stage", shares)
        if self.mechanism == "alibi" and self.targets == "hard":
            validation.fail("targets", "'soft' or 'debiased' for alibi", self.targets)
        if len(shares) > 1 and self.targets == "debiased":
            validation.fail("targets", "'hard' or 'soft' for several stages", self.targets)

    @property
    def stages(self) -> int:
        """How many."""
        return len(self.shares)

    def event(self, classes: int) -> Event:
        """What all reports together amount to: one report, since each label has but one."""
        if self.mechanism == "alibi":
            return NoisyOneHot(self.epsilon, classes, unit=self.unit).event
        if self.stages == 1:
            return RandomizedResponseEvent(self.epsilon, classes, Neighbours.REPLACE_ONE, self.unit)
        return EpsilonDeltaEvent(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    @property
    def guarantee(self) -> Guarantee:
        """What that promises."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, default in _LATER.items():
            needed = name == "pretraining_epochs" and self.pretraining != "none"
            if plain[name] == default and not needed:
                del plain[name]
        return plain | {
            "shares": list(self.shares), "mixup": list(self.mixup), "options": dict(self.options),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelRecipe:
        """The inverse of :meth:`to_dict`."""
        return cls(**data)
