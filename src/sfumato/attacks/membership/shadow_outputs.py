"""Shadow models' answers: what an attack on membership learns from.

A shadow model is the attacker's own. It is trained as the target was, on data of the attacker's, so
that the attacker knows which examples it saw. Its answers about these and about others teach how a
model of this kind gives its members away. No answer of the target is among them.

    >>> def train(inputs, labels):
    ...     return Target.of_scores(lambda x: np.tile([0.7, 0.3], (len(x), 1)))
    >>> inputs, labels = np.arange(20.0).reshape(10, 2), np.arange(10) % 2
    >>> random = np.random.default_rng(1)
    >>> outputs = train_shadows(train, inputs, labels, shadows=3, generator=random)
    >>> len(outputs), int(outputs.inside.sum())
    (30, 15)

Reference: Shokri, Stronati, Song and Shmatikov, "Membership inference attacks against machine
learning models", IEEE S&P 2017, arXiv:1610.05820.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.target_answers import class_numbers
from sfumato.attacks.targets import Target
from sfumato.core import validation

__all__ = ["ShadowOutputs", "Train", "answer_rows", "labels_within", "train_shadows"]

Train = Callable[[NDArray[Any], NDArray[np.int64]], Target]
"""From inputs and labels to a model trained on them, as the attacker would see it."""


@final
@dataclass(frozen=True, eq=False)
class ShadowOutputs:
    """What shadow models answered, pooled over shadows.

    Attributes:
        probabilities: a row of probabilities an answer.
        labels: the class of the example that was asked about.
        inside: whether the shadow had been trained on that example.
    """

    probabilities: NDArray[np.float64]
    labels: NDArray[np.int64]
    inside: NDArray[np.bool_]

    def __post_init__(self) -> None:
        rows = answer_rows("probabilities", self.probabilities)
        labels = labels_within(self.labels, rows)
        inside = np.asarray(self.inside, dtype=bool)
        if inside.shape != labels.shape:
            validation.fail("inside", f"one mark for each of {len(labels)} answers", inside.shape)
        if inside.all() or not inside.any():
            validation.fail("inside", "some answers of either kind", f"{int(inside.sum())} inside")
        for name, value in (("probabilities", rows), ("labels", labels), ("inside", inside)):
            object.__setattr__(self, name, value)

    @classmethod
    def of_shadow(cls, shadow: Target, candidates: Candidates) -> ShadowOutputs:
        """From one shadow model and examples of which one knows whether it was trained on them."""
        answers = shadow.probabilities(candidates.inputs)
        return cls(answers, candidates.labels, candidates.members)

    @classmethod
    def pooled(cls, parts: Sequence[ShadowOutputs]) -> ShadowOutputs:
        """From several shadows."""
        if not parts:
            validation.fail("parts", "the answers of one or more shadows", parts)
        return cls(
            np.concatenate([part.probabilities for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.inside for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.labels)


def train_shadows(
    train: Train,
    inputs: ArrayLike,
    labels: ArrayLike,
    *,
    shadows: int,
    generator: np.random.Generator,
    size: int | None = None,
) -> ShadowOutputs:
    """Trains shadow models on random halves of the data and asks each about both of its halves.

    Args:
        train: trains a model as the target was trained, and shows it as the target is shown.
        inputs: data like the target's. None of it may be the target's own.
        labels: their classes.
        shadows: how many models.
        generator: draws the halves.
        size: how many examples each shadow is trained on, best as many as the target was; it is
            asked about as many others. Half of the data unless given.
    """
    x, y = np.asarray(inputs), np.asarray(labels, dtype=np.int64)
    half = len(x) // 2 if size is None else validation.count("size", size)
    if not 1 <= half <= len(x) // 2:
        validation.fail("size", f"at most half of the {len(x)} examples", half)
    parts: list[ShadowOutputs] = []
    for _ in range(validation.count("shadows", shadows)):
        order = generator.permutation(len(x))
        seen, unseen = order[:half], order[half : 2 * half]
        shadow = train(x[seen], y[seen])
        both = np.concatenate([seen, unseen])
        parts.append(
            ShadowOutputs(shadow.probabilities(x[both]), y[both], np.arange(2 * half) < half)
        )
    return ShadowOutputs.pooled(parts)


def answer_rows(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Answers as an array, one row each; refuses what is none."""
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2:
        validation.fail(name, "a row of two or more probabilities an answer", rows.shape)
    if not np.isfinite(rows).all():
        validation.fail(name, "finite numbers", "some that are not")
    return rows


def labels_within(labels: ArrayLike, rows: NDArray[np.float64]) -> NDArray[np.int64]:
    """Labels as whole numbers, one for each answer and within its classes."""
    wanted = class_numbers("labels", labels)
    if wanted.shape != (len(rows),):
        validation.fail("labels", f"one for each of {len(rows)} answers", wanted.shape)
    if len(wanted) and wanted.max() >= rows.shape[1]:
        validation.fail("labels", f"classes from 0 to {rows.shape[1] - 1}", int(wanted.max()))
    return wanted
