"""Laplace or Gaussian: the curve and its plot, for the commands that show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sfumato.core import validation
from sfumato.mechanisms.crossover import CrossoverCurve, crossover_curve
from sfumato.reports.figures import crossover_figure
from sfumato.reports.style import save

__all__ = ["crossover", "plot_crossover"]


def crossover(
    epsilon: float, delta: float, dimensions: int, criterion: str = "standard-deviation"
) -> CrossoverCurve:
    """Both errors at about sixty dimensions up to ``dimensions``."""
    most = validation.at_least("dimensions", dimensions, 2)
    ks = np.unique(np.geomspace(1, most, 60).round().astype(int))
    return crossover_curve(epsilon, delta, ks, criterion)


def plot_crossover(curve: CrossoverCurve, epsilon: float, delta: float, path: Path) -> Path:
    """Draws the curve into ``path``."""
    error = {
        "standard-deviation": "standard deviation of the noise",
        "l1": "expected L1 error",
        "l2": "expected L2 error",
    }[curve.criterion.value]
    figure = crossover_figure(
        curve.dimensions, curve.laplace, curve.gaussian, curve.crossover, epsilon, delta, error
    )
    return save(figure, path)
