"""A student that labels the rest by itself: FixMatch.

Every step takes labelled inputs, little changed, and unlabelled ones. Where the network is sure of
an unlabelled input that was little changed, its answer becomes the label of the same input, much
changed:

    L = mean CE(y, p(weak(x))) + lambda mean 1[max q >= tau] CE(argmax q, p(strong(u)))

with q = p(weak(u)), from the moving average of the weights, not differentiated. Evaluation is by
that average.

Released labels may be wrong. Labels are smoothed, and from a share of the run on a label counts
only as ``doubted`` where the average, before it has learnt the wrong label by heart, is sure of
another class.

Reference: Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang and Raffel, "FixMatch:
simplifying semi-supervised learning with consistency and confidence", arXiv:2001.07685, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.pate.students.augmenting import strong, weak
from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.data import PublicData
from sfumato.learning.pate.students.learners import (
    Average, Learner, Shuffled, Stateful, cosine, set_rate,
)  # fmt: skip
from sfumato.learning.pate.students.networks import small_cnn
from sfumato.learning.pate.students.spreading import neighbour_graph, public_features, spread_labels

__all__ = ["FixMatch"]


@final
@dataclass(frozen=True)
class FixMatch(Student):
    """FixMatch on a small convolutional network.

    Attributes:
        classes: how many there are.
        steps: of training.
        width: channels of the network's first convolution.
        batch: labelled inputs of a step.
        unlabelled_batch: unlabelled inputs of a step.
        rate: Adam's, at first; it falls along a cosine.
        weight_decay: decoupled from the gradient.
        confidence: tau.
        unlabelled_weight: lambda.
        smoothing: of the released labels.
        doubt_from: the share of steps after which labels are doubted; 1 for never.
        doubted: the weight of a label that the student is sure is wrong.
        average: the moving average's memory.
        strength: of the large changes.
        flips: whether a mirror image is of the same class.
    """

    kind: ClassVar[str] = "fixmatch"
    steps: int = 1500
    width: int = 16
    batch: int = 32
    unlabelled_batch: int = 96
    rate: float = 3e-3
    weight_decay: float = 0.02
    confidence: float = 0.95
    unlabelled_weight: float = 1.0
    smoothing: float = 0.0
    doubt_from: float = 1.0
    doubted: float = 0.0
    average: float = 0.99
    strength: float = 0.5
    labelled_strength: float = 0.3
    align: bool = False
    spread_until: float = 0.4
    rounds: int = 4
    neighbours: int = 6
    labelled_weight: float = 0.2
    flips: bool = False

    def __post_init__(self) -> None:
        self.check()

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """A small convolutional network."""
        return small_cnn(shape, self.classes, self.width)

    def learner(self, data: PublicData, seed: int) -> Learner:
        """The network, its average, and Adam."""
        return _Learner(self, data, seed)


@final
class _Learner(Learner):
    def __init__(self, plan: FixMatch, data: PublicData, seed: int) -> None:
        self.plan, self.data = plan, data
        self.model = plan.network(data.shape).to(data.device, memory_format=torch.channels_last)
        self.average = Average(
            self.model, plan.network(data.shape).to(data.device, memory_format=torch.channels_last), plan.average
        )
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), plan.rate, weight_decay=plan.weight_decay
        )
        self.prior = torch.full((plan.classes,), 1 / plan.classes)
        self.share = self.prior.clone()
        self.guess = self.certain = None
        self.labelled = Shuffled(len(data.labels), plan.batch, seed, 0)
        self.unlabelled = Shuffled(len(data.unlabelled), plan.unlabelled_batch, seed, 1)

    @property
    def parts(self) -> Mapping[str, Stateful]:
        return {"model": self.model, "average": self.average.copy, "optimizer": self.optimizer}

    def step(self, number: int) -> None:
        plan, data = self.plan, self.data
        if number % max(1, int(plan.steps * plan.spread_until / plan.rounds)) == 0 and number < plan.steps * plan.spread_until:
            both = torch.cat([data.labelled, data.unlabelled])
            if number == 0:
                both = public_features(both)
            else:
                with torch.no_grad():
                    both = torch.cat([self.average.copy[:-1](part) for part in both.split(500)])
            lab = torch.cat([data.labels, torch.full((len(data.unlabelled),), -1)])
            g, c = spread_labels(neighbour_graph(both, plan.neighbours), lab, plan.classes)
            from sfumato.data import load_dataset
            print("   respread", number, (g[100:]==torch.tensor(load_dataset("mnist").test[1][:9000])).float().mean().item(), c.mean().item(), flush=True)
            self.guess, self.certain = g[len(data.labels):], c[len(data.labels):]
        rows = self.unlabelled(number)
        asked, others = self.labelled(number), data.unlabelled[rows]
        known, labels = data.labelled[asked], data.labels[asked]
        with torch.no_grad():
            guesses = self.average.copy(weak(torch.cat([known, others]), plan.flips)).softmax(1)
        if plan.align:
            self.share.lerp_(guesses[len(known) :].mean(0), 0.02)
            guesses = guesses * (self.prior / self.share)
            guesses = guesses / guesses.sum(1, keepdim=True)
        sure, guessed = guesses[len(known) :].max(1)
        self.model.train()
        logits = self.model(
            torch.cat([strong(known, plan.flips, plan.labelled_strength), strong(others, plan.flips, plan.strength)])
        )
        first = F.cross_entropy(
            logits[: len(known)], labels, reduction="none", label_smoothing=plan.smoothing
        )
        trust = self._trust(guesses[: len(known)], labels, number)
        second = F.cross_entropy(logits[len(known) :], guessed, reduction="none")
        weight = (sure >= plan.confidence).float()
        if number < plan.spread_until * plan.steps:
            second = F.cross_entropy(logits[len(known) :], self.guess[rows], reduction="none")
            weight = self.certain[rows]
        loss = plan.labelled_weight * (first * trust).mean() + plan.unlabelled_weight * (second * weight).mean()
        set_rate(self.optimizer, cosine(plan.rate, number, plan.steps))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.update(number)

    def _trust(self, guesses: Tensor, labels: Tensor, number: int) -> Tensor:
        """The weight of each released label."""
        plan = self.plan
        if number < plan.doubt_from * plan.steps:
            return torch.ones(len(labels), device=labels.device)
        sure, guessed = guesses.max(1)
        return torch.where((guessed != labels) & (sure >= plan.confidence), plan.doubted, 1.0)

    def result(self) -> nn.Module:
        return self.average.copy
