"""The figure of stolen models, from plain numbers: how well a copy agrees, for so many queries.

It shows what an attack learned: it is for the curator, as the results are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import ArrayLike

from sfumato.core import validation
from sfumato.reports.style import COLOURS, INK, new_figure

__all__ = ["FidelityLine", "fidelity_figure"]

FidelityLine = tuple[str, ArrayLike, ArrayLike] | tuple[str, ArrayLike, ArrayLike, ArrayLike]
"""A label, numbers of queries, agreements, and pairs of their lower and upper limits, if known."""

_MARKS = ("o", "s", "^", "D", "v", "P")


def fidelity_figure(
    lines: Sequence[FidelityLine],
    unknowns: int | None = None,
    chance: float | None = None,
    title: str = "A copy of the model, by what its answers show",
) -> Figure:
    """Agreement of a copy with its model against the number of queries, on a log axis.

    Args:
        lines: one for each way of answering, the most generous first.
        unknowns: how many numbers the model has; marked, where copies of simple models get exact.
        chance: the agreement of a copy that knows nothing; marked.
        title: of the figure.
    """
    if not lines:
        validation.fail("lines", "one or more", lines)
    figure, axes = new_figure(
        title, "queries (log scale)", "share of inputs with the same answer", (7.2, 4.6)
    )
    for place, line in enumerate(lines):
        _draw(axes, place, line)
    if chance is not None:
        axes.axhline(chance, color=INK, linewidth=1, linestyle=":", label="guessing")
    if unknowns is not None:
        _mark(axes, unknowns)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))
    low, _ = axes.get_ylim()
    axes.set_ylim(max(0.0, low), 1.01)
    axes.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none")
    return figure


def _draw(axes: Axes, place: int, line: FidelityLine) -> None:
    label, queries, agreement, *limits = line
    x, y = np.asarray(queries, np.float64), np.asarray(agreement, np.float64)
    if x.shape != y.shape or x.ndim != 1 or x.size == 0 or (x <= 0).any():
        validation.fail(f"line {label!r}", "as many agreements as query counts above 0", x.shape)
    colour, mark = COLOURS[place % len(COLOURS)], _MARKS[place % len(_MARKS)]
    axes.plot(x, y, color=colour, marker=mark, markersize=5, linewidth=2, label=label)
    if limits:
        ends = np.asarray(limits[0], np.float64)
        if ends.shape != (len(x), 2):
            validation.fail(f"limits of {label!r}", f"{len(x)} pairs", ends.shape)
        axes.fill_between(x, ends[:, 0], ends[:, 1], color=colour, alpha=0.15, linewidth=0)


def _mark(axes: Axes, unknowns: int) -> None:
    count = validation.count("unknowns", unknowns)
    axes.axvline(count, color=INK, linewidth=1, linestyle="--")
    axes.annotate(
        f"{count:,} unknowns",
        (count, 0.06),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        rotation=90,
        ha="right",
        va="bottom",
        fontsize=9,
        color=INK,
    )
