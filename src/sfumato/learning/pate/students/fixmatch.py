"""A student that labels the rest by itself: FixMatch, started from labels spread over a graph.

The run has two parts. In both, the network learns from public inputs u that are much changed, with
guesses g and weights w for them, besides the labelled inputs x, changed less:

    L = mean_u w CE(g, p(strong(u))) + lambda mean_x t CE(y, p(strong(x)))

First the released labels are spread over near neighbours (see :mod:`.spreading`), which gives g and
w = certainty for every input: at the start on wavelets, and again in every round on the network's
own last hidden layer, which by then is better. Then, as in FixMatch, g = argmax q and
w = 1[max q >= tau], with q the answer of the weights' moving average to the same input, little
changed. A handful of labels is too few for that from the start: the network would soon be sure of
its mistakes. Evaluation is by the moving average.

Released labels may be wrong. In every round but the first a label of which the average is sure that
it should be another is put aside (t = 0, and it is not spread), until the average thinks otherwise.

References: Sohn, Berthelot, Li, Zhang, Carlini, Cubuk, Kurakin, Zhang and Raffel, "FixMatch:
simplifying semi-supervised learning with consistency and confidence", arXiv:2001.07685, section 2;
Iscen, Tolias, Avrithis and Chum, "Label propagation for deep semi-supervised learning",
arXiv:1904.04717, section 4.
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
from sfumato.learning.pate.students.networks import small_cnn
from sfumato.learning.pate.students.spreading import (
    neighbour_graph,
    public_features,
    spread_labels,
)

__all__ = ["FixMatch"]

_AT_A_TIME = 500  # inputs that are looked at for a round


@final
@dataclass(frozen=True)
class FixMatch(Student):
    """FixMatch on a small convolutional network, with a start for very few labels.

    Attributes:
        classes: how many there are, about as frequent as each other.
        steps: of training.
        width: channels of the network's first convolution.
        batch: labelled inputs of a step.
        unlabelled_batch: public inputs of a step, whether asked about or not.
        rate: Adam's, at first; it falls along a cosine.
        weight_decay: decoupled from the gradient.
        labelled_weight: lambda.
        rounds: how often labels are spread; 0 for plain FixMatch.
        spread_until: the share of steps that learn from spread labels.
        neighbours: to which an input is joined.
        confidence: tau.
        doubt: how sure the student must be of another class to put a label aside; 1 for never.
        average: the moving average's memory.
        strength: of the large changes, from 0 to 1; the labelled inputs' are half as large.
        flips: whether a mirror image is of the same class.
    """

    kind: ClassVar[str] = "fixmatch"
    steps: int = 1000
    width: int = 16
    batch: int = 16
    unlabelled_batch: int = 128
    rate: float = 3e-3
    weight_decay: float = 0.02
    labelled_weight: float = 0.05
    rounds: int = 4
    spread_until: float = 0.8
    neighbours: int = 6
    confidence: float = 0.95
    doubt: float = 0.8
    average: float = 0.99
    strength: float = 0.4
    flips: bool = False

    def __post_init__(self) -> None:
        self.check(
            width=validation.count("width", self.width),
            batch=validation.count("batch", self.batch),
            unlabelled_batch=validation.at_least("unlabelled_batch", self.unlabelled_batch, 2),
            rate=validation.positive("rate", self.rate),
            weight_decay=validation.non_negative("weight_decay", self.weight_decay),
            labelled_weight=validation.non_negative("labelled_weight", self.labelled_weight),
            rounds=validation.at_least("rounds", self.rounds, 0),
            spread_until=share("spread_until", self.spread_until),
            neighbours=validation.count("neighbours", self.neighbours),
            confidence=share("confidence", self.confidence),
            doubt=share("doubt", self.doubt),
            average=validation.open_probability("average", self.average),
            strength=share("strength", self.strength),
        )

    @property
    def spreading_steps(self) -> int:
        """Steps that learn from spread labels."""
        return round(self.spread_until * self.steps) if self.rounds else 0

    def begins_round(self, number: int) -> bool:
        """Whether labels are spread before step ``number``.

        >>> plan = FixMatch(steps=100, rounds=3, spread_until=0.6)
        >>> [number for number in range(100) if plan.begins_round(number)]
        [0, 20, 40]
        """
        until, rounds = self.spreading_steps, self.rounds
        return number < until and (number * rounds) // until != ((number - 1) * rounds) // until

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """A small convolutional network."""
        return small_cnn(shape, self.classes, self.width)

    def learner(self, data: PublicData, seed: int) -> Learner:
        """The network, its average, Adam, and the guesses."""
        return _Learner(self, data, seed)


@final
class _Guesses(nn.Module):
    """A class for every input, how certain it is, and which released labels are believed."""

    classes: Tensor
    certainty: Tensor
    believed: Tensor

    def __init__(self, inputs: int, labels: int) -> None:
        super().__init__()
        self.register_buffer("classes", torch.zeros(inputs, dtype=torch.int64))
        self.register_buffer("certainty", torch.zeros(inputs))
        self.register_buffer("believed", torch.ones(labels, dtype=torch.bool))


@final
class _Learner(Learner):
    def __init__(self, plan: FixMatch, data: PublicData, seed: int) -> None:
        self.plan, self.labels = plan, data.labels
        self.inputs = torch.cat([data.labelled, data.unlabelled])
        self.model, self.steady = (self._network(data) for _ in range(2))
        self.average = Average(self.model, self.steady, plan.average)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), plan.rate, weight_decay=plan.weight_decay
        )
        self.guesses = _Guesses(len(self.inputs), len(data.labels)).to(data.device)
        self.labelled = Shuffled(len(data.labels), plan.batch, seed, 0)
        self.all = Shuffled(len(self.inputs), plan.unlabelled_batch, seed, 1)

    def _network(self, data: PublicData) -> nn.Sequential:
        """With channels last, which is quicker."""
        network = small_cnn(data.shape, self.plan.classes, self.plan.width).to(data.device)
        return network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    @property
    def parts(self) -> Mapping[str, Stateful]:
        return {
            "model": self.model, "average": self.steady, "optimizer": self.optimizer,
            "guesses": self.guesses,
        }  # fmt: skip

    def step(self, number: int) -> None:
        plan = self.plan
        if plan.begins_round(number):
            self._spread(first=number == 0)
        asked, rows = self.labelled(number), self.all(number)
        classes, weights = self._targets(rows, number)
        known = strong(self.inputs[asked], plan.flips, plan.strength / 2)
        others = strong(self.inputs[rows], plan.flips, plan.strength)
        self.model.train()
        logits = self.model(torch.cat([others, known]))
        trust = plan.labelled_weight * self.guesses.believed[asked]
        losses = F.cross_entropy(logits, torch.cat([classes, self.labels[asked]]), reduction="none")
        loss = (losses[: len(rows)] * weights).mean() + (losses[len(rows) :] * trust).mean()
        set_rate(self.optimizer, cosine(plan.rate, number, plan.steps))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.update(number)

    @torch.no_grad()
    def _targets(self, rows: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """The guesses g and their weights w."""
        if number < self.plan.spreading_steps:
            return self.guesses.classes[rows], self.guesses.certainty[rows]
        answers = self.steady(weak(self.inputs[rows], self.plan.flips)).softmax(1)
        sure, classes = answers.max(1)
        return classes, (sure >= self.plan.confidence).float()

    @torch.no_grad()
    def _spread(self, first: bool) -> None:
        """Fills the guesses, from wavelets at first and from the last hidden layer later."""
        count = len(self.labels)
        if first:
            features = public_features(self.inputs)
        else:
            hidden = self.steady[:-1]
            features = torch.cat([hidden(part) for part in self.inputs.split(_AT_A_TIME)])
            self._doubt(self.steady[-1](features[:count]).softmax(1))
        known = torch.where(self.guesses.believed, self.labels, -1)
        labels = F.pad(known, (0, len(self.inputs) - count), value=-1)
        graph = neighbour_graph(features, self.plan.neighbours)
        classes, certainty = spread_labels(graph, labels, self.plan.classes)
        self.guesses.classes.copy_(classes)
        self.guesses.certainty.copy_(certainty)

    def _doubt(self, answers: Tensor) -> None:
        """Puts aside the labels that the average is sure are wrong."""
        sure, classes = answers.max(1)
        wrong = (classes != self.labels) & (sure > self.plan.doubt)
        self.guesses.believed.copy_(~wrong)

    def result(self) -> nn.Module:
        return self.steady
