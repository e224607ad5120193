"""How a budget was used, from plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sfumato.reports.style import COLOURS, INK, new_figure

__all__ = ["burn_down_figure"]


def burn_down_figure(
    readings: Sequence[float],
    cap: float,
    name: str,
    by_analyst: Mapping[str, Sequence[float]] | None = None,
) -> Figure:
    """The odometer's reading after each charge, under the cap that it never passes.

    Args:
        readings: epsilon after each charge, in order.
        cap: the budget's epsilon.
        name: the dataset's.
        by_analyst: for each analyst, the part of every reading that is theirs; the parts are drawn
            on top of each other and must add up to the readings.
    """
    figure, axes = new_figure(
        f"Budget of {name}: what was spent, and the cap",
        "charges (requests, plans, refunds), in order",
        "epsilon, odometer reading",
    )
    steps = np.arange(len(readings) + 2)  # the last level is drawn one step long
    if by_analyst:
        floor = np.zeros(len(steps))
        for number, (analyst, parts) in enumerate(sorted(by_analyst.items())):
            top = floor + _levels(parts)
            colour = COLOURS[number % len(COLOURS)]
            label = analyst or "no analyst named"
            axes.fill_between(
                steps, floor, top, step="post", color=colour, alpha=0.35, linewidth=0, label=label
            )
            floor = top
    values = _levels(readings)
    axes.step(steps, values, where="post", color=INK, linewidth=1.6, label="reading")
    axes.axhline(cap, color=COLOURS[1], linewidth=2, label=f"cap {cap:g}: the guarantee")
    axes.set_xlim(0, len(readings) + 1)
    axes.set_ylim(0, 1.12 * max(cap, float(values.max())))
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, 0.88), frameon=False)
    return figure


def _levels(values: Sequence[float]) -> NDArray[np.float64]:
    """From nothing, through each value, staying at the last."""
    padded = [0.0, *values]
    return np.asarray([*padded, padded[-1]])
