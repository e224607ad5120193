"""Membership from hard labels alone: is the answer right, and does it stay right?

What the attacker sees: the class the model answers with, no scores. Two attacks:

*Gap.* An example is called a member if the model classifies it rightly. Its advantage, TPR - FPR,
is exactly the accuracy on members less the accuracy on others: the generalisation gap. It asks one
question an example. Every other attack on labels is to be measured against it.

*Robustness.* Training pushes the decision boundary away from the examples it sees. So the attacker
changes an example a little, many times (shifts of a picture, noise), and counts how often the
answer is still right. The score is that share, the unchanged example counted with the others. In
the paper a classifier learnt on a shadow model reads the list of answers; the share needs none.

    >>> def left_half(inputs):
    ...     return (inputs[:, 0] < 0).astype(int)
    >>> target = Target.of_labels(left_half)
    >>> far, near = [[-3.0], [-2.5]], [[-0.01], [0.02]]
    >>> both = Candidates.of((far, [1, 1]), (near, [1, 1]))
    >>> changes = gaussian_noise(0.5, 20, generator=np.random.default_rng(1))
    >>> robust = robustness_attack(target, both, changes)
    >>> gap_attack(target, both).auc, robust.auc, robust.queries
    (0.75, 1.0, 84)

A target that rounds or hides its scores is no better off against these; one that answers few
queries is.

What is found is for the curator, never for publication.

References: Choquette-Choo, Tramèr, Carlini and Papernot, "Label-only membership inference attacks",
ICML 2021, arXiv:2007.14321; Yeom et al., CSF 2018, arXiv:1709.01604, for the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "Change",
    "bit_flips",
    "changed_inputs",
    "gap_attack",
    "gap_scores",
    "gaussian_noise",
    "robustness_attack",
    "robustness_scores",
    "shifts",
]

Change = Callable[[NDArray[Any]], NDArray[Any]]
"""From a batch of inputs to the same batch, a little changed."""


def gap_scores(answers: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
    """1 where the answer is right, 0 where it is wrong."""
    given, wanted = np.asarray(answers), np.asarray(labels)
    if given.shape != wanted.shape or given.ndim != 1:
        shapes = given.shape, wanted.shape
        validation.fail("answers and labels", "two lists of the same length", shapes)
    return (given == wanted).astype(np.float64)


def gap_attack(
    target: Target, candidates: Candidates, *, confidence: float = 0.95
) -> MembershipReport:
    """Calls members what the target classifies rightly. It needs to see labels."""
    target.require(View.LABELS)
    before = target.queries
    scores = gap_scores(target.labels(candidates.inputs), candidates.labels)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="gap",
        confidence=confidence,
        threshold=1.0,
        queries=target.queries - before,
    )


def robustness_scores(
    target: Target, inputs: ArrayLike, labels: ArrayLike, changes: Sequence[Change]
) -> NDArray[np.float64]:
    """How often the answer is right, on the example itself and after each of ``changes``."""
    target.require(View.LABELS)
    wanted = np.asarray(labels)
    right = [
        gap_scores(target.labels(rows), wanted)
        for rows in changed_inputs(np.asarray(inputs), changes)
    ]
    return np.mean(right, axis=0)


def changed_inputs(inputs: NDArray[Any], changes: Sequence[Change]) -> Iterator[NDArray[Any]]:
    """The inputs as they are, then after each of ``changes``."""
    yield inputs
    for change in changes:
        changed = change(inputs)
        if changed.shape != inputs.shape:
            validation.fail("a change", f"one that keeps the shape {inputs.shape}", changed.shape)
        yield changed


def robustness_attack(
    target: Target,
    candidates: Candidates,
    changes: Sequence[Change],
    *,
    confidence: float = 0.95,
    generator: np.random.Generator | None = None,
) -> MembershipReport:
    """Scores candidates by how often their label survives. It needs to see labels.

    Args:
        target: the model under attack.
        candidates: whose membership is guessed.
        changes: from :func:`shifts`, :func:`gaussian_noise`, :func:`bit_flips`, or your own.
        confidence: of the report's intervals.
        generator: see :meth:`MembershipReport.from_scores`.

    The target is asked 1 + len(``changes``) times about each candidate.
    """
    if not changes:
        validation.fail("changes", "at least one; without any, use gap_attack", list(changes))
    before = target.queries
    scores = robustness_scores(target, candidates.inputs, candidates.labels, changes)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="label robustness",
        confidence=confidence,
        generator=generator,
        queries=target.queries - before,
    )


def shifts(distance: int, axes: tuple[int, int] = (-2, -1)) -> list[Change]:
    """All 4 d shifts of a picture by |i| + |j| = d pixels; the border is repeated.

    Args:
        distance: d, in pixels.
        axes: those of height and width, of the batch of pictures: (1, 2) where channels come last.
    """
    d = validation.count("distance", distance)
    steps = [(i, j) for i in range(-d, d + 1) for j in {d - abs(i), abs(i) - d}]
    return [_shift(step, axes) for step in steps]


def _shift(steps: tuple[int, int], axes: tuple[int, int]) -> Change:
    def change(pictures: NDArray[Any]) -> NDArray[Any]:
        moved = pictures
        for step, axis in zip(steps, axes, strict=True):
            # Each place shows the pixel that lies ``step`` before it, or the nearest one.
            size: int = pictures.shape[axis]
            moved = moved.take(np.clip(np.arange(size) - step, 0, size - 1), axis=axis)
        return moved

    return change


def gaussian_noise(scale: float, times: int, *, generator: np.random.Generator) -> list[Change]:
    """``times`` draws of normal noise of standard deviation ``scale`` on every number."""
    sd = validation.positive("scale", scale)

    def change(rows: NDArray[Any]) -> NDArray[Any]:
        return rows + generator.normal(0.0, sd, rows.shape)

    return [change] * validation.count("times", times)


def bit_flips(rate: float, times: int, *, generator: np.random.Generator) -> list[Change]:
    """``times`` draws in which each feature, 0 or 1, is flipped with probability ``rate``."""
    chance = validation.open_probability("rate", rate)

    def change(rows: NDArray[Any]) -> NDArray[Any]:
        return np.where(generator.random(rows.shape) < chance, 1 - rows, rows)

    return [change] * validation.count("times", times)
