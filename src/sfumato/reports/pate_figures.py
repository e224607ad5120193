"""Figures of PATE, from plain numbers: how far teachers agree, and what their answers cost.

Agreement and data-dependent epsilons are read from private votes without being charged: a figure
that shows them is the curator's, says so, and must not be published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, PercentFormatter
from numpy.typing import ArrayLike

from sfumato.reports.style import COLOURS, INK, new_figure

__all__ = ["CostLine", "agreement_figure", "costs_figure", "teachers_figure", "votes_figure"]

CostLine = tuple[str, Sequence[int], Sequence[float], Sequence[float] | None]
"""A name, numbers of questions or answers, epsilon for all data after so many, and for these."""

_FOR_THE_CURATOR = "for the curator: read from private votes"
_DASHED = (0, (4, 2))
_PERCENT = PercentFormatter(1.0, decimals=None)


def agreement_figure(
    edges: Sequence[float], counts: Sequence[int], title: str = "How far teachers agree"
) -> Figure:
    """A histogram: of how many questions has the first class how large a share. Curator's.

    Args:
        edges: of the bins, from 0 to 1.
        counts: one less than edges.
        title: of the figure.
    """
    figure, axes = new_figure(title, "share of teachers who chose the first class", "questions")
    _draw_agreement(axes, edges, counts)
    _mark(axes)
    return figure


def costs_figure(
    lines: Sequence[CostLine], delta: float, title: str, counted: str = "answers"
) -> Figure:
    """Epsilon against the number of answers, a colour each; dashed for these data alone.

    Args:
        lines: what each aggregator costs. **Curator's** where there are data-dependent ones.
        delta: at which epsilon is stated.
        title: of the figure.
        counted: what is on the axis: "answers" or "questions".
    """
    figure, axes = new_figure(title, counted, f"epsilon at delta {delta:g}")
    _draw_costs(axes, lines)
    if any(line[3] is not None for line in lines):
        _mark(axes)
    return figure


def votes_figure(
    edges: Sequence[float],
    counts: Sequence[int],
    lines: Sequence[CostLine],
    delta: float,
    title: str = "Teachers' agreement, and what their answers cost",
) -> Figure:
    """Both: the histogram of agreement above epsilon against questions. Curator's."""
    figure, axes = new_figure(title, "share of teachers who chose the first class", "questions",
                              (7.2, 6.6))  # fmt: skip
    _draw_agreement(axes, edges, counts)
    _mark(axes)
    _draw_costs(_panel_below(figure, axes, "questions", f"epsilon at delta {delta:g}"), lines)
    return figure


def teachers_figure(
    teachers: Sequence[int],
    accuracies: Mapping[str, Sequence[float]],
    epsilons: Mapping[str, Sequence[float]],
    title: str = "More teachers, more privacy, less accuracy",
    epsilon_label: str = "epsilon",
) -> Figure:
    """What more teachers do: accuracies above, epsilons below, against their number.

    Args:
        teachers: how many, ascending.
        accuracies: by name, between 0 and 1, one for each number of teachers.
        epsilons: likewise.
        title: of the figure.
        epsilon_label: of which answers.
    """
    figure, axes = new_figure(title, "", "accuracy", (7.2, 7.0))
    for number, (name, values) in enumerate(accuracies.items()):
        _draw_dots(axes, number, name, teachers, values)
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.legend(loc="best", frameon=False)
    below = _panel_below(figure, axes, "teachers", epsilon_label)
    for number, (name, values) in enumerate(epsilons.items(), start=len(accuracies)):
        _draw_dots(below, number, name, teachers, values)
    below.set_yscale("log")
    below.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    below.legend(loc="best", frameon=False)
    for one in (axes, below):
        _teacher_ticks(one, teachers)
    return figure


def _draw_agreement(axes: Axes, edges: Sequence[float], counts: Sequence[int]) -> None:
    widths = [high - low for low, high in pairwise(edges)]
    axes.bar(edges[:-1], counts, width=widths, align="edge", color=COLOURS[0], edgecolor="white")
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(_PERCENT)


def _draw_costs(axes: Axes, lines: Sequence[CostLine]) -> None:
    for place, (name, counts, independent, dependent) in enumerate(lines):
        colour = COLOURS[place % len(COLOURS)]
        whose = f"{name}, for all data" if dependent is not None else name
        axes.plot(counts, independent, color=colour, linewidth=2, label=whose)
        if dependent is not None:
            words = f"{name}, for these votes"
            axes.plot(counts, dependent, color=colour, linewidth=2, linestyle=_DASHED, label=words)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", frameon=False, fontsize=9)


def _draw_dots(axes: Axes, number: int, name: str, x: Sequence[int], y: ArrayLike) -> None:
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(x, y, color=colour, linewidth=2, marker="o", markersize=5, label=name)


def _panel_below(figure: Figure, axes: Axes, xlabel: str, ylabel: str) -> Axes:
    """Puts ``axes`` above a second pair of the same look."""
    grid = figure.add_gridspec(2, 1)
    axes.set_subplotspec(grid[0])
    below = figure.add_subplot(grid[1])
    below.set_xlabel(xlabel, color=INK)
    below.set_ylabel(ylabel, color=INK)
    below.tick_params(colors=INK)
    below.grid(True, linewidth=0.8, color="#e6e8ec")
    below.set_axisbelow(True)
    for side in ("top", "right"):
        below.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        below.spines[side].set_color(axes.spines[side].get_edgecolor())
    return below


def _teacher_ticks(axes: Axes, teachers: Sequence[int]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(list(teachers))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)


def _mark(axes: Axes) -> None:
    """Whom it is for, in the picture itself."""
    axes.annotate(
        _FOR_THE_CURATOR, (1.0, 1.0), xycoords="axes fraction", ha="right", va="bottom", fontsize=9,
        color=INK,
    )  # fmt: skip
