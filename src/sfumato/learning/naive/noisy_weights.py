"""Noisy weights: train without privacy, then hide the result under Gaussian noise.

    >>> from sfumato.core.randomness import SeededCoins
    >>> way = NoisyWeights(radius=1.0, epsilon=4, delta=1e-5, steps=20)
    >>> way.guarantee
    Guarantee: epsilon 4, delta 1e-05, add or remove one record
    >>> round(way.sigma, 3)
    2.162
    >>> model = torch.nn.Linear(5, 2)
    >>> x, y = torch.randn(200, 5), torch.zeros(200, dtype=torch.long)
    >>> trained, record = way.run(model, x, y, coins=SeededCoins(1))
    >>> record.method, record.private
    ('noisy-weights', False)

How far one record moves the weights that training ends with is not known for any network, so the
only bound that holds is the diameter of a ball they are projected on. It does not shrink with the
number of records, and every weight gets noise of that size.
"""

from __future__ import annotations

import contextlib
import copy
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import GaussianEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.dp_sgd.clipping import ROUNDING
from sfumato.learning.dp_sgd.draws import permutation
from sfumato.learning.naive.examples import (
    check_model,
    check_rows,
    losses,
    released,
    trainable,
    vector_of,
)
from sfumato.mechanisms.gaussian import Gaussian

__all__ = ["Centre", "NoisyWeights", "projected"]


class Centre(StrEnum):
    """Around what the ball lies."""

    ORIGIN = "origin"
    """Weights of norm at most R."""
    INITIAL = "initial"
    """Weights at most R from the initial ones, which are public."""


@final
@dataclass(frozen=True)
class NoisyWeights:
    """The trained weights, projected on a ball, plus Gaussian noise. All fields are public.

    Formal guarantee: (epsilon, delta)-DP under any relation and for any unit, even for all records
    together. Whatever the data, the projected weights lie in a ball of radius R, so any two data
    sets move them by at most 2R in L2 norm; the noise has the least sigma for that sensitivity.
    How the weights were trained does not matter, as long as nothing but the noisy weights gets out.

    Noise is drawn exactly, on a grid; the projection, in float64, is to R (1 - 2^-40).

    Attributes:
        radius: R.
        epsilon, delta: the guarantee to meet, and met.
        steps: of SGD, each on a batch of the rows in random order.
        batch_size: rows in a batch.
        learning_rate, momentum, weight_decay: of SGD.
        centre: "initial" for a ball around the public initial weights, "origin" around 0.
        neighbours: the relation to state.
        unit: the unit to state.

    Reference: Balle and Wang, "Improving the Gaussian mechanism for differential privacy",
    arXiv:1805.06530, theorem 8 (the noise). Output perturbation with a sensitivity that does shrink
    with the data needs a convex loss: Chaudhuri, Monteleoni and Sarwate, arXiv:0912.0071.
    """

    radius: float
    epsilon: float
    delta: float
    steps: int = 1000
    batch_size: int = 128
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    centre: Centre = Centre.INITIAL
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def __post_init__(self) -> None:
        values: dict[str, Any] = {
            "radius": validation.positive("radius", self.radius),
            "epsilon": validation.positive("epsilon", self.epsilon),
            "delta": validation.open_probability("delta", self.delta),
            "steps": validation.count("steps", self.steps),
            "batch_size": validation.count("batch_size", self.batch_size),
            "learning_rate": validation.positive("learning_rate", self.learning_rate),
            "momentum": validation.delta("momentum", self.momentum),
            "weight_decay": validation.non_negative("weight_decay", self.weight_decay),
            "centre": validation.choice("centre", self.centre, Centre),
            "neighbours": Neighbours.parse(self.neighbours),
            "unit": validation.name("unit", self.unit),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        _ = self._mechanism  # or says why there is none

    # --- what it promises -------------------------------------------------------------------------

    @cached_property
    def _mechanism(self) -> Gaussian:
        bound = Sensitivity(2 * self.radius, Norm.L2, self.neighbours, self.unit)
        return Gaussian.calibrate(bound, epsilon=self.epsilon, delta=self.delta)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on every weight."""
        return self._mechanism.sigma

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self._mechanism.event

    @property
    def guarantee(self) -> Guarantee:
        """Exact, at :attr:`delta`."""
        return self._mechanism.guarantee(self.delta)

    # --- the run ----------------------------------------------------------------------------------

    def run(
        self, model: nn.Module, inputs: Tensor, labels: Tensor, *, coins: Coins = SYSTEM
    ) -> tuple[nn.Module, Record]:
        """Trains a copy of ``model`` and releases it; arguments as for :meth:`train`."""
        return self.release(model, self.train(model, inputs, labels, coins=coins), coins=coins)

    def train(
        self, model: nn.Module, inputs: Tensor, labels: Tensor, *, coins: Coins = SYSTEM
    ) -> nn.Module:
        """A copy of ``model`` trained **without privacy**, for :meth:`release` alone to see.

        Args:
            model: gives a row of scores for each input; its initial weights are public.
            inputs: one example a row; private, and so is their number.
            labels: their classes; one that names no class contributes nothing.
            coins: for the order of the rows.

        Raises:
            ValueError: for a model or types that do not fit, before any row is read.
        """
        inputs, labels = check_rows(inputs, labels)
        check_model(model, inputs)
        made_up = inputs.new_zeros((3, *inputs.shape[1:])), labels.new_zeros(3)
        _descend(*self._start(model), *made_up)  # or says why it cannot be trained
        work, optimizer = self._start(model)
        order = torch.zeros(0, dtype=torch.long)
        for _ in range(self.steps):
            if not len(order):
                order = torch.as_tensor(permutation(len(labels), coins))
            rows, order = order[: self.batch_size], order[self.batch_size :]
            # A batch that cannot be used, such as one row for batch normalisation, must not tell.
            with contextlib.suppress(RuntimeError, ValueError):
                _descend(work, optimizer, inputs[rows], labels[rows])
        return work

    def _start(self, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
        work = copy.deepcopy(model)
        optimizer = torch.optim.SGD(
            trainable(work).values(),
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )
        return work, optimizer

    def release(
        self, model: nn.Module, trained: nn.Module, *, coins: Coins = SYSTEM
    ) -> tuple[nn.Module, Record]:
        """``trained``, however it was trained, on the ball and under noise.

        Args:
            model: the initial one, public: where the ball may lie, and everything but the weights.
            trained: a model of the same weights, private.
            coins: where the noise comes from; seeded ones in tests only.
        """
        centre = vector_of(model)
        if self.centre is Centre.ORIGIN:
            centre.zero_()
        moved = projected(vector_of(trained) - centre, self.radius)
        noisy = self._mechanism.perturb(moved.cpu().numpy(), coins=coins)
        out = released(model, centre + torch.as_tensor(noisy, device=centre.device))
        return out, self._record(len(centre), coins)

    def _record(self, dimension: int, coins: Coins) -> Record:
        facts = {
            "arithmetic": "projected in float64, exact Gaussian noise on a grid",
            "parameters": dimension,
            "sigma": self.sigma,
        }
        fields = asdict(self) | {"centre": self.centre.value, "neighbours": self.neighbours.value}
        return Record(
            "noisy-weights", fields, self.event, self.guarantee, coins.private,
            facts=facts, software=versions("torch"),
        )  # fmt: skip


def projected(vector: Tensor, radius: float) -> Tensor:
    """The nearest point of the ball around 0; 0 for a vector that is not finite. In float64."""
    norm = torch.linalg.vector_norm(vector)
    if not torch.isfinite(norm):
        return torch.zeros_like(vector)
    return vector * (radius * (1 - ROUNDING["float64"]) / norm).clamp(max=1)


def _descend(
    work: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor
) -> None:
    """One step; none where there are no rows or the gradient is not finite."""
    if not len(labels):
        return
    weights = list(trainable(work).values())
    with torch.enable_grad():
        loss = losses(work(inputs), labels).mean()
        found = torch.autograd.grad(loss, weights, allow_unused=True)
    if all(bool(torch.isfinite(g).all()) for g in found if g is not None):
        for p, g in zip(weights, found, strict=True):
            p.grad = g
        optimizer.step()
