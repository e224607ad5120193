"""A student that learns from the labelled inputs alone.

The least that any other student must better. With ``features="scattering"`` a linear layer stands
on fixed wavelets, which need no training and no data. On a table's columns it is a linear layer.
(Labels spread over near rows did worse there: classes of people overlap, and neighbours differ.)

Reference: Bruna and Mallat, "Invariant scattering convolution networks", arXiv:1203.1513, section
4, for few labels on fixed wavelets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.features import ScatteringFeatures, transform
from sfumato.learning.pate.students.augmenting import strong
from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.checks import share
from sfumato.learning.pate.students.data import PublicData
from sfumato.learning.pate.students.learners import (
    Average,
    Learner,
    Shuffled,
    Stateful,
    cosine,
    set_rate,
)
from sfumato.learning.pate.students.networks import on_columns, small_cnn

__all__ = ["Supervised"]


@final
@dataclass(frozen=True)
class Supervised(Student):
    """A network, or a linear layer on wavelets or columns, trained on the labelled inputs.

    Attributes:
        classes: how many there are.
        steps: of training.
        features: "none" for a small convolutional network on the images, "scattering" for a linear
            layer on their scattering coefficients. Rows of a table have none.
        width: channels of the network's first convolution.
        hidden: units between a table's columns and the classes; 0 for a linear layer.
        batch: inputs of a step.
        rate: Adam's, at first; it falls along a cosine.
        weight_decay: decoupled from the gradient.
        smoothing: of the labels.
        average: the memory of the weights' moving average, by which the student answers.
        strength: of the changes of images; 0 for none. None are made under "scattering", nor of
            rows of a table.
        flips: whether a mirror image is of the same class.
    """

    kind: ClassVar[str] = "supervised"
    steps: int = 1000
    features: str = "none"
    width: int = 16
    hidden: int = 0
    batch: int = 64
    rate: float = 3e-3
    weight_decay: float = 0.02
    smoothing: float = 0.1
    average: float = 0.99
    strength: float = 0.5
    flips: bool = False

    def __post_init__(self) -> None:
        if self.features not in ("none", "scattering"):
            validation.fail("features", "'none' or 'scattering'", self.features)
        self.check(
            width=validation.count("width", self.width),
            hidden=validation.at_least("hidden", self.hidden, 0),
            batch=validation.at_least("batch", self.batch, 2),
            rate=validation.positive("rate", self.rate),
            weight_decay=validation.non_negative("weight_decay", self.weight_decay),
            smoothing=validation.delta("smoothing", self.smoothing),
            average=validation.open_probability("average", self.average),
            strength=share("strength", self.strength),
        )

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """A small convolutional network, wavelets and a linear layer, or one on columns."""
        return nn.Sequential(*self.fixed_and_trained(shape))

    def fixed_and_trained(self, shape: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
        """What is not trained, and what stands on it."""
        if self.features == "none" and len(shape) == 1:
            return nn.Identity(), on_columns(shape[0], self.classes, self.hidden)
        if self.features == "none":
            return nn.Identity(), small_cnn(shape, self.classes, self.width)
        features = ScatteringFeatures()
        size = math.prod(features.out_shape(shape))
        return features.build(shape), nn.Sequential(nn.Flatten(), nn.Linear(size, self.classes))

    def learner(self, data: PublicData, seed: int) -> Learner:
        """The network, its average, and Adam."""
        return _Learner(self, data, seed)


@final
class _Learner(Learner):
    def __init__(self, plan: Supervised, data: PublicData, seed: int) -> None:
        self.plan, self.labels = plan, data.labels
        fixed, self.model = plan.fixed_and_trained(data.shape)
        whole = nn.Sequential(fixed, self.model).to(data.device)
        self.average = Average(whole, plan.network(data.shape).to(data.device), plan.average)
        # What is fixed is computed once.
        wavelets = plan.features == "scattering"
        self.rows = transform(fixed, data.labelled) if wavelets else data.labelled
        self.changed = not wavelets and plan.strength > 0 and len(data.shape) == 3
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), plan.rate, weight_decay=plan.weight_decay
        )
        self.batches = Shuffled(len(data.labels), plan.batch, seed)

    @property
    def parts(self) -> Mapping[str, Stateful]:
        return {
            "model": self.model, "average": self.average.copy, "optimizer": self.optimizer,
        }  # fmt: skip

    def step(self, number: int) -> None:
        plan, rows = self.plan, self.batches(number)
        inputs = self.rows[rows]
        if self.changed:
            inputs = strong(inputs, plan.flips, plan.strength)
        set_rate(self.optimizer, cosine(plan.rate, number, plan.steps))
        self.model.train()
        loss = F.cross_entropy(
            self.model(inputs), self.labels[rows], label_smoothing=plan.smoothing
        )
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.update(number)

    def result(self) -> nn.Module:
        return self.average.copy
