"""What an inversion gives: an image for each class it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.targets import Target
from sfumato.core import validation

__all__ = ["Inversion", "checked_classes", "checked_shape", "confidence_in"]


@final
@dataclass(frozen=True, eq=False)
class Inversion:
    """Reconstructed images. For the curator only: they may show private records.

    Attributes:
        attack: how they were made.
        target: the name of the model they were made from.
        classes: the class that each image is of.
        images: one a row, float32 within ``bounds``.
        confidence: the target's probability of its class for each image.
        iterations: how many steps each image took.
        queries: about how many examples the target was asked.
        bounds: the least and the greatest value of a pixel.
    """

    attack: str
    target: str
    classes: NDArray[np.int64]
    images: NDArray[np.float32]
    confidence: NDArray[np.float64]
    iterations: NDArray[np.int64]
    queries: int
    bounds: tuple[float, float]

    def __str__(self) -> str:
        return (
            f"{self.attack} on {self.target}: {len(self.classes)} images of "
            f"{len(np.unique(self.classes))} classes after {self.queries:,} queries; the target is "
            f"{self.confidence.mean():.1%} sure of them, {self.confidence.min():.1%} of the least"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the images; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "attack": self.attack,
            "target": self.target,
            "classes": self.classes.tolist(),
            "shape": list(self.images.shape[1:]),
            "bounds": list(self.bounds),
            "confidence": self.confidence.tolist(),
            "iterations": self.iterations.tolist(),
            "queries": self.queries,
        }


def checked_classes(classes: ArrayLike) -> NDArray[np.int64]:
    """The numbers of classes, one for each image that is wanted."""
    found = np.asarray(classes)
    whole = found.ndim == 1 and found.size > 0 and found.dtype.kind in "iu"
    if not whole or found.min() < 0:
        validation.fail("classes", "a list of class numbers, 0 or above", classes)
    return found.astype(np.int64)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one image."""
    sizes = tuple(validation.count("shape", size) for size in shape)
    if not sizes:
        validation.fail("shape", "that of one input, such as (1, 28, 28)", tuple(shape))
    return sizes


def confidence_in(
    target: Target, images: NDArray[np.float32], classes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The target's probability of each image's class; one query an image."""
    shown = target.probabilities(images)
    if classes.max() >= shown.shape[1]:
        validation.fail("classes", f"below the target's {shown.shape[1]}", int(classes.max()))
    return shown[np.arange(len(classes)), classes]
