"""Slopes of a target's probability by the pixels: known exactly, or estimated from its scores.

==============================  ==============================  ===================================
how                             what the target must show       queries an image
==============================  ==============================  ===================================
:class:`ExactSlopes`            gradients                       1
:class:`CoordinateDifferences`  scores                          2 a pixel
:class:`RandomDirections`       scores                          2 a direction
==============================  ==============================  ===================================

Differences are taken between two inputs x+ and x- on either side of the image. Neither leaves the
declared bounds, beyond which a service may answer anything or nothing.

One random direction moves every pixel up or down by the toss of a coin, d = x+ - x-. The slope by
pixel i is then estimated by

    sum_j (p(x+_j) - p(x-_j)) d_ji / sum_j d_ji^2

over directions j. For a probability that is linear with slope g it has mean g_i and, within the
bounds, variance (|g|^2 - g_i^2) / directions.

    >>> steep = Target.of_scores(lambda x: np.stack([x.sum(1), 1 - x.sum(1)], axis=1))
    >>> CoordinateDifferences()(
    ...     steep, np.array([[0.1, 0.2]], np.float32), np.array([0]), np.array([0.3]), (0.0, 1.0)
    ... ).round(3), steep.queries
    (array([[1., 1.]]), 4)

References: J. C. Spall, "Multivariate stochastic approximation using a simultaneous perturbation
gradient approximation", IEEE Transactions on Automatic Control 37(3) (1992), for directions of
signs; Ilyas, Engstrom, Athalye and Lin, "Black-box adversarial attacks with limited queries and
information", arXiv:1804.08598, for pairs of opposite directions against image classifiers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.inversion.results import probability_of
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["CoordinateDifferences", "ExactSlopes", "RandomDirections", "Slopes"]


class Slopes(Protocol):
    """How the derivative of p_c by the input is had."""

    @property
    def needs(self) -> View:
        """What a target must show."""
        ...

    def __call__(
        self,
        target: Target,
        images: NDArray[np.float32],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        bounds: tuple[float, float],
    ) -> NDArray[np.float64]:
        """The derivative of each image's probability of its class, as large as the images.

        Args:
            target: of whose answers.
            images: where.
            labels: of which classes.
            probabilities: of these, which are known already.
            bounds: between which queries stay.
        """
        ...


@final
@dataclass(frozen=True)
class ExactSlopes:
    """p_c times the target's own derivative of log p_c."""

    @property
    def needs(self) -> View:
        """Gradients."""
        return View.GRADIENTS

    def __call__(
        self,
        target: Target,
        images: NDArray[np.float32],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        bounds: tuple[float, float],
    ) -> NDArray[np.float64]:
        """See :class:`Slopes`."""
        by_log = target.input_gradients(images, labels)
        return by_log * probabilities.reshape(-1, *[1] * (images.ndim - 1))


@final
@dataclass(frozen=True)
class CoordinateDifferences:
    """One pixel after another, a little up and a little down.

    Attributes:
        step: how far, as a share of the bounds' width.
    """

    step: float = 0.01

    def __post_init__(self) -> None:
        validation.open_probability("step", self.step)

    @property
    def needs(self) -> View:
        """Scores."""
        return View.SCORES

    def __call__(
        self,
        target: Target,
        images: NDArray[np.float32],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        bounds: tuple[float, float],
    ) -> NDArray[np.float64]:
        """See :class:`Slopes`."""
        moves = np.eye(images[0].size).reshape(-1, *images.shape[1:])
        slopes = [
            _differences(target, image, label, moves, self.step, bounds)
            for image, label in zip(images, labels, strict=True)
        ]
        return np.stack(slopes)


@final
@dataclass(frozen=True)
class RandomDirections:
    """All pixels at once, each up or down by the toss of a coin.

    Attributes:
        directions: how many are averaged.
        step: how far each pixel moves, as a share of the bounds' width.
        generator: the attacker's coins.
    """

    directions: int = 50
    step: float = 0.01
    generator: np.random.Generator = field(kw_only=True)

    def __post_init__(self) -> None:
        validation.count("directions", self.directions)
        validation.open_probability("step", self.step)

    @property
    def needs(self) -> View:
        """Scores."""
        return View.SCORES

    def __call__(
        self,
        target: Target,
        images: NDArray[np.float32],
        labels: NDArray[np.int64],
        probabilities: NDArray[np.float64],
        bounds: tuple[float, float],
    ) -> NDArray[np.float64]:
        """See :class:`Slopes`."""
        slopes: list[NDArray[np.float64]] = []
        for image, label in zip(images, labels, strict=True):
            moves = self.generator.choice([-1.0, 1.0], (self.directions, *image.shape))
            slopes.append(_differences(target, image, label, moves, self.step, bounds))
        return np.stack(slopes)


def _differences(
    target: Target,
    image: NDArray[np.float32],
    label: np.int64,
    moves: NDArray[np.float64],
    step: float,
    bounds: tuple[float, float],
) -> NDArray[np.float64]:
    """The slope at one image from two queries a move; 2 x ``len(moves)`` queries in one batch."""
    low, high = bounds
    width = step * (high - low)
    above = np.clip(image + width * moves, low, high).astype(np.float32)
    below = np.clip(image - width * moves, low, high).astype(np.float32)
    asked = np.concatenate([above, below])
    shown = probability_of(target, asked, np.full(len(asked), label))
    rises = shown[: len(moves)] - shown[len(moves) :]
    moved = above.astype(np.float64) - below
    return np.tensordot(rises, moved, 1) / (moved**2).sum(axis=0)
