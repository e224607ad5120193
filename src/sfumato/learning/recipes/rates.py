"""Learning rates and optimizers, fixed before the run: a schedule never looks at a loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from sfumato.core import validation

__all__ = ["OPTIMIZERS", "Rate", "make_optimizer", "make_scheduler"]

OPTIMIZERS = ("sgd", "adam")


@final
@dataclass(frozen=True)
class Rate:
    """From ``start`` to ``end`` in a straight line over ``epochs``, and ``end`` from then on.

    >>> rate = Rate(0.1, end=0.05, epochs=10)
    >>> [rate.at(step, steps=2000, steps_per_epoch=100) for step in (0, 500, 1500)]
    [0.1, 0.07500000000000001, 0.05]

    Attributes:
        start: the learning rate of the first step.
        end: of the last; the same by default.
        epochs: how long the way takes; the whole run by default.
    """

    start: float
    end: float | None = None
    epochs: float | None = None

    def __post_init__(self) -> None:
        validation.positive("learning rate", self.start)
        if self.end is not None:
            validation.non_negative("last learning rate", self.end)
        if self.epochs is not None:
            validation.positive("epochs of the learning rate", self.epochs)

    def at(self, step: int, steps: int, steps_per_epoch: float) -> float:
        """At ``step``, of which 0 is the first."""
        if self.end is None:
            return self.start
        length = steps if self.epochs is None else self.epochs * steps_per_epoch
        way = min(1.0, step / length)
        return self.start + (self.end - self.start) * way

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rate:
        """The inverse of :meth:`to_dict`."""
        return cls(**data)


def make_optimizer(
    name: str,
    parameters: Iterable[Tensor] | list[dict[str, Any]],
    rate: float,
    momentum: float,
    weight_decay: float,
) -> Optimizer:
    """Torch's optimizer of this name; ``momentum`` is Adam's first moment's decay, too.

    Parameters may come in groups, as torch's optimizers take them.
    """
    if name not in OPTIMIZERS:
        validation.fail("optimizer", f"one of {', '.join(OPTIMIZERS)}", name)
    if not 0 <= validation.non_negative("momentum", momentum) < 1:
        validation.fail("momentum", "below 1", momentum)
    decay = validation.non_negative("weight_decay", weight_decay)
    if name == "adam":
        return Adam(parameters, lr=rate, betas=(momentum, 0.999), weight_decay=decay)
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=decay)


def make_scheduler(
    optimizer: Optimizer, rate: Rate, steps: int, steps_per_epoch: float
) -> LambdaLR | None:
    """Steps once a lot; None for a rate that stays."""
    if rate.end is None:
        return None
    return LambdaLR(optimizer, lambda step: rate.at(step, steps, steps_per_epoch) / rate.start)
