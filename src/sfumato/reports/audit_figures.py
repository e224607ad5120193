"""The figures of audits, from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["ClaimLine", "GaugeLine", "claims_figure", "gauge_figure"]

ClaimLine = tuple[str, float, float, float]
"""A title, the epsilon that was claimed, the one that was found, and the one that holds."""

GaugeLine = tuple[str, float, float]
"""A run's name, the epsilon that was found at least, and the one that was claimed at most."""


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


def gauge_figure(
    lines: Sequence[GaugeLine], title: str = "Audited: at least, and claimed at most"
) -> Figure:
    """A bar for each run: from 0 to what was claimed, filled up to what an audit found at least.

    Found beyond the claim, the bar is red: then the claim does not hold.
    """
    figure, axes = new_figure(title, "epsilon", "", (5.6, 1.3 + 0.5 * len(lines)))
    for place, (_, found, claimed) in enumerate(reversed(lines)):
        broken = found > claimed
        axes.barh(place, max(found, claimed), height=0.5, color=PALE, zorder=1)
        axes.barh(place, found, height=0.5, color="#b3261e" if broken else COLOURS[0], zorder=2)
        axes.plot([claimed, claimed], [place - 0.36, place + 0.36], color=INK, linewidth=2.5)
        for value, text, side in ((found, "at least", 1), (claimed, "claimed", -1)):
            axes.annotate(
                f"{text} {value:.3g}", (value, place), (0, 13 * side), ha="center", va="center",
                textcoords="offset points", fontsize=8,
            )  # fmt: skip
    axes.set_yticks(range(len(lines)), [name for name, *_ in reversed(lines)])
    axes.set_ylim(-0.8, len(lines) - 0.2)
    axes.set_xlim(left=0)
    axes.grid(False, axis="y")
    return figure
