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

__all__ = ["PrivateLinearRegression"]


class PrivateLinearRegression(RegressorMixin, PrivateLinear):
    """Ridge regression of a number within declared bounds, as one private release.

    >>> from sfumato.core.randomness import SeededCoins
    >>> rows = np.random.default_rng(0).random((5000, 2))
    >>> wages = 20 * rows[:, 0] + 5
    >>> model = PrivateLinearRegression(epsilon=1.0, target_bounds=(0, 30), coins=SeededCoins(1))
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
        target_bounds: tuple[float, float] = (0.0, 1.0),
        threshold: float = 1.0,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "functional",
        bounds: Any = (0.0, 1.0),
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
