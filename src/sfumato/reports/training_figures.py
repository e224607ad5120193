"""How a private training went, from plain numbers.

Accuracy here is measured on a public test set; a training loss is read from private data, so that a
figure which shows one is the curator's and must not be published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import ArrayLike, NDArray

from sfumato.core.guarantee import round_up
from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["accuracy_by_epsilon_figure", "learning_curve_figure"]

Point = tuple[float, float, float | None]
"""Epsilon, mean accuracy, and its spread over runs (None for a single one)."""

_MARKERS = "osD^vP"
_PERCENT = PercentFormatter(1.0, decimals=None)


def learning_curve_figure(
    steps: Sequence[int],
    accuracy: Sequence[float],
    epsilon: Sequence[float],
    *,
    title: str,
    loss: Sequence[float] | None = None,
    target: float | None = None,
    final: float | None = None,
    tested_on: str = "public test set",
) -> Figure:
    """Accuracy against steps, and on an axis of its own colour the epsilon spent by then.

    Args:
        steps: at which the other numbers were taken.
        accuracy: between 0 and 1.
        epsilon: spent after so many steps.
        title: of the figure.
        loss: the training loss, in a panel below: **read from private data, for the curator**.
        target: the epsilon that the whole run was planned for, as a line.
        final: the accuracy of the model that was kept (averaged weights, say), at the last step;
            without it the last of ``accuracy`` is written beside its point.
        tested_on: what the accuracy is of; on private rows the figure is the curator's.
    """
    if not len(steps) == len(accuracy) == len(epsilon):
        lengths = len(steps), len(accuracy), len(epsilon)
        raise ValueError(f"steps, accuracy and epsilon must have one length, got {lengths}")
    if loss is not None and len(loss) != len(steps):
        raise ValueError(f"loss must have {len(steps)} values, one a step, got {len(loss)}")
    size = (7.2, 4.4) if loss is None else (7.2, 6.2)
    figure, axes = new_figure(title, "steps", f"accuracy, {tested_on}", size)
    if loss is not None:
        _loss_panel(figure, axes, steps, loss)
    _epsilon_axis(axes, steps, epsilon, target)
    _accuracy_axis(axes, steps, accuracy, final)
    return figure


def _accuracy_axis(
    axes: Axes, steps: Sequence[int], accuracy: Sequence[float], final: float | None
) -> None:
    colour = COLOURS[0]
    few = len(steps) <= 40
    axes.plot(steps, accuracy, color=colour, linewidth=2, marker="o" if few else "", markersize=4)
    axes.set_xlim(0, 1.02 * max(steps, default=1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(_PERCENT)
    _paint(axes, colour, "left")
    if not len(steps):
        return
    last = accuracy[-1] if final is None else final
    if final is not None:
        axes.plot([steps[-1]], [final], marker="D", color=colour, markersize=7, linestyle="none")
    axes.set_ylim(*_room([*accuracy, last]))
    axes.annotate(
        f"{last:.2%}",
        (steps[-1], last),
        xytext=(-2, 10),
        textcoords="offset points",
        ha="right",
        fontweight="bold",
        color=colour,
    )


def _room(values: Sequence[float]) -> tuple[float, float]:
    """Limits with room above for a label, never beyond what an accuracy can be by much."""
    low, high = min(values), max(values)
    span = max(high - low, 0.02)
    return max(0.0, low - 0.06 * span), min(1.04, high + 0.16 * span)


def _epsilon_axis(
    axes: Axes, steps: Sequence[int], epsilon: Sequence[float], target: float | None
) -> None:
    colour = COLOURS[1]
    right = axes.twinx()
    right.plot(steps, epsilon, color=colour, linewidth=1.8, linestyle=(0, (5, 2)))
    top = max([*epsilon, target or 0.0, 1e-9])
    right.set_ylim(0, 1.16 * top)
    right.set_ylabel("epsilon spent")
    right.grid(False)
    for side in ("top", "left", "bottom"):
        right.spines[side].set_visible(False)
    _paint(right, colour, "right")
    if target is not None:
        right.axhline(target, color=colour, linewidth=1, linestyle=":")
        right.annotate(
            f"planned: epsilon {round_up(target):g}",
            (0.35, target),
            xycoords=("axes fraction", "data"),
            xytext=(0, -4),
            textcoords="offset points",
            va="top",
            fontsize=9,
            color=colour,
        )


def _paint(axes: Axes, colour: str, side: str) -> None:
    """An axis in its curve's colour."""
    axes.yaxis.label.set_color(colour)
    axes.tick_params(axis="y", colors=colour)
    axes.spines[side].set_visible(True)
    axes.spines[side].set_color(colour)


def _loss_panel(figure: Figure, axes: Axes, steps: Sequence[int], loss: Sequence[float]) -> None:
    """Puts ``axes`` above a second panel."""
    grid = figure.add_gridspec(2, 1, height_ratios=(2.2, 1))
    axes.set_subplotspec(grid[0])
    axes.set_xlabel("")
    axes.tick_params(axis="x", labelbottom=False)
    below = figure.add_subplot(grid[1], sharex=axes)
    below.plot(steps, loss, color=COLOURS[3], linewidth=1.6)
    below.set_xlabel("steps", color=INK)
    below.tick_params(axis="x", colors=INK)
    below.set_ylabel("training loss")
    _paint(below, COLOURS[3], "left")
    below.set_ylim(bottom=0)
    below.grid(True, linewidth=0.8, color="#e6e8ec")
    below.set_axisbelow(True)
    for side in ("top", "right"):
        below.spines[side].set_visible(False)
    below.spines["bottom"].set_color(PALE)
    below.set_title("for the curator: read from private data", fontsize=9, loc="left", color=INK)


def accuracy_by_epsilon_figure(
    series: Mapping[str, Sequence[Point]],
    *,
    title: str,
    delta: float | None = None,
    chance: float | None = None,
    baseline: float | None = None,
    baselines: Mapping[str, float] | None = None,
    published: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Figure:
    """What each method reaches for each epsilon, with error bars where there were several runs.

    Args:
        series: for each method its (epsilon, mean accuracy, spread over runs or None).
        title: of the figure.
        delta: at which epsilon is stated, for the label of its axis.
        chance: the accuracy of guessing, as a line.
        baseline: the accuracy without privacy, as a line.
        baselines: the same of single series, by their names, in their colours.
        published: (epsilon, accuracy) from papers, as hollow marks.
    """
    at = "" if delta is None else f" at delta {delta:g}"
    figure, axes = new_figure(
        title, f"epsilon{at} (log scale, smaller is more private)", "accuracy, public test set"
    )
    axes.set_xscale("log")
    for number, (name, points) in enumerate(series.items()):
        _draw_series(axes, number, name, points)
    for number, (name, known) in enumerate((published or {}).items(), start=len(series)):
        x, y = _columns(known)
        axes.plot(
            x, y, linestyle="none", marker=_MARKERS[number % len(_MARKERS)], markersize=7,
            markerfacecolor="none", color=COLOURS[number % len(COLOURS)], label=name,
        )  # fmt: skip
    _line(axes, baseline, "without privacy", above=True)
    for number, name in enumerate(series):
        if name in (baselines or {}):
            what = "without privacy" if len(series) == 1 else f"{name} without privacy"
            _line(axes, (baselines or {})[name], what, above=True, colour=_colour(number))
    _line(axes, chance, "guessing", above=False)
    _epsilon_ticks(axes, [e for points in series.values() for e, *_ in points])
    axes.yaxis.set_major_formatter(_PERCENT)
    axes.margins(x=0.06)
    axes.set_ylim(top=1.03)
    axes.set_ylim(bottom=0.0 if axes.get_ylim()[0] < 0.3 else None)
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= 1 + 1e-9])
    axes.set_ylim(low, high)
    handles, names = axes.get_legend_handles_labels()
    order = [names.index(name) for name in (*series, *(published or {}))]
    axes.legend([handles[i] for i in order], [names[i] for i in order], loc="best", frameon=False)
    return figure


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _draw_series(axes: Axes, number: int, name: str, points: Sequence[Point]) -> None:
    colour = _colour(number)
    ordered = sorted(points, key=lambda point: point[0])
    x, y = _columns([(epsilon, accuracy) for epsilon, accuracy, _ in ordered])
    spread = [0.0 if s is None else s for *_, s in ordered]
    axes.errorbar(
        x,
        y,
        yerr=spread if any(spread) else None,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=5,
        linewidth=2,
        capsize=3,
        color=colour,
        label=name,
    )


def _columns(points: Sequence[tuple[float, float]]) -> tuple[NDArray[np.float64], ...]:
    return tuple(np.asarray(points, dtype=float).reshape(-1, 2).T)


def _line(axes: Axes, value: float | None, what: str, *, above: bool, colour: str = INK) -> None:
    if value is None:
        return
    axes.axhline(value, color=colour, linewidth=1, linestyle=":")
    axes.annotate(
        f"{what}, {100 * value:.3g}%",
        (0.0 if above else 1.0, value),  # near guessing it is crowded where epsilon is small
        xycoords=("axes fraction", "data"),
        xytext=(4, 4) if above else (-4, -6),
        textcoords="offset points",
        ha="left" if above else "right",
        va="bottom" if above else "top",
        fontsize=9,
        color=INK,
    )


def _epsilon_ticks(axes: Axes, epsilons: ArrayLike) -> None:
    """The epsilons themselves where there are few, else powers of ten, in plain figures."""
    values = np.unique(np.asarray(epsilons, dtype=float))
    if 0 < len(values) <= 10:
        axes.set_xticks(values)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
