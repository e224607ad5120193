"""Objective perturbation: minimise an objective that is tilted at random."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, final

import mpmath
import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.randomness import Coins
from sfumato.learning.erm.gamma_noise import EuclideanLaplace, euclidean_draw
from sfumato.learning.erm.objective_privacy import gaussian_tilt, pure_tilt, strength_for
from sfumato.learning.erm.sensitivity import one_step
from sfumato.learning.erm.solving import Accuracy, Objective, least_regularisation, minimise
from sfumato.learning.erm.tasks import Floats, Task, Way
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.sampling import add_gaussian

__all__ = ["ObjectiveTilt"]

_DUST = 1e-3  # of epsilon and delta, for noise that hides how near to the minimiser the solver came
_TYPICAL = 25.0  # a guess at the length of good weights
_VOLUME = 0.15  # of epsilon, at most, for the determinants
_FINEST = 2.0**-29
_FAR = 13.0  # standard deviations that the length of a normal tilt exceeds its root mean square by


@final
class ObjectiveTilt(Way):
    """argmin J + <B, W> / N for random B, and a trace of noise on the result.

    What the exact minimiser promises is in :mod:`~sfumato.learning.erm.objective_privacy`, with
    Lambda = N lambda, for any number of rows. A computed one is within a public distance e of it,
    which also covers that B is rounded (both are held to a public ball first, which matters where
    there are more than 4 N rows): given the exact one, it is a function of the rows whose
    sensitivity is 2 e. Noise for that, at a thousandth of epsilon and delta, makes the pair of both
    (epsilon, delta)-private by adaptive composition, hence what is released (Iyengar, Near, Song,
    Thakkar, Thakurta and Wang, "Towards practical differentially private convex optimization", S&P
    2019, algorithm 1).

    Where lambda is so small that the determinants would take more than 0.15 epsilon, or
    1, it is raised until they do not; that depends on public facts alone.

    The event is opaque. B's length is taken to be within 13 standard deviations of its root mean
    square (40 d + 100 times b for a pure guarantee); otherwise, with a probability below 2^-100,
    the rounding is not covered.
    """

    name: ClassVar[str] = "objective"
    says: ClassVar[str] = "noise in the objective"

    def check(self) -> None:
        """The solver must be able to do it."""
        _ = self.accuracy

    @property
    def usual_regularisation(self) -> float:
        """Where ||B||^2 / (2 N^2 lambda) + lambda ||W||^2 / 2, a bound on the loss, is least."""
        task = self.task
        spread = task.noisiness * one_step(task.neighbours) * task.loss.lipschitz / task.records
        return max(spread / _TYPICAL, least_regularisation(task.loss))

    @cached_property
    def regularisation(self) -> float:
        """Lambda, raised where the determinants ask for it."""
        given = self.task.regularisation
        least = strength_for(self.task.loss, min(1.0, _VOLUME * self._epsilon)) / self.task.records
        return max(least, self.usual_regularisation if given is None else given)

    @property
    def _epsilon(self) -> float:
        return self.task.epsilon * (1 - _DUST)

    @property
    def _strength(self) -> float:
        return self.regularisation * self.task.records * (1 - 2.0**-40)

    @cached_property
    def tilt(self) -> float:
        """The standard deviation of B, or the scale b of its density e^(-||B|| / b)."""
        task, loss = self.task, self.task.loss
        if task.delta == 0:
            return pure_tilt(loss, task.neighbours, self._strength, self._epsilon)
        delta = task.delta * (1 - _DUST)
        return gaussian_tilt(loss, task.neighbours, self._strength, self._epsilon, delta)

    @cached_property
    def accuracy(self) -> Accuracy:
        """Of the solver, for tilts that are not absurdly long."""
        task = self.task
        size = 40 * task.dimension + 100 if task.delta == 0 else math.sqrt(task.dimension) + _FAR
        return Accuracy(
            task.loss, task.records, task.columns, self.regularisation, self.tilt * size
        )

    @property
    def distance(self) -> float:
        """From the exact minimiser: the solver's, and what rounding B amounts to."""
        rounded = _FINEST * self.tilt * self.task.dimension
        return self.accuracy.distance + rounded / (self.task.records * self.regularisation)

    @cached_property
    def dust(self) -> Gaussian | EuclideanLaplace:
        """The noise that hides where within the distance a result is."""
        task: Task = self.task
        known = task.sensitivity(2 * self.distance)
        if task.delta == 0:
            return EuclideanLaplace.calibrate(known, epsilon=_DUST * task.epsilon)
        share = _DUST * task.epsilon
        return Gaussian.calibrate(known, epsilon=share, delta=_DUST * task.delta)

    @property
    def event(self) -> EpsilonDeltaEvent:
        """Opaque."""
        task = self.task
        return EpsilonDeltaEvent(task.epsilon, task.delta, task.neighbours, task.unit)

    @property
    def facts(self) -> dict[str, Any]:
        """Of the tilt and the trace of noise."""
        return {
            "noise": "euclidean laplace" if self.task.delta == 0 else "gaussian",
            "noise_scale": self.tilt,
            "noise_on": "the gradient of the sum of losses",
            "determinants": self.task.loss.log_volume(self._strength),
            "last_noise_scale": getattr(self.dust, "sigma", getattr(self.dust, "scale", None)),
            "solved_within": self.distance,
            "arithmetic": "released on a public grid, noise exact but for 2^-100",
        }

    def fit(self, rows: Floats, targets: NDArray[Any], codes: Floats, coins: Coins) -> Floats:
        """The minimiser of a tilted objective."""
        self.admit(len(rows))
        tilted = Objective(self.accuracy, rows, targets, self._draw(coins))
        return np.asarray(self.dust.perturb(minimise(tilted), coins=coins))

    def _draw(self, coins: Coins) -> Floats:
        shape = (self.task.columns, self.task.loss.outputs)
        if self.task.delta == 0:
            drawn = euclidean_draw(self.task.dimension, coins)
            with mpmath.workprec(128):
                return np.array([float(self.tilt * one) for one in drawn]).reshape(shape)
        grid = math.ldexp(1.0, math.frexp(self.tilt * _FINEST)[1] - 1)
        return add_gaussian(np.zeros(shape), self.tilt, grid, coins)
