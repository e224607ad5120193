"""What a target answers, in one form, whatever it shows, and where to ask.

An answer is a row of probabilities of which some may be hidden. What is hidden has a known total,
since all add up to 1. A label is a row with a single 1.

    >>> def model(inputs):
    ...     return np.tile([0.62, 0.27, 0.11], (len(inputs), 1))
    >>> found = ask(Target.of_scores(model).top(1), np.zeros((1, 4)))
    >>> found.shown.tolist(), found.hidden.tolist(), found.rest.round(2).tolist()
    ([[0.62, 0.0, 0.0]], [[False, True, True]], [0.38])
    >>> found.spread().round(2).tolist()
    [[0.62, 0.19, 0.19]]

Rows that are rounded are scaled so that they add up to 1 again. A single hidden probability is what
the others leave, so it is not hidden: the larger of two probabilities tells both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["Answers", "Bounds", "affordable", "ask", "box", "described", "uniform_inputs"]

Bounds = tuple[ArrayLike, ArrayLike]
"""The least and the greatest input a target takes: a number each, or one for each feature."""


@final
@dataclass(frozen=True, eq=False)
class Answers:
    """Answers to queries, one row each.

    Attributes:
        shown: probabilities, 0 where hidden. With ``rest``, each row adds up to 1.
        hidden: which were not shown.
        rest: what the hidden ones of a row add up to.
        hard: whether they are labels, not probabilities.
    """

    shown: NDArray[np.float64]
    hidden: NDArray[np.bool_]
    rest: NDArray[np.float64]
    hard: bool

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def classes(self) -> int:
        """How many there are."""
        return self.shown.shape[1]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class answered: the first of the largest."""
        return self.shown.argmax(axis=1).astype(np.int64)

    def spread(self) -> NDArray[np.float64]:
        """Whole rows: what is hidden is shared evenly."""
        share = self.rest / np.maximum(self.hidden.sum(axis=1), 1)
        return np.where(self.hidden, share[:, None], self.shown)

    def joined(self, others: Answers) -> Answers:
        """These and then the others."""
        return Answers(
            np.concatenate([self.shown, others.shown]),
            np.concatenate([self.hidden, others.hidden]),
            np.concatenate([self.rest, others.rest]),
            self.hard and others.hard,
        )


def ask(target: Target, inputs: ArrayLike, classes: int | None = None) -> Answers:
    """The target's answers about ``inputs``: probabilities where it shows them, else labels.

    Args:
        target: what is attacked.
        inputs: one query a row.
        classes: how many there are; needed where only labels are shown.

    Raises:
        NotSeen: if it shows neither.
        BudgetSpent: if it does not answer so many; see :func:`affordable`.
    """
    if not target.shows(View.SCORES):
        return _from_labels(target, inputs, classes)
    shown = target.probabilities(inputs)
    if classes is not None and shown.shape[1] != validation.at_least("classes", classes, 2):
        validation.fail("classes", f"{shown.shape[1]}, as the target's answers have", classes)
    cut = target.kept is not None and target.kept < shown.shape[1]
    return _from_scores(shown, (shown == 0) & cut)


def _from_scores(shown: NDArray[np.float64], hidden: NDArray[np.bool_]) -> Answers:
    rest = np.where(hidden.any(axis=1), np.maximum(1 - shown.sum(axis=1), 0), 0.0)
    told = hidden.sum(axis=1, keepdims=True) == 1
    shown = np.where(hidden & told, rest[:, None], shown)
    hidden, rest = hidden & ~told, np.where(told[:, 0], 0.0, rest)
    total = shown.sum(axis=1) + rest
    silent = total == 0  # all rounded away: nothing is known
    scale = np.where(silent, 1.0, total)
    hidden = hidden | silent[:, None]
    return Answers(shown / scale[:, None], hidden, np.where(silent, 1.0, rest / scale), hard=False)


def _from_labels(target: Target, inputs: ArrayLike, classes: int | None) -> Answers:
    if classes is None:
        raise ValueError("classes must be given where a target shows labels alone, got None")
    count = validation.at_least("classes", classes, 2)
    labels = target.labels(inputs)
    if labels.size and not 0 <= labels.min() <= labels.max() < count:
        validation.fail("classes", f"above every label, up to {labels.max()}", classes)
    shown = np.eye(count)[labels]
    return Answers(shown, np.zeros(shown.shape, bool), np.zeros(len(shown)), hard=True)


def affordable(target: Target, wanted: int) -> int:
    """How many of ``wanted`` queries the target still answers."""
    return wanted if target.budget is None else max(0, min(wanted, target.budget - target.queries))


def described(target: Target) -> str:
    """What a target shows, in words."""
    if not target.shows(View.SCORES):
        return "labels"
    top = f"top {target.kept} " if target.kept is not None else ""
    return f"{top}scores" + (f" to {target.digits} digits" if target.digits is not None else "")


def box(bounds: Bounds, shape: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The bounds, one pair for each feature.

    Raises:
        ValueError: unless every lower bound is finite and below its upper bound.
    """
    try:
        low, high = (np.broadcast_to(np.asarray(end, np.float64), shape) for end in bounds)
    except ValueError:
        sizes = tuple(np.shape(end) for end in bounds)
        validation.fail("bounds", f"numbers, or arrays that fit {tuple(shape)}", sizes)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        validation.fail("bounds", "finite, each lower one below its upper one", bounds)
    return low, high


def uniform_inputs(
    count: int, shape: Sequence[int], bounds: Bounds, *, generator: np.random.Generator
) -> NDArray[Any]:
    """So many inputs, uniform within the bounds: queries of someone without any data."""
    low, high = box(bounds, shape)
    return generator.uniform(low, high, (validation.count("count", count), *shape))
