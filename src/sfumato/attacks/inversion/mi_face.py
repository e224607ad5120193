"""MI-Face: walk from a blank image to one that the model is sure of.

What the attacker sees: a model's derivatives or, with more queries, its probabilities alone. She
names a class c and takes steps down the cost

    c(x) = 1 - p_c(x) + auxiliary(x),        x <- process(x - rate * gradient of c(x))

until the model is sure (the cost is at most 1 - probability) or nothing has come of the last
``patience`` steps (the cost is at least the largest of their costs). She keeps the best image that
was on the way, not the last. All classes go at once; one that has arrived costs no more queries.

    >>> from sfumato.attacks.inversion.slopes import CoordinateDifferences
    >>> def two_classes(x):  # the brighter the first pixel is than the second, the surer
    ...     p = 1 / (1 + np.exp(-6 * (x[:, 0] - x[:, 1])))
    ...     return np.stack([p, 1 - p], axis=1)
    >>> target, by_scores = Target.of_scores(two_classes), CoordinateDifferences()
    >>> found = invert_with_mi_face(target, [0, 1], (2,), slopes=by_scores)
    >>> np.round(found.images.astype(float), 1).tolist(), found.queries
    ([[0.8, 0.0], [0.0, 0.8]], 292)

For a softmax regression with weights w the gradient of the cost is -p_c (w_c - sum_k p_k w_k): the
image is made of weights, and shows what the class has on average that others have not.

Images of private records are the curator's.

Reference: Fredrikson, Jha and Ristenpart, "Model inversion attacks that exploit confidence
information and basic countermeasures", CCS 2015, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.inversion.processing import Process
from sfumato.attacks.inversion.results import (
    Inversion,
    checked_labels,
    checked_shape,
    probability_of,
)
from sfumato.attacks.inversion.slopes import ExactSlopes, Slopes
from sfumato.attacks.targets import BudgetSpent, Target, View
from sfumato.core import validation

__all__ = ["Auxiliary", "invert_with_mi_face"]

Auxiliary = Callable[
    [NDArray[np.float32], NDArray[np.int64]], tuple[NDArray[np.float64], NDArray[np.float64]]
]
"""From images and their classes to a cost for each and its derivative by the image."""


def invert_with_mi_face(
    target: Target,
    labels: ArrayLike,
    shape: Sequence[int],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    rate: float = 0.1,
    iterations: int = 5000,
    patience: int = 100,
    probability: float = 0.99,
    process: Process | None = None,
    process_every: int = 1,
    auxiliary: Auxiliary | None = None,
    start: ArrayLike | None = None,
    slopes: Slopes | None = None,
) -> Inversion:
    """An image of each class that the target is sure of.

    A target that answers no more queries ends the attack: the best images so far are returned.

    Args:
        target: the model; must show gradients, or scores if ``slopes`` are estimated.
        labels: of which classes; the same class several times needs different starts.
        shape: of one input, such as (1, 28, 28).
        bounds: the least and the greatest value of a pixel. Images and queries stay within.
        rate: lambda, the length of a step for a gradient of length 1.
        iterations: alpha, the most steps.
        patience: beta, how many steps may pass without progress.
        probability: gamma, from which on the model is sure enough of a class.
        process: what an image goes through after a step; None for nothing.
        process_every: after how many steps it does.
        auxiliary: what else an image costs, if something is known about it.
        start: the images to begin with; by default the lower bound everywhere.
        slopes: how gradients are had; exact by default.

    Raises:
        NotSeen: if the target shows too little, before any query.
        BudgetSpent: if it does not even answer for the first images.
    """
    known = ExactSlopes() if slopes is None else slopes
    target.require(View.SCORES)
    target.require(known.needs)
    wanted, (low, high) = checked_labels(labels), validation.interval("bounds", *bounds)
    descent = _Descent(target, wanted, (low, high), known, auxiliary)
    walk = _Walk(
        validation.positive("rate", rate),
        1 - validation.open_probability("probability", probability),
        validation.count("patience", patience),
        process,
        validation.count("process_every", process_every),
    )
    before = target.queries
    images = _starting(start, len(wanted), checked_shape(shape), (low, high))
    best, sure, steps = walk.run(descent, images, validation.count("iterations", iterations))
    asked = target.queries - before
    return Inversion("MI-Face", target.name, wanted, best, sure, steps, asked, (low, high))


@dataclass(frozen=True)
class _Descent:
    """The cost, its gradient, and the bounds."""

    target: Target
    labels: NDArray[np.int64]
    bounds: tuple[float, float]
    slopes: Slopes
    auxiliary: Auxiliary | None

    def cost(
        self, images: NDArray[np.float32], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of the images for the classes of ``rows``; and the target's probability."""
        labels = self.labels[rows]
        sure = probability_of(self.target, images, labels)
        extra = 0.0 if self.auxiliary is None else self.auxiliary(images, labels)[0]
        return 1 - sure + extra, sure

    def gradient(
        self, images: NDArray[np.float32], rows: NDArray[np.int64], sure: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Of the cost by the images."""
        labels = self.labels[rows]
        rising = self.slopes(self.target, images, labels, sure, self.bounds)
        extra = 0.0 if self.auxiliary is None else self.auxiliary(images, labels)[1]
        return extra - rising

    def within(self, images: NDArray[np.floating]) -> NDArray[np.float32]:
        """Inside the bounds."""
        return np.clip(images, *self.bounds).astype(np.float32)


@dataclass(frozen=True)
class _Walk:
    """When to step, when to stop."""

    rate: float
    low_enough: float
    patience: int
    process: Process | None
    process_every: int

    def run(
        self, descent: _Descent, images: NDArray[np.float32], iterations: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int64]]:
        """The best image of each class, the target's probability of it, the steps taken."""
        active = np.arange(len(images))
        costs, sure = descent.cost(images, active)
        best, best_cost, best_sure = images.copy(), costs.copy(), sure.copy()
        recent = np.full((self.patience, len(images)), np.inf)  # nothing has been seen yet
        steps = np.zeros(len(images), dtype=np.int64)
        for step in range(iterations):
            recent[step % self.patience] = costs
            active = active[costs[active] > self.low_enough]
            if len(active) == 0:
                break
            try:
                moved = self._step(descent, images[active], active, sure[active], step)
                new_costs, new_sure = descent.cost(moved, active)
            except BudgetSpent:
                break
            images[active], costs[active], sure[active] = moved, new_costs, new_sure
            steps[active] += 1
            better = active[new_costs < best_cost[active]]
            best[better], best_cost[better] = images[better], costs[better]
            best_sure[better] = sure[better]
            active = active[new_costs < recent.max(axis=0)[active]]
        return best, best_sure, steps

    def _step(
        self,
        descent: _Descent,
        images: NDArray[np.float32],
        rows: NDArray[np.int64],
        sure: NDArray[np.float64],
        step: int,
    ) -> NDArray[np.float32]:
        moved = descent.within(images - self.rate * descent.gradient(images, rows, sure))
        if self.process is None or (step + 1) % self.process_every:
            return moved
        processed = self.process(moved)
        if processed.shape != moved.shape:
            validation.fail("process", f"a function that keeps {moved.shape}", processed.shape)
        return descent.within(processed)


def _starting(
    start: ArrayLike | None, count: int, shape: tuple[int, ...], bounds: tuple[float, float]
) -> NDArray[np.float32]:
    if start is None:
        return np.full((count, *shape), bounds[0], dtype=np.float32)
    given = np.array(start, dtype=np.float32)
    if given.shape != (count, *shape):
        validation.fail("start", f"images of shape {(count, *shape)}", given.shape)
    return np.clip(given, *bounds)
