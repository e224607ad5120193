"""A task: everything about a private fit that is public, and what every way of doing it has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, Event, GaussianEvent, LaplaceEvent
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.rounding import at_least_ratio
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.erm.gamma_noise import EuclideanLaplace
from sfumato.learning.erm.losses import Loss
from sfumato.learning.erm.solving import MOST_ROWS
from sfumato.mechanisms.gaussian import Gaussian

__all__ = ["Quadratic", "Task", "Way", "calibrated", "promised"]

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Quadratic:
    """The second-order polynomial that stands for a loss where coefficients are noised.

    l(z; t) ~ constant - <code(t), z> + (bend / 2) ||z||^2. For least squares it is the loss itself.

    Attributes:
        bend: the coefficient of ||z||^2 / 2.
        length: the greatest ||code||.
        length_1: the greatest sum of absolute values of a code.
        apart: the greatest ||code - code'||.
    """

    bend: float
    length: float
    length_1: float
    apart: float


@final
@dataclass(frozen=True)
class Task:
    """What is to be learnt, from how many rows, at what price.

    Attributes:
        loss: of a record.
        records: N, the public number of rows, by which the sum of losses is divided.
        columns: of a row, all of length 1 at most.
        epsilon, delta: to meet; a delta of 0 asks for a pure guarantee.
        neighbours, unit: of the guarantee.
        regularisation: lambda; None for the way's usual one.
        quadratic: the loss's polynomial, where it has one.
    """

    loss: Loss
    records: int
    columns: int
    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    unit: str = "record"
    regularisation: float | None = None
    quadratic: Quadratic | None = None

    def __post_init__(self) -> None:
        validation.count("records", self.records)
        validation.count("columns", self.columns)
        validation.positive("epsilon", self.epsilon)
        validation.delta("delta", self.delta)
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        validation.name("unit", self.unit)
        if self.regularisation is not None:
            validation.positive("regularisation", self.regularisation)

    @property
    def dimension(self) -> int:
        """How many weights there are."""
        return self.columns * self.loss.outputs

    @property
    def noisiness(self) -> float:
        """About the length of noise on all weights, for a sensitivity of 1."""
        if self.delta == 0:
            return self.dimension / self.epsilon
        return math.sqrt(2 * self.dimension * math.log(1.25 / self.delta)) / self.epsilon

    def sensitivity(self, bound: float, dimension: int | None = None) -> Sensitivity:
        """An L2 bound, of this task's relation and unit."""
        size = self.dimension if dimension is None else dimension
        return Sensitivity(bound, Norm.L2, self.neighbours, self.unit, size)


class Way(ABC):
    """One way to do a task privately: its event is known before any row is read."""

    name: ClassVar[str]
    says: ClassVar[str]

    def __init__(self, task: Task) -> None:
        self.task = task
        self.check()

    def admit(self, count: int) -> None:
        """Whether a plan made for N records does for so many rows, where that number is public.

        To be called before a charge; a fit calls it as well. Where the number is private (under
        add/remove) any table is taken.

        Raises:
            ValueError: for more than 4 N rows.
        """
        task = self.task
        if task.neighbours is not Neighbours.ADD_REMOVE and count > MOST_ROWS * task.records:
            raise ValueError(
                f"public_size must be {-(-count // MOST_ROWS)} at least for {count} rows, of which "
                f"there may be {MOST_ROWS} for each declared one, got {task.records}"
            )

    def check(self) -> None:  # noqa: B027
        """Raises ``ValueError`` for a task that is not for this way; most take any."""

    @cached_property
    def regularisation(self) -> float:
        """Lambda: the task's, or the usual one."""
        given = self.task.regularisation
        return self.usual_regularisation if given is None else given

    @property
    @abstractmethod
    def usual_regularisation(self) -> float:
        """As a function of public facts."""

    @property
    @abstractmethod
    def event(self) -> Event:
        """What a fit releases."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Sensitivity and noise, for the record; public."""

    @abstractmethod
    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """(columns, outputs) weights, which may be released.

        A total function: no table leads to an error, but for :meth:`admit`'s.

        Args:
            rows: (n, columns), of length 1 at most.
            targets: as the loss takes them.
            codes: (n, outputs), as the quadratic takes them.
            coins: where noise comes from.
        """

    @property
    def guarantee(self) -> Guarantee:
        """What the event promises, at the task's delta."""
        return promised(self.event, self.task.delta)


def promised(event: Event, delta: float) -> Guarantee:
    """The guarantee of a single release of one of the kinds that ways have."""
    relation, unit = event.relation, event.unit_name
    if isinstance(event, GaussianEvent):
        epsilon = gaussian_epsilon(event.noise_multiplier, delta)
    elif isinstance(event, LaplaceEvent):
        epsilon = at_least_ratio(1.0, event.noise_multiplier)
    else:
        assert isinstance(event, EpsilonDeltaEvent)
        epsilon, delta = event.epsilon, event.delta
    return Guarantee(epsilon, delta, relation, unit, "exact")


def calibrated(task: Task, bound: float) -> Gaussian | EuclideanLaplace:
    """Noise for an L2 sensitivity: normal, or for a delta of 0 of density e^(-||v|| / b)."""
    sensitivity = task.sensitivity(bound)
    if task.delta == 0:
        return EuclideanLaplace.calibrate(sensitivity, epsilon=task.epsilon)
    return Gaussian.calibrate(sensitivity, epsilon=task.epsilon, delta=task.delta)
