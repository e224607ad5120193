"""How every teacher is trained: a number of steps that does not ask how many rows it has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sfumato.core import validation
from sfumato.learning.ensembles import Schedule

__all__ = ["TeacherSchedule"]


@dataclass(frozen=True)
class TeacherSchedule:
    """Steps of stochastic gradient descent. All of it is public.

    An epoch is as long as a part has rows, which is private; and a rate that falls with epochs
    would tell every teacher about the longest part. So teachers count steps.

    Attributes:
        steps: of every teacher.
        batch_size: rows of one step of one teacher.
        rate: the learning rate at its highest.
        momentum: of SGD.
        weight_decay: added to the gradient, times the weight.
        decay: "cosine" to 0, or "constant".
        warm_up: the share of all steps in which the rate rises from 0.
        optimizer: "sgd" or "adam".
    """

    steps: int = 500
    batch_size: int = 64
    rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    decay: str = "cosine"
    warm_up: float = 0.05
    optimizer: str = "sgd"

    def __post_init__(self) -> None:
        validation.count("steps", self.steps)
        self.of_ensemble()

    def of_ensemble(self) -> Schedule:
        """The same, as engines and optimizers take it."""
        given = asdict(self)
        del given["steps"]
        return Schedule(epochs=1, **given)

    def rate_at(self, step: int) -> float:
        """The learning rate of a step.

        >>> plan = TeacherSchedule(steps=100, rate=0.4, warm_up=0.0)
        >>> plan.rate_at(0), round(plan.rate_at(50), 6)
        (0.4, 0.2)
        """
        return self.of_ensemble().rate_at(step, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)
