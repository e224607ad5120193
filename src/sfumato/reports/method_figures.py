"""Private methods side by side: accuracy against epsilon, from plain numbers.

A colour for each place that noise goes to, a mark for each method. What makes another promise than
the others is not to be read off against them: private labels are dashed, other relations hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, PercentFormatter

from sfumato.reports.style import COLOURS, INK, Drawing, new_figure

__all__ = ["MethodLine", "methods_figure"]

_MARKS = "osD^v"
_DASHED = (0, (4, 2))
_TICKS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
_LEAST, _MOST = 0.005, 0.9995  # what a logit scale can show
_STRETCHED = 0.9  # from which on differences near 100 % are what one looks for
_FOR_THE_CURATOR = "for the curator"


@final
@dataclass(frozen=True)
class MethodLine:
    """One method.

    Attributes:
        name: in the legend.
        group: methods of one group have one colour.
        points: (epsilon, mean accuracy, spread over runs or None).
        dashed: it protects something else than the others.
        hollow: it has another relation than the others.
    """

    name: str
    group: str
    points: Sequence[tuple[float, float, float | None]]
    dashed: bool = False
    hollow: bool = False


def methods_figure(
    lines: Sequence[MethodLine],
    *,
    title: str,
    baseline: float | None = None,
    delta: float | None = None,
    tested_on: str = "public test set",
    curator: bool = False,
) -> Drawing:
    """What each method reaches for each epsilon.

    Where accuracies come near 100 %, the axis is a logit scale: from 90 to 99 % is as far as from
    50 to 90 %, about.

    Args:
        lines: the methods.
        title: of the figure.
        baseline: the accuracy without privacy, as a line.
        delta: at which epsilon is stated.
        tested_on: what accuracy is of.
        curator: whether it is for the curator alone, which it then says.

    Raises:
        ValueError: if there is no point to draw.
    """
    if not any(line.points for line in lines):
        raise ValueError("lines must have points to draw, got none")
    at = "" if delta is None else f" at delta {delta:g}"
    label = f"epsilon{at} (log scale, smaller is more private)"
    figure, axes = new_figure(title, label, f"accuracy, {tested_on}", (8.6, 4.8))
    axes.set_xscale("log")
    groups = list(dict.fromkeys(line.group for line in lines))
    for line in lines:
        same = [one.name for one in lines if one.group == line.group]
        _draw(axes, line, groups.index(line.group), same.index(line.name))
    if baseline is not None:
        _baseline(axes, baseline)
    _epsilon_ticks(axes, [point[0] for line in lines for point in line.points])
    _accuracy_ticks(axes, [point[1] for line in lines for point in line.points], baseline)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    if curator:
        axes.annotate(
            _FOR_THE_CURATOR, (1.0, 1.0), xycoords="axes fraction", ha="right", va="bottom",
            fontsize=9, color=INK,
        )  # fmt: skip
    return figure


def _draw(axes: Axes, line: MethodLine, group: int, place: int) -> None:
    colour = COLOURS[group % len(COLOURS)]
    points = sorted(line.points, key=lambda point: point[0])
    spread = [point[2] or 0.0 for point in points]
    axes.errorbar(
        [point[0] for point in points],
        [_shown(point[1]) for point in points],
        yerr=spread if any(spread) else None,
        color=colour,
        marker=_MARKS[place % len(_MARKS)],
        markerfacecolor="white" if line.hollow else colour,
        markersize=5.5,
        linewidth=1.8,
        linestyle=_DASHED if line.dashed else "-",
        capsize=3,
        label=line.name,
    )


def _shown(accuracy: float) -> float:
    return min(max(accuracy, _LEAST), _MOST)


def _baseline(axes: Axes, accuracy: float) -> None:
    axes.axhline(_shown(accuracy), color=INK, linewidth=1, linestyle=":")
    axes.annotate(
        f"without privacy, {100 * accuracy:.3g} %",
        (0.0, _shown(accuracy)),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        va="bottom",
        fontsize=9,
        color=INK,
    )


def _epsilon_ticks(axes: Axes, epsilons: Sequence[float]) -> None:
    axes.set_xticks(sorted(set(epsilons)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", which="minor", length=0)
    axes.margins(x=0.08)


def _accuracy_ticks(axes: Axes, accuracies: Sequence[float], baseline: float | None) -> None:
    known = [_shown(value) for value in (*accuracies, baseline) if value is not None]
    low, high = min(known), max(known)
    if high < _STRETCHED:
        room = max(0.15 * (high - low), 0.01)
        axes.set_ylim(max(0.0, low - room), high + room)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))
        return
    axes.set_yscale("logit")
    room = 0.06 * (_logit(high) - _logit(low)) + 0.1
    bottom, top = _expit(_logit(low) - room), _expit(_logit(high) + 2 * room)
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if bottom <= tick <= top]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g} %"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="y", which="minor", length=0)
    axes.set_ylim(bottom, top)


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _expit(value: float) -> float:
    return 1 / (1 + math.exp(-value))
