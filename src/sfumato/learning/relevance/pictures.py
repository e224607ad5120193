"""Relevance as a heat map: red speaks for what the network said, blue against it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_relevance"]


def draw_relevance(relevance: ArrayLike, titles: list[str] | None = None) -> Figure:
    """One picture for each map, each on a scale of its own that is white at 0.

    What is drawn is as private as what is given: a release may be shown to anybody, relevance of
    records as they are may not.

    Args:
        relevance: (n, channels, height, width), (n, height, width) or (height, width); channels
            are added up.
        titles: one for each.

    Raises:
        ValueError: for another shape, or another number of titles.
    """
    maps = _maps(np.asarray(relevance, dtype=np.float64))
    if titles is not None and len(titles) != len(maps):
        validation.fail("titles", f"{len(maps)}, one for each map", len(titles))
    from matplotlib.figure import Figure

    columns = min(len(maps), 5)
    lines = math.ceil(len(maps) / columns)
    figure = Figure(figsize=(2.2 * columns, 2.4 * lines), layout="constrained")
    for number, values in enumerate(maps):
        axes = figure.add_subplot(lines, columns, number + 1)
        most = float(np.abs(values).max()) or 1.0
        axes.imshow(values, cmap="bwr", vmin=-most, vmax=most)
        axes.set_axis_off()
        if titles is not None:
            axes.set_title(titles[number], fontsize=9)
    return figure


def _maps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    if values.ndim == 2:
        values = values[None]
    if values.ndim == 4:
        values = values.sum(axis=1)
    if values.ndim != 3 or values.size == 0:
        validation.fail("relevance", "one or more images", values.shape)
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
