"""Numbers from private linear predictions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from sfumato.core import validation
from sfumato.core.randomness import Coins
from sfumato.learning.erm.base import Floats, PrivateLinear
from sfumato.learning.erm.cells import Column, as_cells
from sfumato.learning.erm.losses import HuberSquare, Loss
from sfumato.learning.erm.rows import checked_range
from sfumato.learning.erm.tasks import Quadratic

__all__ = ["PrivateLinearRegression", "PrivateRidge"]


class PrivateLinearRegression(RegressorMixin, PrivateLinear):
    """Least squares of a number within declared bounds, as one private release.

    >>> from sfumato.core.randomness import SeededCoins
    >>> rows = np.random.default_rng(0).random((5000, 2))
    >>> wages = 20 * rows[:, 0] + 5
    >>> model = PrivateLinearRegression(
    ...     epsilon=1.0, bounds=(0, 1), target_bounds=(0, 30), coins=SeededCoins(1)
    ... )
    >>> model.fit(rows, wages).predict([[0.5, 0.5]]).round().tolist()
    [15.0]

    "functional" and "input" noise the coefficients of least squares; the other ways need a bounded
    gradient and take Huber's loss, which is least squares for residuals up to a threshold.

    Args:
        target_bounds: (lower, upper) of y, declared. What is outside is moved to the end, what is
            no finite number becomes the middle.
        threshold: of Huber's loss, in halves of the declared range.

    The others are those of :class:`~sfumato.learning.erm.base.PrivateLinear`, but that norm is by
    default the length of the longest row there can be, so that predictions are linear everywhere.
    """

    def __init__(
        self,
        *,
        target_bounds: tuple[float, float] | None = None,
        threshold: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "functional",
        bounds: Any = None,
        norm: float | None = None,
        regularisation: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace-one",
        public_size: int | None = None,
        unit: str = "record",
        ledger: str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        coins: Coins | None = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, way=way, bounds=bounds, norm=norm,
            regularisation=regularisation, fit_intercept=fit_intercept, neighbours=neighbours,
            public_size=public_size, unit=unit, ledger=ledger, dataset=dataset, analyst=analyst,
            coins=coins,
        )  # fmt: skip
        self.target_bounds, self.threshold = target_bounds, threshold

    def _loss(self) -> Loss:
        return HuberSquare(validation.positive("threshold", self.threshold))

    def _quadratic(self) -> Quadratic:
        return Quadratic(bend=1.0, length=1.0, length_1=1.0, apart=2.0)

    def _usual_norm(self, columns: int) -> float:
        return math.sqrt(columns + bool(self.fit_intercept))

    def _ends(self) -> tuple[float, float]:
        if self.target_bounds is None:
            raise ValueError(
                "target_bounds must be declared: (lower, upper) of y, such as (0, 1). They are "
                "never taken from y, which would tell of it"
            )
        try:
            low, high = self.target_bounds
        except (TypeError, ValueError):
            validation.fail("target_bounds", "(lower, upper)", self.target_bounds)
        return checked_range("target_bounds", low, high)

    def _declare_targets(self, y: Column) -> None:
        self._ends()

    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        low, high = self._ends()
        cells, middle, half = as_cells(y), low / 2 + high / 2, (high - low) / 2
        inside = np.clip(np.where(np.isfinite(cells), cells, middle), low, high)
        scaled = np.clip((inside - middle) / half, -1.0, 1.0)
        return scaled, scaled[:, None]

    def predict(self, X: Any) -> Floats:
        """Within the declared bounds."""
        low, high = self._ends()
        scaled = np.clip(self._outputs(X)[:, 0], -1.0, 1.0)
        return low / 2 + high / 2 + scaled * (high - low) / 2

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class PrivateRidge(PrivateLinearRegression):
    """Least squares with scikit-learn's penalty: the sum of squares and alpha ||w||^2.

    >>> from sfumato.core.randomness import SeededCoins
    >>> rows = np.random.default_rng(0).random((5000, 2))
    >>> ridge = PrivateRidge(
    ...     alpha=10.0, bounds=(0, 1), target_bounds=(0, 30), coins=SeededCoins(1)
    ... )
    >>> ridge.fit(rows, 20 * rows[:, 0] + 5).predict([[0.5, 0.5]]).round().tolist()
    [15.0]

    The mean of half the squares has the same minimiser with lambda = alpha / N, N the public number
    of rows. The weights that are meant are those of scaled rows and targets (columns and targets
    between -1 and 1, rows divided by norm), the intercept's among them: none is left without
    penalty, which the proofs need.

    Args:
        alpha: above 0, and chosen without looking at private rows. At small epsilon a greater one
            helps; PrivateLinearRegression takes what suits the noise.

    The others are those of :class:`PrivateLinearRegression`, and so is the guarantee.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        target_bounds: tuple[float, float] | None = None,
        threshold: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "functional",
        bounds: Any = None,
        norm: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace-one",
        public_size: int | None = None,
        unit: str = "record",
        ledger: str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        coins: Coins | None = None,
    ) -> None:
        super().__init__(
            target_bounds=target_bounds, threshold=threshold, epsilon=epsilon, delta=delta, way=way,
            bounds=bounds, norm=norm, fit_intercept=fit_intercept, neighbours=neighbours,
            public_size=public_size, unit=unit, ledger=ledger, dataset=dataset, analyst=analyst,
            coins=coins,
        )  # fmt: skip
        self.alpha = alpha

    def _strength(self, records: int) -> float:
        return validation.positive("alpha", self.alpha) / records
