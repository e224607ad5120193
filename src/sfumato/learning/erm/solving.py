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
2. Otherwise Nesterov's accelerated descent from 0 for T steps. J is L-smooth with L = beta r +
   lambda, r the rows there are over N, or 4 if that is more, and after T steps

       J(W_T) - J(W*) <= (L + lambda)/2 ||W*||^2 (1 - sqrt(lambda/L))^T,

   with a bound on ||W*|| known beforehand (:meth:`Accuracy.reach`), and ||grad J||^2 <= 2 L
   (J - J*). T is the least number for which that gives tau / 2. The gradient is looked at as
   before; if it is longer, so that rounding was in the way, T more steps are made.
3. If that does not do either, everything is done again with twice as many digits, and so on. With
   enough of them the theorem's steps are followed as nearly as one likes, so this ends.

Either way the result is within the stated distance of W*, for every table, and nothing but the time
it takes depends on which way it was (the time it takes is not hidden; see the threat model).

Rounding: a gradient as computed is off by at most tau / 2, whatever the number n of rows. Sums are
made in blocks, and the digits are chosen by a bound (:meth:`Accuracy.rounding_of`) that grows with
n / N: double precision does for up to 4 N rows, by the choice of tau; many more take numpy's long
floating point or mpmath's. Under add/remove n is private, and only the time depends on it.

W* itself can be long where there are far more rows than declared. What is returned is therefore
held to a ball around 0 whose radius is public (:attr:`Accuracy.farthest`, inside which W* is for
all tables of up to 4 N rows): two points come no further apart by that, so no claim suffers, and a
result can be rounded to double precision at a public price.

References: Nesterov, "Introductory lectures on convex optimization" (2004), theorem 2.2.3; Higham,
"Accuracy and stability of numerical algorithms" (2002), section 3.1, for sums of products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import mpmath
import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.learning.erm.losses import Loss

__all__ = ["MOST_ROWS", "Accuracy", "Objective", "least_regularisation", "minimise"]

Floats = NDArray[np.float64]

MOST_ROWS = 4
"""Rows for each declared one up to which double precision is enough."""

MOST_STEPS = 10**6
"""The most steps of accelerated descent that a plan may need."""

_SHARE = 1e-6  # of one record's influence G / N on the gradient: what tau is by itself
_BLOCK = 1024
_NEWTON_STEPS = 80
_HALVINGS = 40
_DIRECT = 400  # weights up to which Newton's equation is solved by factorisation
_DOUBLE = 53
_UNIT = 2.0**-52
_LONG = 64 if np.finfo(np.longdouble).nmant >= 63 and np.finfo(np.longdouble).nmant != 105 else 53


def least_regularisation(loss: Loss) -> float:
    """A lambda that is solved for in :data:`MOST_STEPS`; no usual one is less."""
    return 1e-7 * loss.smoothness


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

    Raises:
        ValueError: for a lambda so small that the solver could take more than :data:`MOST_STEPS`.
    """

    loss: Loss
    records: int
    columns: int
    regularisation: float
    tilt: float = 0.0

    def __post_init__(self) -> None:
        steps = accelerated_steps(self)
        if steps > MOST_STEPS or self.gradient / self.regularisation > self.farthest:
            validation.fail(
                "regularisation",
                f"greater: it could take {steps} steps to solve for, of {MOST_STEPS} allowed",
                self.regularisation,
            )

    def reach(self, ratio: float) -> float:
        """An upper bound on ||W*|| = r: J(W*) <= J(0) says lambda r^2 / 2 - r ||B||/N <= J(0).

        Args:
            ratio: n / N at most.
        """
        tilt, weak = self.tilt / self.records, self.regularisation
        return (tilt + math.sqrt(tilt**2 + 2 * weak * ratio * self.loss.at_zero)) / weak

    @property
    def farthest(self) -> float:
        """The reach of up to 4 N rows, to which results are held."""
        return self.reach(MOST_ROWS)

    def rounding_of(self, ratio: float, unit: float) -> float:
        """By how much a gradient may be off that is computed no further than twice the reach.

        A slope, the sum over a block and the sum of blocks err by at most so many units in the last
        place each, relative to the sums of absolute values; so do the other terms.
        """
        radius = 2 * self.reach(ratio)
        sums = self.loss.lipschitz * (_BLOCK + ratio * self.records / _BLOCK + 8)
        rows = ratio * (sums + self.loss.rounding(self.columns, radius))
        rest = self.regularisation * radius + self.tilt / self.records
        return 2 * unit * (rows + 8 * rest)

    @property
    def rounding(self) -> float:
        """That of up to 4 N rows in double precision."""
        return self.rounding_of(MOST_ROWS, _UNIT)

    @property
    def target(self) -> float:
        """Tau: a computed gradient that is as short as this ends the search."""
        return max(_SHARE * self.loss.lipschitz / self.records, 2 * self.rounding)

    def bits(self, ratio: float) -> int:
        """How many binary digits make the rounding tau / 2 at most."""
        excess = self.rounding_of(ratio, _UNIT) / (self.target / 2)
        return _DOUBLE + max(0, math.ceil(math.log2(excess)))

    @property
    def gradient(self) -> float:
        """The true gradient at the solver's end is no longer than this."""
        return 1.5 * self.target * (1 + 2.0**-20)

    @property
    def distance(self) -> float:
        """The result is within this of the minimiser (both held to the ball)."""
        held = (self.columns * self.loss.outputs + 16) * _UNIT * self.farthest
        return self.gradient / self.regularisation + held

    def held(self, weights: Any) -> Floats:
        """The nearest weights in the ball, in double precision."""
        length = _length(weights)
        inside = weights * (self.farthest / length) if length > self.farthest else weights
        return inside.astype(np.float64)


@final
class Objective:
    """J, its gradient and its curvature, on private rows.

    Args:
        accuracy: the public part.
        rows: (n, columns), of length 1 at most each.
        targets: as the loss takes them.
        tilt: B, (columns, outputs); None for 0.
        bits: of the arithmetic in which gradients are computed, and slopes in them.
    """

    def __init__(
        self,
        accuracy: Accuracy,
        rows: Floats,
        targets: NDArray[Any],
        tilt: Floats | None = None,
        bits: int = _DOUBLE,
    ) -> None:
        self.accuracy, self.rows, self.targets, self.bits = accuracy, rows, targets, bits
        self.shape = (accuracy.columns, accuracy.loss.outputs)
        self.tilt = np.zeros(self.shape) if tilt is None else tilt

    @property
    def ratio(self) -> float:
        """Of rows to declared ones, 4 at least. Private if it is more."""
        return max(float(MOST_ROWS), len(self.rows) / self.accuracy.records)

    def with_bits(self, bits: int) -> Objective:
        """The same in another arithmetic; mpmath's precision must be set to use it."""
        return Objective(self.accuracy, self.rows, self.targets, self.tilt, bits)

    def numbers(self, values: Any) -> Any:
        """These, in the arithmetic."""
        if self.bits <= _DOUBLE:
            return np.asarray(values, dtype=np.float64)
        if self.bits <= _LONG:
            return np.asarray(values, dtype=np.longdouble)
        return np.asarray(np.frompyfunc(mpmath.mp.convert, 1, 1)(values), dtype=object)

    def _blocks(self) -> list[tuple[Floats, NDArray[Any]]]:
        starts = range(0, len(self.rows), _BLOCK)
        return [(self.rows[i : i + _BLOCK], self.targets[i : i + _BLOCK]) for i in starts]

    def value(self, weights: Floats) -> float:
        """J(W), in double precision."""
        a, weights = self.accuracy, weights.astype(np.float64)
        total = sum(float(a.loss.values(x @ weights, t).sum()) for x, t in self._blocks())
        linear = float((self.tilt * weights).sum())
        return (total + linear) / a.records + a.regularisation / 2 * float((weights**2).sum())

    def gradient(self, weights: Floats) -> Floats:
        """The gradient of J at W."""
        a, weights = self.accuracy, self.numbers(weights)
        total = self.numbers(np.zeros(self.shape))
        for x, t in self._blocks():
            rows = self.numbers(x)
            total += rows.T @ self.numbers(a.loss.slopes(rows @ weights, t))
        return (total + self.tilt) / a.records + a.regularisation * weights

    def newton_step(self, weights: Floats, gradient: Floats) -> Floats:
        """The solution S of (curvature of J at W) S = gradient; near it for many weights."""
        a = self.accuracy
        weights, gradient = weights.astype(np.float64), gradient.astype(np.float64)
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
    """Weights within ``accuracy.distance`` of the minimiser (held to the ball), on every table."""
    return objective.accuracy.held(_solved(objective))


def _solved(objective: Objective) -> Any:
    """Weights at which the gradient of J is at most ``accuracy.gradient`` long, in any digits."""
    accuracy, start = objective.accuracy, np.zeros(objective.shape)
    bits = accuracy.bits(objective.ratio)
    if bits > _DOUBLE:  # as near as double precision gets, to begin with
        rough = _newton(objective, start, 2 * accuracy.rounding_of(objective.ratio, _UNIT))
        start = start if rough is None else rough
    while True:
        finer = objective.with_bits(bits)
        with mpmath.workprec(bits + 8):
            found = _newton(finer, start)
            if found is None:
                found = _accelerated(finer)
            if found is not None:
                return found
        bits *= 2


def _length(values: Any) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


def _ended(objective: Objective, weights: Floats, gradient: Floats, target: float) -> bool:
    """Whether the gradient is short enough, at weights for which its rounding is bounded."""
    near = _length(weights) <= 2 * objective.accuracy.reach(objective.ratio)
    return near and _length(gradient) <= target


def _newton(
    objective: Objective, start: Floats | None = None, target: float | None = None
) -> Floats | None:
    """Newton's method with halved steps; None where it does not get to the target."""
    target = objective.accuracy.target if target is None else target
    weights = objective.numbers(np.zeros(objective.shape) if start is None else start)
    gradient, value = objective.gradient(weights), objective.value(weights)
    for _ in range(_NEWTON_STEPS):
        if _ended(objective, weights, gradient, target):
            return weights
        try:
            step = objective.newton_step(weights, gradient)
        except np.linalg.LinAlgError:  # rows that make it singular to the last digit
            return None
        weights, value = _shortened(objective, weights, value, step, gradient)
        gradient = objective.gradient(weights)
    return weights if _ended(objective, weights, gradient, target) else None


def _shortened(
    objective: Objective, weights: Floats, value: float, step: Floats, gradient: Floats
) -> tuple[Floats, float]:
    """Weights after the step, halved until J falls as it should."""
    slope, share = float((step * gradient.astype(np.float64)).sum()), 1.0
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


def _steepest(accuracy: Accuracy, ratio: float) -> float:
    """L."""
    return ratio * accuracy.loss.smoothness + accuracy.regularisation


def accelerated_steps(accuracy: Accuracy, ratio: float = MOST_ROWS) -> int:
    """T, for which the theorem gives a gradient of tau / 2; public for up to 4 N rows."""
    weak, steep = accuracy.regularisation, _steepest(accuracy, ratio)
    wanted = (accuracy.target / 2) ** 2 / (2 * steep)
    if not wanted:  # below what floating point can tell from 0: no number of steps will do
        return MOST_STEPS + 1
    begun = (steep + weak) / 2 * accuracy.reach(ratio) ** 2
    rate = -math.log1p(-math.sqrt(weak / steep))
    return max(1, math.ceil(math.log(max(1.0, begun / wanted)) / rate))


def _accelerated(objective: Objective) -> Floats | None:
    """Nesterov's descent with constant momentum; None if rounding keeps it from the target."""
    accuracy, ratio = objective.accuracy, objective.ratio
    steep = _steepest(accuracy, ratio)
    root = math.sqrt(accuracy.regularisation / steep)
    momentum = (1 - root) / (1 + root)
    weights = objective.numbers(np.zeros(objective.shape))
    for _ in range(2):
        ahead = weights
        for _ in range(accelerated_steps(accuracy, ratio)):
            moved = ahead - objective.gradient(ahead) / steep
            ahead = moved + momentum * (moved - weights)
            weights = moved
        if _ended(objective, weights, objective.gradient(weights), accuracy.target):
            return weights
    return None
