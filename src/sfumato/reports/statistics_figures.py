"""Figures of released statistics: bars with their intervals, tables as heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sfumato.reports.style import COLOURS, INK, new_figure

__all__ = ["bars_figure", "heat_map_figure"]

_MANY_LABELS = 8


def bars_figure(
    labels: Sequence[str],
    values: Sequence[float],
    intervals: Sequence[tuple[float | None, float | None]],
    key: str,
    value: str,
    title: str,
    confidence: float = 0.95,
) -> Figure:
    """A bar a cell, with the interval the answer states; a negative noisy count stays negative."""
    figure, axes = new_figure(title, key, value)
    places, heights = np.arange(len(labels)), np.asarray(values, dtype=float)
    axes.bar(places, heights, color=COLOURS[0], width=0.7)
    if heights.size and all(low is not None and high is not None for low, high in intervals):
        low = np.array([low for low, _ in intervals], dtype=float)
        high = np.array([high for _, high in intervals], dtype=float)
        below, above = np.maximum(heights - low, 0), np.maximum(high - heights, 0)
        axes.errorbar(
            places,
            heights,
            yerr=[below, above],
            fmt="none",
            ecolor=INK,
            capsize=4,
            linewidth=1.2,
            label=f"{confidence:.0%} interval",
        )
        axes.legend(loc="best", frameon=False)
    many = len(labels) > _MANY_LABELS
    axes.set_xticks(
        places, list(labels), rotation=45 if many else 0, ha="right" if many else "center"
    )
    axes.grid(False, axis="x")
    axes.margins(y=0.12)
    return figure


def heat_map_figure(
    rows: Sequence[Mapping[str, Any]], row_key: str, column_key: str, value: str, title: str
) -> Figure:
    """Two keys as a grid of shaded cells, each with its value and its interval's half-width."""
    downs = list(dict.fromkeys(row[row_key] for row in rows))
    acrosses = list(dict.fromkeys(row[column_key] for row in rows))
    grid = np.full((len(downs), len(acrosses)), np.nan)
    texts = np.full(grid.shape, "", dtype=object)
    for row in rows:
        at = downs.index(row[row_key]), acrosses.index(row[column_key])
        grid[at] = float(row["value"])
        texts[at] = _cell_text(row)
    figure, axes = new_figure(
        title, column_key, row_key, (max(4.8, 1.2 * len(acrosses) + 2), 0.6 * len(downs) + 2.2)
    )
    image = axes.imshow(grid, cmap="Blues", aspect="auto")
    figure.colorbar(image, ax=axes, label=value, shrink=0.85)
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2 if grid.size else 0.0
    for (i, j), text in np.ndenumerate(texts):
        colour = "white" if grid[i, j] > middle else INK
        axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=9)
    axes.set_xticks(range(len(acrosses)), [str(key) for key in acrosses])
    axes.set_yticks(range(len(downs)), [str(key) for key in downs])
    axes.grid(False)
    return figure


def _cell_text(row: Mapping[str, Any]) -> str:
    value, high = row["value"], row.get("high")
    shown = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return shown if high is None else f"{shown}\n±{high - value:.3g}"
