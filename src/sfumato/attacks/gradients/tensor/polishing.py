"""Polishing: from the tensor attack's estimate to the inputs that fit the gradient best.

What the attacker sees is what the tensor attack sees: the public hidden weights w_j, and one number
a unit,

    g_j = sum_i r_i sigma(w_j.x_i) + noise.

Means over units make the tensor attack independent of a start, at an error of order sqrt(d / m)
that is there without any noise. It ends close enough for least squares to go on:

    minimise  C(x, r) = 1/2 sum_j v_j (g_j - sum_i r_i sigma(w_j.x_i))^2        over |x_i| = 1 and r

in B (d + 1) unknowns from m numbers. First the residuals alone, a linear problem; then steps of
Levenberg and Marquardt,

    (J'VJ + lambda D) step = J'V (g - fitted),

where J has r_i sigma'(w_j.x_i) (I - x_i x_i') w_j for the inputs (the projection only where lengths
are kept at 1) and sigma(w_j.x_i) for the residuals, D is the diagonal of J'VJ, and lambda is raised
until the cost falls: what comes out never fits worse than what went in. Factors on the gradient
(from clipping it, or the 1 / (1 - p) of dropout) and sums over local steps go into the residuals.

*Weights* v_j say how much a number is worth: 0 for a unit that was not seen, 1 / variance where
noise differs. *Pruned* numbers are not worth nothing: that they are below the least that is left in
size bounds them, and only what a fit has beyond that bound counts against it. *Residuals of a known
size* (before training, that of a label) leave only inputs to be found: under much noise that keeps
two inputs from becoming one with residuals that cancel.

Without noise the inputs come out exactly, so long as enough numbers are left. With normal noise of
standard deviation s this is maximum likelihood, and to first order

    E mean_i |x^_i - x_i|^2 = s^2 / B * trace of the inputs' block of (J'J)^+,

:func:`polished_error`: the bound of Cramér and Rao, below which no unbiased attacker comes. For one
input with z^2 + z^3 it is s sqrt((d - 1) / (31 m)) / |r|, where the tensor attack's has 4 for 31.

    >>> from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
    >>> from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
    >>> from sfumato.attacks.gradients.tensor.scoring import match_inputs
    >>> random = np.random.default_rng(0)
    >>> inputs, labels = unit_inputs(2, 10, generator=random), np.array([1.0, -1.0])
    >>> network = TwoLayerNetwork.draw(10, 4000, generator=random)
    >>> seen, hidden, sigma = network.gradient(inputs, labels), network.hidden, network.activation
    >>> found = reconstruct_by_tensor(seen, hidden, sigma, batch=2, generator=random)
    >>> round(match_inputs(found, inputs).error, 1)
    0.2
    >>> match_inputs(polish(found, seen, hidden, sigma), inputs).error < 1e-12
    True

What is found may be private records: for the curator only.

Reference: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", J. SIAM
11(2) (1963).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor.activations import Activation
from sfumato.attacks.gradients.tensor.results import TensorReconstruction
from sfumato.core import validation

__all__ = ["fit_cost", "polish", "polished_error"]

Array = NDArray[np.float64]
_AT_ONCE = 1 << 18  # numbers in a block of the Jacobian: stays in the cache
_DAMPING = 1e-3  # of the first step, as a share of the diagonal
_LEAST, _MOST = 1e-12, 1e8  # damping
_ENOUGH = 1e-3  # a gain below this share of one unit's mean cost is the end
_TINY = 1e-300


def polish(
    found: TensorReconstruction,
    gradient: ArrayLike,
    hidden: ArrayLike,
    activation: Activation,
    *,
    weights: ArrayLike | None = None,
    pruned: bool = False,
    size: float | None = None,
    unit: bool = True,
    steps: int = 30,
) -> TensorReconstruction:
    """The reconstruction that fits the gradient best, from one that fits it roughly.

    Args:
        found: where to start. Its signs are kept: an activation that is odd cannot tell them.
        gradient: one number a hidden unit. Units not seen (a known dropout) are left out, here and
            in ``hidden``, or have a weight of 0.
        hidden: their weights, one row a unit.
        activation: sigma.
        weights: v_j, how much each number is worth: 0 and above. By default 1.
        pruned: numbers that are exactly 0 were pruned, and were at most the least that is left.
        size: of every residual, if that is known: before training that of a label, times what the
            defence makes of it. They start with it, and with the signs of the best fit.
        unit: keep lengths at 1. Without, they are found too, where sigma tells a longer input from
            a larger residual: ReLU does not.
        steps: the most there are.

    Returns:
        A result like ``found``, with other inputs and residuals, and ``width`` the number of units
        of weight above 0 (all else is what the tensor attack said of itself).

    Raises:
        ValueError: if shapes do not fit.
    """
    problem = _Problem.of(
        gradient, hidden, activation, weights, pruned=pruned, size=size, unit=unit
    )
    rows = problem.checked("found", found.inputs)
    first = _Point(_unit(rows) if unit else rows, np.asarray(found.residuals, np.float64))
    last = _descended(problem, first, validation.count("steps", steps))
    width = int(np.count_nonzero(problem.weights))
    return replace(found, inputs=last.inputs, residuals=last.residuals, width=width)


def fit_cost(
    found: TensorReconstruction,
    gradient: ArrayLike,
    hidden: ArrayLike,
    activation: Activation,
    *,
    weights: ArrayLike | None = None,
    pruned: bool = False,
) -> float:
    """C of a reconstruction, which the attacker can tell: of several, the best is the least."""
    problem = _Problem.of(gradient, hidden, activation, weights, pruned=pruned)
    return problem.cost(_Point(problem.checked("found", found.inputs), found.residuals))


def polished_error(
    hidden: ArrayLike,
    activation: Activation,
    inputs: ArrayLike,
    residuals: ArrayLike,
    noise: float,
    *,
    known: bool = False,
    unit: bool = True,
) -> float:
    """The error to expect, s sqrt(trace / B), and the least of an attacker without bias.

    Args:
        hidden: the weights of the units that are seen, one row each.
        activation: sigma.
        inputs: the true ones.
        residuals: theirs, with every factor that the defence put on the gradient.
        noise: s, the standard deviation of what was added to each number.
        known: the attacker knows the residuals.
        unit: the attacker knows that lengths are 1.
    """
    spread = validation.non_negative("noise", noise)
    units, size = np.zeros(len(np.asarray(hidden))), 1.0 if known else None
    problem = _Problem.of(units, hidden, activation, size=size, unit=unit)
    rows = problem.checked("inputs", inputs)
    parts = np.asarray(residuals, np.float64)
    if parts.shape != (len(rows),):
        validation.fail("residuals", f"one for each of {len(rows)} inputs", parts.shape)
    square, _ = problem.normal_equations(_Point(rows, parts))
    inverse = np.linalg.pinv(square, rcond=1e-12, hermitian=True)
    return float(spread * np.sqrt(np.trace(inverse[: rows.size, : rows.size]) / len(rows)))


@dataclass(frozen=True, eq=False)
class _Point:
    """Inputs, one a row, and residuals."""

    inputs: Array
    residuals: Array

    def moved(self, step: Array, unit: bool) -> _Point:
        rows = self.inputs + step[: self.inputs.size].reshape(self.inputs.shape)
        return _Point(_unit(rows) if unit else rows, self.residuals + step[self.inputs.size :])


@dataclass(frozen=True, eq=False)
class _Problem:
    """What is seen and known.

    Attributes:
        gradient: the g_j.
        hidden: the w_j.
        activation: sigma.
        weights: the v_j.
        limit: on the size of numbers that were pruned; None where none was.
        size: of every residual; None where it is to be found.
        unit: whether lengths are 1.
    """

    gradient: Array
    hidden: Array
    activation: Activation
    weights: Array
    limit: float | None
    size: float | None
    unit: bool

    @classmethod
    def of(
        cls,
        gradient: ArrayLike,
        hidden: ArrayLike,
        activation: Activation,
        weights: ArrayLike | None = None,
        *,
        pruned: bool = False,
        size: float | None = None,
        unit: bool = True,
    ) -> _Problem:
        rows, values = np.asarray(hidden, np.float64), np.asarray(gradient, np.float64)
        if rows.ndim != 2 or rows.size == 0:
            validation.fail("hidden", "a row of d weights for each unit", rows.shape)
        if values.shape != (len(rows),) or not np.isfinite(values).all():
            validation.fail("gradient", f"a finite number for each of {len(rows)} hidden units",
                            values.shape)  # fmt: skip
        worth = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
        if worth.shape != values.shape or not (np.isfinite(worth) & (worth >= 0)).all():
            validation.fail("weights", f"0 or above for each of {len(rows)} units", worth.shape)
        limit = np.abs(values[values != 0]).min(initial=np.inf) if pruned else None
        known = None if size is None else validation.positive("size", size)
        return cls(values, rows, activation, worth, limit, known, unit)

    def checked(self, name: str, inputs: ArrayLike) -> Array:
        """A table of inputs that goes with the weights."""
        rows = np.asarray(inputs, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.hidden.shape[1]:
            validation.fail(name, f"of inputs of {self.hidden.shape[1]} numbers", rows.shape)
        return rows

    def cost(self, at: _Point) -> float:
        return sum(float(0.5 * worth @ gap**2) for _, gap, worth, _, _ in self._parts(at))

    def normal_equations(self, at: _Point) -> tuple[Array, Array]:
        """J'VJ and J'V (g - fitted)."""
        batch, dimension = at.inputs.shape
        count = batch * (dimension + 1)
        square, joint = np.zeros((count, count)), np.zeros(count)
        for some, gap, worth, shown, features in self._parts(at):
            roots = np.sqrt(worth)
            slopes = np.asarray(self.activation.slope(shown), np.float64) * at.residuals
            design = np.empty((len(gap), count))
            for i, columns in enumerate(_each(at)):
                np.multiply(self.hidden[some], (roots * slopes[:, i])[:, None],
                            out=design[:, columns])  # fmt: skip
            design[:, batch * dimension :] = features * roots[:, None]
            square += design.T @ design
            joint += design.T @ (roots * gap)
        keep = self._free(at)
        return keep @ square @ keep, keep @ joint

    def _free(self, at: _Point) -> Array:
        """The projection on what may change: not lengths, not known residuals."""
        keep = np.eye(at.inputs.size + len(at.residuals))
        if self.unit:
            for x, block in zip(at.inputs, _each(at), strict=True):
                keep[block, block] -= np.outer(x, x)
        if self.size is not None:
            keep[at.inputs.size :] = 0
        return keep

    def fitted_residuals(self, inputs: Array) -> Array:
        """The best for these inputs, of known size where it is; pruned numbers left aside."""
        worth = self.weights if self.limit is None else self.weights * (self.gradient != 0)
        count = len(inputs)
        square, joint = np.zeros((count, count)), np.zeros(count)
        for some in self._blocks(count):
            features = self._features(some, inputs)[1]
            weighted = features * worth[some, None]
            square += weighted.T @ features
            joint += weighted.T @ self.gradient[some]
        best = np.asarray(np.linalg.lstsq(square, joint, rcond=None)[0], np.float64)
        return best if self.size is None else np.where(best < 0, -self.size, self.size)

    def _parts(self, at: _Point) -> Iterator[tuple[slice, Array, Array, Array, Array]]:
        """Of each block of units: which, the gaps, their worth, every w_j.x_i, and sigma of it."""
        for some in self._blocks(at.inputs.size + len(at.residuals)):
            shown, features = self._features(some, at.inputs)
            gap, worth = self.gradient[some] - features @ at.residuals, self.weights[some]
            if self.limit is not None:
                beyond = np.sign(gap) * np.maximum(np.abs(gap) - self.limit, 0)
                gap = np.where(self.gradient[some] == 0, beyond, gap)
                worth = worth * (gap != 0)
            yield some, gap, worth, shown, features

    def _features(self, some: slice, inputs: Array) -> tuple[Array, Array]:
        shown = self.hidden[some] @ inputs.T
        return shown, np.asarray(self.activation.value(shown), np.float64)

    def _blocks(self, columns: int) -> Iterator[slice]:
        step = max(1, _AT_ONCE // columns)
        return (slice(one, one + step) for one in range(0, len(self.gradient), step))


def _descended(problem: _Problem, first: _Point, steps: int) -> _Point:
    """Steps of Levenberg and Marquardt, each of which lowers the cost."""
    now, cost = first, problem.cost(first)
    refitted = _Point(first.inputs, problem.fitted_residuals(first.inputs))
    lower = problem.cost(refitted)
    if lower <= cost or problem.size is not None:
        now, cost = refitted, lower
    damping, enough = _DAMPING, _ENOUGH / len(problem.gradient)
    for _ in range(steps):
        found, damping = _lowered(problem, now, cost, damping)
        if found is None:
            break
        before, (now, cost) = cost, found
        if before - cost <= enough * cost:
            break
    return now


def _lowered(
    problem: _Problem, now: _Point, cost: float, damping: float
) -> tuple[tuple[_Point, float] | None, float]:
    """A point of lower cost, and that cost; and the damping to go on with."""
    square, joint = problem.normal_equations(now)
    diagonal = np.diagonal(square)
    scale = np.maximum(diagonal, _LEAST * float(diagonal.max()) or 1.0)
    while damping <= _MOST:
        step = np.asarray(np.linalg.solve(square + np.diag(damping * scale), joint), np.float64)
        then = now.moved(step, problem.unit)
        lower = problem.cost(then)
        if lower < cost:
            return (then, lower), max(_LEAST, damping / 10)
        damping *= 4
    return None, damping


def _each(at: _Point) -> list[slice]:
    """Where the numbers of each input are among all."""
    size = at.inputs.shape[1]
    return [slice(i * size, (i + 1) * size) for i in range(len(at.inputs))]


def _unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)
