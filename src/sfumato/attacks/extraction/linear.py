"""Softmax regression as an attacker rebuilds it.

Its probabilities do not change if the same (w, b) is added to every class: that much can never be
told from answers. :meth:`LinearModel.centred` picks, of all equal models, the one whose classes add
up to 0; two models answer alike if and only if they are the same centred.

    >>> one = LinearModel(np.array([[0.0, 0.0], [2.0, -1.0]]), np.array([0.0, 0.5]))
    >>> other = LinearModel(one.weights + [7.0, 7.0], one.intercepts + 3.0)
    >>> other.distance(one) < 1e-15
    True
    >>> weights, intercept = other.logistic()
    >>> weights.tolist(), intercept
    ([2.0, -1.0], 0.5)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["LinearModel", "Standard"]


@final
@dataclass(frozen=True, eq=False)
class LinearModel:
    """softmax(W x + b).

    Attributes:
        weights: W, one row a class.
        intercepts: b, one number a class.
    """

    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]

    @property
    def unknowns(self) -> int:
        """As papers count them: d + 1 for two classes, k (d + 1) for more of them."""
        features = self.weights.shape[1]
        return (features + 1) * (1 if len(self.weights) == 2 else len(self.weights))

    def logits(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """W x + b for each row x."""
        return np.asarray(inputs, np.float64) @ self.weights.T + self.intercepts

    def probabilities(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """The softmax of that."""
        from scipy.special import softmax

        return np.asarray(softmax(self.logits(inputs), axis=1), dtype=np.float64)

    def centred(self) -> LinearModel:
        """The same model with classes that add up to 0."""
        return LinearModel(
            self.weights - self.weights.mean(axis=0), self.intercepts - self.intercepts.mean()
        )

    def logistic(self) -> tuple[NDArray[np.float64], float]:
        """The w and b of logit(p) = w x + b, with p the probability of class 1 of two."""
        if len(self.weights) != 2:
            validation.fail("classes", "2 for a logistic regression", len(self.weights))
        return self.weights[1] - self.weights[0], float(self.intercepts[1] - self.intercepts[0])

    def distance(self, truth: LinearModel) -> float:
        """|this - truth| / |truth|, both centred, weights and intercepts as one vector."""
        mine, other = self.centred(), truth.centred()
        gap = np.hypot(
            np.linalg.norm(mine.weights - other.weights),
            np.linalg.norm(mine.intercepts - other.intercepts),
        )
        return float(
            gap / np.hypot(np.linalg.norm(other.weights), np.linalg.norm(other.intercepts))
        )


@final
@dataclass(frozen=True, eq=False)
class Standard:
    """Queries moved to mean 0 and spread 1, where equations are solved, and the way back.

    Attributes:
        middle: the mean of each feature.
        spread: the standard deviation of each feature; 1 where it never varies.
    """

    middle: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, points: NDArray[np.float64]) -> Standard:
        """That of so many points."""
        spread, size = points.std(axis=0), np.abs(points).max(axis=0)
        varies = spread > 1e-12 * size  # a mean of equal numbers may differ from them by rounding
        return cls(points.mean(axis=0), np.where(varies, spread, 1.0))

    def design(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """The standard points with a column of ones behind."""
        return np.column_stack([(points - self.middle) / self.spread, np.ones(len(points))])

    def model(self, solution: NDArray[Any]) -> LinearModel:
        """The model whose logits are ``design @ solution``; one column a class."""
        weights = (solution[:-1] / self.spread[:, None]).T
        return LinearModel(weights, solution[-1] - weights @ self.middle).centred()
