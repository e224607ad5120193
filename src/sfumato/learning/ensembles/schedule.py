"""How every model of an ensemble is trained."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from sfumato.core import validation

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """Epochs of stochastic gradient descent.

    Attributes:
        epochs: passes of each model over its rows.
        batch_size: rows of one step of one model.
        rate: the learning rate at its highest.
        momentum: of SGD.
        weight_decay: added to the gradient, times the weight.
        decay: "cosine" to 0, or "constant".
        warm_up: the share of all steps in which the rate rises from 0.
        optimizer: "sgd" or "adam".
    """

    epochs: int = 20
    batch_size: int = 128
    rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay: str = "cosine"
    warm_up: float = 0.05
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        validation.count("epochs", self.epochs)
        validation.count("batch_size", self.batch_size)
        validation.positive("rate", self.rate)
        validation.non_negative("momentum", self.momentum)
        validation.non_negative("weight_decay", self.weight_decay)
        if self.decay not in ("cosine", "constant"):
            validation.fail("decay", "'cosine' or 'constant'", self.decay)
        if not 0 <= self.warm_up < 1:
            validation.fail("warm_up", "a share of the steps, 0 or more and below 1", self.warm_up)
        if self.optimizer not in ("sgd", "adam"):
            validation.fail("optimizer", "'sgd' or 'adam'", self.optimizer)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of one of so many steps.

        >>> plan = Schedule(rate=0.4, warm_up=0.0)
        >>> plan.rate_at(0, 100), round(plan.rate_at(50, 100), 6)
        (0.4, 0.2)
        """
        warm = round(self.warm_up * steps)
        if step < warm:
            return self.rate * (step + 1) / (warm + 1)
        if self.decay == "constant":
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)
