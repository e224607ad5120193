"""PATE-G's student: a discriminator that also classifies, against a generator.

With logits l_1 ... l_K, z = log sum exp l and f the last hidden layer, the discriminator's loss is

    L_D = CE(labelled) - E z(u) / 2 + E softplus(z(u)) / 2 + E softplus(z(G(noise))) / 2

for unlabelled u: the classes together against one more, "generated", whose logit is fixed at 0. The
generator matches features:

    L_G = mean_k (E f_k(u) - E f_k(G(noise)))^2

Evaluation is by the moving average of the discriminator's weights, without its noise.

References: Salimans, Goodfellow, Zaremba, Cheung, Radford and Chen, "Improved techniques for
training GANs", arXiv:1606.03498, sections 3.1 and 5; Papernot, Abadi, Erlingsson, Goodfellow and
Talwar, arXiv:1610.05755, section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.pate.students.base import Student
from sfumato.learning.pate.students.data import PublicData
from sfumato.learning.pate.students.learners import Average, Learner, Shuffled, Stateful, set_rate
from sfumato.learning.pate.students.weight_norm import WeightNormLinear, start_from

__all__ = ["GAN", "discriminator_loss", "feature_matching_loss"]

_HIDDEN = (1000, 500, 250, 250, 250)
_AT_FIRST, _BETWEEN = 0.3, 0.5  # standard deviations of the noise before layers
_NOISE = 100  # dimensions of what the generator starts from
_START = 500  # rows that start the normalised weights


@final
@dataclass(frozen=True)
class GAN(Student):
    """The semi-supervised GAN with feature matching, of fully connected layers.

    The discriminator has hidden layers of 1000, 500, 250, 250 and 250 units, normalised weights and
    Gaussian noise before each layer; the generator goes from 100 uniform numbers through twice 500
    units, softplus and batch normalisation. Inputs of any shape are flattened.

    Attributes:
        classes: how many there are.
        steps: of training, each one of the discriminator and one of the generator.
        batch: rows of each kind in a step.
        rate: Adam's, with beta_1 = 0.5.
        decay_from: the share of steps after which the rate falls to 0 in a straight line.
        average: the moving average's memory.
    """

    kind: ClassVar[str] = "gan"
    steps: int = 6000
    batch: int = 100
    rate: float = 3e-3
    decay_from: float = 0.5
    average: float = 0.999

    def __post_init__(self) -> None:
        share = validation.non_negative("decay_from", self.decay_from)
        if share > 1:
            validation.fail("decay_from", "a share of the steps, from 0 to 1", self.decay_from)
        self.check(
            batch=validation.at_least("batch", self.batch, 2),
            rate=validation.positive("rate", self.rate),
            decay_from=share,
            average=validation.open_probability("average", self.average),
        )

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """The discriminator."""
        return _Discriminator(math.prod(shape), self.classes)

    def learner(self, data: PublicData, seed: int) -> Learner:
        """Both networks, the average and two optimizers."""
        if len(data.unlabelled) < 2:
            wanted = "at least two, or the student 'supervised', which needs none"
            validation.fail("inputs_unlabelled", wanted, len(data.unlabelled))
        return _Learner(self, data, seed)


def discriminator_loss(known: Tensor, labels: Tensor, others: Tensor, made: Tensor) -> Tensor:
    """L_D, from the logits of labelled, unlabelled and generated rows."""
    real, false = others.logsumexp(1), made.logsumexp(1)
    unlabelled = (F.softplus(real) - real).mean() + F.softplus(false).mean()
    return F.cross_entropy(known, labels) + 0.5 * unlabelled


def feature_matching_loss(others: Tensor, made: Tensor) -> Tensor:
    """L_G, from the last hidden layer of unlabelled and generated rows."""
    return (others.mean(0) - made.mean(0)).square().mean()


@final
class _Noise(nn.Module):
    """Gaussian noise while training."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        self.deviation = deviation

    def forward(self, rows: Tensor) -> Tensor:
        return rows + self.deviation * torch.randn_like(rows) if self.training else rows


@final
class _Discriminator(nn.Module):
    """Hidden layers, then logits."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in _HIDDEN:
            layers += [_Noise(_BETWEEN if layers else _AT_FIRST), WeightNormLinear(inputs, width)]
            layers.append(nn.ReLU())
            inputs = width
        self.hidden = nn.Sequential(*layers)
        self.last = nn.Sequential(_Noise(_BETWEEN), WeightNormLinear(inputs, classes, True))

    def features(self, inputs: Tensor) -> Tensor:
        return self.hidden(inputs.flatten(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.features(inputs))


def _generator(outputs: int) -> nn.Sequential:
    """From uniform noise to inputs between 0 and 1."""
    return nn.Sequential(
        nn.Linear(_NOISE, 500, bias=False), nn.BatchNorm1d(500), nn.Softplus(),
        nn.Linear(500, 500, bias=False), nn.BatchNorm1d(500), nn.Softplus(),
        WeightNormLinear(500, outputs, True), nn.Sigmoid(),
    )  # fmt: skip


def _trained(module: nn.Module) -> list[nn.Parameter]:
    return [weight for weight in module.parameters() if weight.requires_grad]


@final
class _Learner(Learner):
    def __init__(self, plan: GAN, data: PublicData, seed: int) -> None:
        self.plan, self.data = plan, data
        size = math.prod(data.shape)
        self.model = _Discriminator(size, plan.classes).to(data.device)
        self.generator = _generator(size).to(data.device)
        first = data.unlabelled[:_START].flatten(1)
        start_from(nn.Sequential(*self.model.hidden, *self.model.last), first)
        copy = _Discriminator(size, plan.classes).to(data.device)
        self.average = Average(self.model, copy, plan.average)
        self.optimizers = {
            name: torch.optim.Adam(_trained(module), plan.rate, (0.5, 0.999), fused=True)
            for name, module in (("model", self.model), ("generator", self.generator))
        }
        self.labelled = Shuffled(len(data.labels), plan.batch, seed, 0)
        self.unlabelled = [Shuffled(len(data.unlabelled), plan.batch, seed, n) for n in (1, 2)]

    @property
    def parts(self) -> Mapping[str, Stateful]:
        optimizers = {f"optimizer of {name}": found for name, found in self.optimizers.items()}
        networks = {"model": self.model, "generator": self.generator, "average": self.average.copy}
        return networks | optimizers

    def step(self, number: int) -> None:
        falling = 1 - self.plan.decay_from
        left = 1 - number / self.plan.steps
        for optimizer in self.optimizers.values():
            set_rate(optimizer, self.plan.rate * min(1.0, left / falling if falling else 1.0))
        self.model.train()
        self._descend("model", self._discriminate(number))
        self.average.update(number)
        self._descend("generator", self._generate(number))

    def _discriminate(self, number: int) -> Tensor:
        asked, size = self.labelled(number), self.plan.batch
        with torch.no_grad():
            made = self._made()
        others = self.data.unlabelled[self.unlabelled[0](number)].flatten(1)
        rows = torch.cat([self.data.labelled[asked].flatten(1), others, made])
        known, real, false = self.model(rows).split(size)
        return discriminator_loss(known, self.data.labels[asked], real, false)

    def _generate(self, number: int) -> Tensor:
        others = self.data.unlabelled[self.unlabelled[1](number)]
        with torch.no_grad():
            wanted = self.model.features(others)
        return feature_matching_loss(wanted, self.model.features(self._made()))

    def _made(self) -> Tensor:
        noise = torch.rand(self.plan.batch, _NOISE, device=self.data.device)
        return self.generator(noise)

    def _descend(self, name: str, loss: Tensor) -> None:
        """A step of one network; the other's gradients are not computed."""
        optimizer = self.optimizers[name]
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = slope
        optimizer.step()

    def result(self) -> nn.Module:
        return self.average.copy
