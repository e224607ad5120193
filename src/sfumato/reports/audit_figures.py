"""The figures of audits, from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["ClaimLine", "claims_figure"]

ClaimLine = tuple[str, float, float, float]
"""A title, the epsilon that was claimed, the one that was found, and the one that holds."""


def claims_figure(
    lines: Sequence[ClaimLine], title: str = "Claimed, and found at least: printed claims"
) -> Figure:
    """A line for each claim, from what was claimed to what was found, on a log axis.

    What was found beyond every epsilon is drawn as an arrow to the right.
    """
    figure, axes = new_figure(title, "epsilon (log scale)", "", (8.4, 1.4 + 0.3 * len(lines)))
    most = max(found for _, _, found, _ in lines if math.isfinite(found))
    for place, (_, claimed, found, holds) in enumerate(reversed(lines)):
        end = min(found, 3 * most)
        axes.plot([claimed, end], [place, place], color=PALE, linewidth=2, zorder=1)
        axes.plot(claimed, place, "o", color=INK, markersize=5, zorder=2)
        axes.plot(holds, place, "|", color=COLOURS[0], markersize=11, markeredgewidth=2, zorder=3)
        mark = "o" if math.isfinite(found) else ">"
        axes.plot(end, place, mark, color=COLOURS[1], markersize=6, zorder=4)
    axes.set_yticks(range(len(lines)), [name for name, *_ in reversed(lines)], fontsize=8)
    axes.set_xscale("log")
    for mark, colour, label in (
        ("o", INK, "claimed"), ("o", COLOURS[1], "found at least"), ("|", COLOURS[0], "holds"),
    ):  # fmt: skip
        axes.plot([], [], mark, color=colour, label=label)
    axes.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none")
    return figure
