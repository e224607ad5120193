"""What an inversion gives: an image for each class it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.targets import Target
from sfumato.core import validation
from sfumato.core.html import CURATOR, facts_table

__all__ = ["Inversion", "checked_labels", "checked_shape", "probability_of"]


@final
@dataclass(frozen=True, eq=False)
class Inversion:
    """Reconstructed images. For the curator only: they may show private records.

    Attributes:
        attack: how they were made.
        target: the name of the model they were made from.
        labels: the class that each image is of.
        images: one a row, float32 within ``bounds``.
        probability: the target's, of its class for each image.
        iterations: how many steps each image took.
        queries: about how many examples the target was asked.
        bounds: the least and the greatest value of a pixel.
    """

    attack: str
    target: str
    labels: NDArray[np.int64]
    images: NDArray[np.float32]
    probability: NDArray[np.float64]
    iterations: NDArray[np.int64]
    queries: int
    bounds: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"{self.attack} on {self.target}: {len(self.labels)} images of "
            f"{len(np.unique(self.labels))} classes after {self.queries:,} queries; the target is "
            f"{self.probability.mean():.1%} sure of them, {self.probability.min():.1%} of the least"
        )

    def _repr_html_(self) -> str:
        sure = (
            f"{self.probability.mean():.1%} on average, {self.probability.min():.1%} of the least"
        )
        classes = len(np.unique(self.labels))
        rows = [
            ("target", self.target),
            ("images", f"{len(self.labels)} of {classes} classes, each {self.images.shape[1:]}"),
            ("the target is sure of them", sure),
            ("queries", f"{self.queries:,}"),
        ]
        return facts_table(f"What classes look like: {self.attack}", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the images; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "attack": self.attack,
            "target": self.target,
            "classes": self.labels.tolist(),
            "shape": list(self.images.shape[1:]),
            "bounds": list(self.bounds),
            "probability": self.probability.tolist(),
            "iterations": self.iterations.tolist(),
            "queries": self.queries,
        }


def checked_labels(labels: ArrayLike) -> NDArray[np.int64]:
    """The numbers of classes, one for each image that is wanted."""
    found = np.asarray(labels)
    whole = found.ndim == 1 and found.size > 0 and found.dtype.kind in "iu"
    if not whole or found.min() < 0:
        validation.fail("labels", "a list of class numbers, 0 or above", labels)
    return found.astype(np.int64)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one image."""
    sizes = tuple(validation.count("shape", size) for size in shape)
    if not sizes:
        validation.fail("shape", "that of one input, such as (1, 28, 28)", tuple(shape))
    return sizes


def probability_of(
    target: Target, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The target's probability of each image's class; one query an image."""
    shown = target.probabilities(images)
    if labels.max() >= shown.shape[1]:
        validation.fail("labels", f"below the target's {shown.shape[1]}", int(labels.max()))
    return shown[np.arange(len(labels)), labels]
