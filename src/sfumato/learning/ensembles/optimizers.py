"""Updates of stacked weights: the same for all models, in one operation for each weight."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from sfumato.learning.ensembles.schedule import Schedule
from sfumato.learning.ensembles.stacking import Weights

__all__ = ["Adam", "Momentum", "Optimizer", "make_optimizer"]


class Optimizer(Protocol):
    """Changes weights in place, and keeps its state in tensors that are stacked like them."""

    state: dict[str, Tensor]

    def update(self, weights: Weights, gradients: Weights, rate: Tensor, active: Tensor) -> None:
        """One step of every model that is active (1, else 0) at rate ``rate``."""
        ...


def make_optimizer(schedule: Schedule, weights: Weights) -> Optimizer:
    """The schedule's."""
    return (Adam if schedule.optimizer == "adam" else Momentum)(schedule, weights)


class Momentum:
    """v <- m v + g + d w, w <- w - rate v, as ``torch.optim.SGD``; v is kept if m is not 0."""

    def __init__(self, schedule: Schedule, weights: Weights) -> None:
        self.momentum, self.weight_decay = schedule.momentum, schedule.weight_decay
        kept = weights if self.momentum else {}
        self.state = {name: torch.zeros_like(weight) for name, weight in kept.items()}

    def update(self, weights: Weights, gradients: Weights, rate: Tensor, active: Tensor) -> None:
        """See the class."""
        for name, weight in weights.items():
            on = _like(active, weight)
            speed = gradients[name] + self.weight_decay * weight
            if self.momentum:
                kept = self.state[name]
                speed = kept.add_(on * (speed + (self.momentum - 1) * kept))
            weight.sub_(rate * on * speed)


class Adam:
    """``torch.optim.Adam`` with weight decay added to the gradient."""

    _BETAS, _TINY = (0.9, 0.999), 1e-8

    def __init__(self, schedule: Schedule, weights: Weights) -> None:
        self.weight_decay = schedule.weight_decay
        some = next(iter(weights.values()))
        self.state = {"steps": torch.zeros(len(some), device=some.device)}
        for name, weight in weights.items():
            self.state[f"first.{name}"] = torch.zeros_like(weight)
            self.state[f"second.{name}"] = torch.zeros_like(weight)

    def update(self, weights: Weights, gradients: Weights, rate: Tensor, active: Tensor) -> None:
        """See the class."""
        (slow, slower), steps = self._BETAS, self.state["steps"]
        steps.add_(active)
        taken = steps.clamp(min=1)
        for name, weight in weights.items():
            on, count = _like(active, weight), _like(taken, weight)
            push = gradients[name] + self.weight_decay * weight
            first, second = self.state[f"first.{name}"], self.state[f"second.{name}"]
            first.add_(on * (1 - slow) * (push - first))
            second.add_(on * (1 - slower) * (push.square() - second))
            size = (second / (1 - slower**count)).sqrt() + self._TINY
            weight.sub_(rate * on * first / (1 - slow**count) / size)


def _like(each: Tensor, weight: Tensor) -> Tensor:
    """A number for each model, in the shape that multiplies a stacked weight."""
    return each.view(-1, *[1] * (weight.dim() - 1))
