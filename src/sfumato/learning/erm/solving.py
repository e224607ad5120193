"""The minimiser of a regularised mean loss, to a public accuracy that is reached on every table.

    J(W) = (1/N) sum_i l(x_i W; t_i) + (lambda/2) ||W||^2 + <B, W> / N

N is the public normaliser, B the tilt of objective perturbation (0 for the others).

Privacy proofs are about the exact minimiser W*. J is lambda-strongly convex, so that a point with
||grad J(W)|| <= tau is within tau / lambda of it; that distance enters the sensitivity. What would
break the promise is a solver that reaches tau on most tables: an error, a warning or a worse answer
on the others tells of the rows. So :func:`minimise` *always* returns a point with a gradient that
small:

1. Newton's method, for a fixed number of steps at most. Its result is taken if the gradient there,
   as computed, is at most tau. That holds or does not; if it holds the claim is true by
   inspection.
2. Otherwise Nesterov's accelerated descent from 0 for T steps, T a public number. J is L-smooth
   with L = beta r + lambda (r the most rows that are allowed for, over N), and after T steps

       J(W_T) - J(W*) <= (L + lambda)/2 ||W*||^2 (1 - sqrt(lambda/L))^T,

   with a bound on ||W*|| known beforehand (:attr:`Accuracy.farthest`), and ||grad J||^2 <=
   2 L (J - J*). T is the least number for which that gives tau.

Either way the result is within the stated distance of W*, for every table, and nothing but the time
it takes depends on which way it was (the time it takes is not hidden; see the threat model).

Rounding: sums over rows are made in blocks, so that a computed gradient is off by at most
:attr:`Accuracy.rounding`, a public number as well, for tables of up to 4 N rows;
:attr:`Accuracy.gradient` is tau and that rounding together. (The theorem of the second stage is
about exact arithmetic: there the margin between tau and rounding stands for what rounding adds.)

References: Nesterov, "Introductory lectures on convex optimization" (2004), theorem 2.2.3; Higham,
"Accuracy and stability of numerical algorithms" (2002), section 3.1, for sums of products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.learning.erm.losses import Loss

__all__ = ["MOST_ROWS", "Accuracy", "Objective", "minimise"]

Floats = NDArray[np.float64]

MOST_ROWS = 4
"""Rows for each declared one for which rounding is bounded."""

_SHARE = 1e-6  # of one record's influence G / N on the gradient: what tau is by itself
_BLOCK = 1024
_NEWTON_STEPS = 80
_HALVINGS = 40
_DIRECT = 400  # weights up to which Newton's equation is solved by factorisation
_UNIT = 2.0**-52


@final
@dataclass(frozen=True)
class Accuracy:
    """How near to the minimiser a result is, whatever the rows are. All of it is public.

    Attributes:
        loss: of each record.
        records: N.
        columns: of a row as learnt from.
        regularisation: lambda.
        tilt: an upper bound on ||B||.
    """

    loss: Loss
    records: int
    columns: int
    regularisation: float
    tilt: float = 0.0

    @property
    def farthest(self) -> float:
        """An upper bound on ||W*|| = r: J(W*) <= J(0) says lambda r^2 / 2 - r ||B||/N <= J(0)."""
        tilt, weak = self.tilt / self.records, self.regularisation
        return (tilt + math.sqrt(tilt**2 + 2 * weak * MOST_ROWS * self.loss.at_zero)) / weak

    @property
    def rounding(self) -> float:
        """By how much a computed gradient may be off.

        The sum over a row's columns, a slope, the sum over a block and the sum of blocks err by at
        most so many units of the last place each, relative to the sums of absolute values.
        """
        blocks = _BLOCK + MOST_ROWS * self.records / _BLOCK + 64
        slope = self.loss.smoothness * self.farthest * (self.columns + 64)
        rows = MOST_ROWS * (self.loss.lipschitz * blocks + slope)
        rest = self.regularisation * self.farthest + self.tilt / self.records
        return 2 * _UNIT * (rows + 8 * rest)

    @property
    def target(self) -> float:
        """Tau: a computed gradient that is as short as this ends the search."""
        return max(_SHARE * self.loss.lipschitz / self.records, 2 * self.rounding)

    @property
    def gradient(self) -> float:
        """The true gradient at the result is no longer than this."""
        return self.target + self.rounding

    @property
    def distance(self) -> float:
        """The result is within this of the minimiser."""
        return self.gradient / self.regularisation


@final
class Objective:
    """J, its gradient and its curvature, on private rows.

    Args:
        accuracy: the public part.
        rows: (n, columns), of length 1 at most each.
        targets: as the loss takes them.
        tilt: B, (columns, outputs); None for 0.
    """

    def __init__(
        self, accuracy: Accuracy, rows: Floats, targets: NDArray[Any], tilt: Floats | None = None
    ) -> None:
        self.accuracy, self.rows, self.targets = accuracy, rows, targets
        self.shape = (accuracy.columns, accuracy.loss.outputs)
        self.tilt = np.zeros(self.shape) if tilt is None else tilt

    def _blocks(self) -> list[tuple[Floats, NDArray[Any]]]:
        starts = range(0, len(self.rows), _BLOCK)
        return [(self.rows[i : i + _BLOCK], self.targets[i : i + _BLOCK]) for i in starts]

    def value(self, weights: Floats) -> float:
        """J(W)."""
        a = self.accuracy
        total = sum(float(a.loss.values(x @ weights, t).sum()) for x, t in self._blocks())
        linear = float((self.tilt * weights).sum())
        return (total + linear) / a.records + a.regularisation / 2 * float((weights**2).sum())

    def gradient(self, weights: Floats) -> Floats:
        """The gradient of J at W."""
        a, total = self.accuracy, self.tilt.copy()
        for x, t in self._blocks():
            total += x.T @ a.loss.slopes(x @ weights, t)
        return total / a.records + a.regularisation * weights

    def newton_step(self, weights: Floats, gradient: Floats) -> Floats:
        """The solution S of (curvature of J at W) S = gradient; near it for many weights."""
        a = self.accuracy
        bends = [(x, a.loss.curvatures(x @ weights, t)) for x, t in self._blocks()]
        if weights.size <= _DIRECT:
            return self._factorised(bends, gradient)

        def bent(step: Floats) -> Floats:
            total = np.zeros_like(step)
            for x, c in bends:
                total += x.T @ np.einsum("nij,nj->ni", c, x @ step)
            return total / a.records + a.regularisation * step

        return _conjugate_gradients(bent, gradient)

    def _factorised(self, bends: list[tuple[Floats, Floats]], gradient: Floats) -> Floats:
        d, m = self.shape
        whole = np.zeros((d, m, d, m))
        for x, c in bends:
            for i in range(m):
                for j in range(i, m):
                    part = x.T @ (x * c[:, i, j, None])
                    whole[:, i, :, j] += part
                    if i != j:
                        whole[:, j, :, i] += part
        matrix = whole.reshape(d * m, d * m) / self.accuracy.records
        matrix[np.diag_indices(d * m)] += self.accuracy.regularisation
        solved = np.linalg.solve(matrix, gradient.ravel())
        return np.asarray(solved, dtype=np.float64).reshape(d, m)


def minimise(objective: Objective) -> Floats:
    """Weights at which the gradient of J is at most ``accuracy.gradient`` long, on every table."""
    found = _newton(objective)
    return _accelerated(objective) if found is None else found


def _newton(objective: Objective) -> Floats | None:
    """Newton's method with halved steps from 0; None where it does not get to the target."""
    target = objective.accuracy.target
    weights = np.zeros(objective.shape)
    gradient, value = objective.gradient(weights), objective.value(weights)
    for _ in range(_NEWTON_STEPS):
        if np.linalg.norm(gradient) <= target:
            return weights
        try:
            step = objective.newton_step(weights, gradient)
        except np.linalg.LinAlgError:  # rows that make it singular to the last digit
            return None
        weights, value = _shortened(objective, weights, value, step, gradient)
        gradient = objective.gradient(weights)
    return weights if np.linalg.norm(gradient) <= target else None


def _shortened(
    objective: Objective, weights: Floats, value: float, step: Floats, gradient: Floats
) -> tuple[Floats, float]:
    """Weights after the step, halved until J falls as it should."""
    slope, share = float((step * gradient).sum()), 1.0
    moved, reached = weights - step, objective.value(weights - step)
    for _ in range(_HALVINGS):
        if reached <= value - 1e-4 * share * slope + 1e-13 * (1 + abs(value)):
            break
        share /= 2
        moved = weights - share * step
        reached = objective.value(moved)
    return moved, reached


def _conjugate_gradients(bent: Any, wanted: Floats) -> Floats:
    """Conjugate gradients, to a tenth of the length at first and ever more near the end."""
    step, rest = np.zeros_like(wanted), wanted.copy()
    direction, square = rest.copy(), float((rest**2).sum())
    enough = square * min(0.01, square)
    for _ in range(wanted.size):
        if square <= enough:
            break
        image = bent(direction)
        share = square / float((direction * image).sum())
        step += share * direction
        rest -= share * image
        before, square = square, float((rest**2).sum())
        direction = rest + square / before * direction
    return step


def accelerated_steps(accuracy: Accuracy) -> int:
    """T, for which the theorem gives a gradient of tau; public."""
    weak = accuracy.regularisation
    steep = MOST_ROWS * accuracy.loss.smoothness + weak
    wanted = accuracy.target**2 / (2 * steep)
    begun = (steep + weak) / 2 * accuracy.farthest**2
    rate = -math.log1p(-math.sqrt(weak / steep))
    return max(1, math.ceil(math.log(max(1.0, begun / wanted)) / rate))


def _accelerated(objective: Objective) -> Floats:
    """Nesterov's descent with constant momentum, for as many steps as were fixed beforehand."""
    accuracy = objective.accuracy
    weak = accuracy.regularisation
    steep = MOST_ROWS * accuracy.loss.smoothness + weak
    ratio = math.sqrt(weak / steep)
    momentum = (1 - ratio) / (1 + ratio)
    weights = ahead = np.zeros(objective.shape)
    for _ in range(accelerated_steps(accuracy)):
        moved = ahead - objective.gradient(ahead) / steep
        ahead = moved + momentum * (moved - weights)
        weights = moved
    return weights
