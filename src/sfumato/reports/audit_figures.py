"""The figures of audits, from plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.figure import Figure

from sfumato.reports.facts import at_least_text, epsilon_text
from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["ClaimLine", "GaugeLine", "claims_figure", "gauge_figure"]

ClaimLine = tuple[str, float, float, float]
"""A title, the epsilon that was claimed, the one that was found, and the one that holds."""

_BROKEN = "#b3261e"  # a claim that does not hold

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

    Found beyond the claim, the bar is red: then the claim does not hold. What was found beyond
    every epsilon has the longest bar. In words, found is rounded down and claimed up.
    """
    figure, axes = new_figure(title, "epsilon", "", (5.6, 1.3 + 0.6 * len(lines)))
    known = [value for _, *both in lines for value in both if math.isfinite(value)]
    longest = max(known, default=0.0) or 1.0
    if any(math.isinf(found) for _, found, _ in lines):
        longest *= 2
    for place, (_, exact, claimed) in enumerate(reversed(lines)):
        found = min(exact, longest)
        colour = _BROKEN if found > claimed else COLOURS[0]
        axes.barh(place, max(found, claimed), height=0.5, color=PALE, zorder=1)
        axes.barh(place, found, height=0.5, color=colour, zorder=2)
        axes.plot([claimed, claimed], [place - 0.34, place + 0.34], color=INK, linewidth=2.5)
        least = "infinite" if math.isinf(exact) else f"at least {at_least_text(exact)}"
        said = f"{least} of {epsilon_text(claimed)}"
        axes.annotate(
            said, (max(found, claimed), place), (8, 0), textcoords="offset points", va="center",
            fontsize=9, color=INK,
        )  # fmt: skip
    axes.set_yticks(range(len(lines)), [name for name, *_ in reversed(lines)])
    axes.set_ylim(-0.6, len(lines) - 0.4)
    axes.set_xlim(0, 1.45 * longest)
    axes.grid(visible=False, axis="y")
    return figure
