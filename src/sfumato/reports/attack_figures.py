"""The figures of attacks on statistics, from plain numbers: exact beside private.

What they show was measured with private data: they are for the curator, as the results are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["Curve", "Scores", "linkage_figure", "roc_figure", "score_figure"]

Curve = tuple[str, ArrayLike, ArrayLike]
"""A label, false positive rates and true positive rates."""

Scores = tuple[str, ArrayLike, ArrayLike]
"""A title, the scores where the truth is yes, and those where it is no."""


def roc_figure(
    curves: Sequence[Curve],
    epsilon: float | None = None,
    lowest: float = 1e-3,
    title: str = "Who was in the data? Exact averages tell, private ones do not",
    delta: float = 0.0,
    claims: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Members found against false alarms, both on log axes, where low rates can be seen.

    ``epsilon``: also shade what no attack on an (epsilon, delta)-DP release reaches. With a the
    rate of false alarms, that is above min(e^eps a + delta, 1 - e^-eps (1 - delta - a), 1).
    ``claims``: of single curves, by their labels; each bound is dashed in its curve's colour.
    """
    figure, axes = new_figure(
        title, "false alarms (log scale)", "members found (log scale)", (7.2, 5.0)
    )
    rates = np.geomspace(lowest, 1, 200)
    axes.plot(rates, rates, color=INK, linewidth=1, linestyle=":", label="guessing")
    if epsilon is not None:
        bound = _bound(rates, epsilon, delta)
        name = f"bound at epsilon {epsilon:g}" + (f", delta {delta:g}" if delta else "")
        axes.plot(rates, bound, color=PALE, linewidth=1.5, label=name)
        axes.fill_between(rates, bound, 1.0, color=PALE, alpha=0.25, linewidth=0)
    for colour, (label, alarms, found) in zip(_colours(len(curves)), curves, strict=True):
        x, y = _steps(alarms, found, lowest)
        axes.plot(x, y, color=colour, linewidth=2, label=label)
        if label in (claims or {}):
            axes.plot(
                rates, _bound(rates, *(claims or {})[label]), color=colour, linewidth=1.2,
                linestyle="--", label=f"most for {label}",
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(lowest, 1)
    axes.set_ylim(lowest, 1.25)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(_per_cent())
    axes.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none")
    return figure


def _bound(rates: NDArray[np.float64], epsilon: float, delta: float) -> NDArray[np.float64]:
    """The most members that are found at each rate of false alarms, whatever the attack."""
    near = math.exp(min(epsilon, 700.0)) * rates + delta
    return np.minimum(near, 1 - math.exp(-epsilon) * (1 - delta - rates)).clip(max=1.0)


def _steps(
    alarms: ArrayLike, found: ArrayLike, lowest: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The most members found at each rate of false alarms from ``lowest`` on."""
    x, y = np.asarray(alarms, dtype=np.float64), np.asarray(found, dtype=np.float64)
    grid = np.geomspace(lowest, 1, 400)
    return grid, y[np.searchsorted(x, grid, side="right") - 1]


def score_figure(
    panels: Sequence[Scores],
    names: tuple[str, str] = ("member", "not a member"),
    xlabel: str = "score",
    ylabel: str = "share of people",
) -> Figure:
    """Histograms of two kinds of scores, one panel for each release."""
    figure, first = new_figure("", "", "", (4.4 * len(panels), 3.8))
    grid = figure.add_gridspec(1, len(panels))
    first.set_subplotspec(grid[0])
    others = [figure.add_subplot(grid[place]) for place in range(1, len(panels))]
    axes = [first, *map(_quiet, others)]
    for panel, (heading, yes, no) in zip(axes, panels, strict=True):
        _histograms(panel, np.asarray(yes), np.asarray(no), names)
        _head(panel, heading, xlabel)
    axes[0].set_ylabel(ylabel)
    axes[-1].set_ylim(0, axes[-1].get_ylim()[1] * 1.22)  # room for the legend
    axes[-1].legend(loc="upper right", frameon=False)
    return figure


def _histograms(
    axes: Axes, yes: NDArray[np.float64], no: NDArray[np.float64], names: tuple[str, str]
) -> None:
    both = np.concatenate([yes, no])
    low, high = np.quantile(both, [0.002, 0.998])
    whole = bool((both == np.round(both)).all()) and high - low < 80
    edges = np.arange(np.floor(low) - 0.5, high + 1) if whole else np.linspace(low, high, 45)
    width = 0.5 if whole and high - low < 5 else None
    for colour, name, scores in zip((COLOURS[1], COLOURS[0]), names, (yes, no), strict=True):
        shares = np.full(scores.shape, 1 / len(scores))
        inside = np.clip(scores, low, high)
        axes.hist(
            inside, edges.tolist(), weights=shares, color=colour, alpha=0.6, label=name,
            rwidth=width,
        )  # fmt: skip
    axes.yaxis.set_major_formatter(_per_cent())
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))


def _head(axes: Axes, heading: str, xlabel: str) -> None:
    axes.set_title(heading, pad=10, loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_xlabel(xlabel)


def _quiet(axes: Axes) -> Axes:
    """Quiet axes, as those of ``new_figure``."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.tick_params(colors=INK, labelcolor=INK)
    axes.xaxis.label.set_color(INK)
    axes.grid(True, linewidth=0.8, color="#e6e8ec")
    axes.set_axisbelow(True)
    return axes


def linkage_figure(
    facts: Sequence[str], named: Sequence[float], accuracies: tuple[float, float], most: float
) -> Figure:
    """How many rows get their names back fact by fact; beside it, what private counts leave.

    Args:
        facts: what the attacker learns at each step.
        named: the share of the rows that the facts so far give the right name.
        accuracies: how often "is she in the table?" is guessed right, from exact and from private
            counts.
        most: how often epsilon allows it to be.
    """
    figure, left = new_figure("", "", "", (9.4, max(3.2, 1.4 + 0.36 * len(facts))))
    grid = figure.add_gridspec(1, 2, width_ratios=(1.7, 1))
    left.set_subplotspec(grid[0])
    right = _quiet(figure.add_subplot(grid[1]))
    rows = np.arange(len(facts))[::-1]
    _bars(left, rows, named, [COLOURS[1]] * len(facts))
    left.set_yticks(rows, [fact if place == 0 else f"+ {fact}" for place, fact in enumerate(facts)])
    _head(left, "Names put back to rows without names", "share of rows, by what is known")
    _bars(right, np.array([1, 0]), accuracies, [COLOURS[1], COLOURS[0]])
    right.set_yticks([1, 0], ["exact counts", "private counts"])
    right.set_ylim(-0.9, 1.6)
    for place, style, label in ((0.5, ":", "a coin"), (most, "--", "epsilon allows")):
        right.axvline(place, color=INK, linewidth=1, linestyle=style, label=label)
    right.legend(loc="lower right", frameon=True, facecolor="white", edgecolor="none", fontsize=9)
    _head(right, "Is she in the table?", "share of guesses right")
    return figure


def _bars(
    axes: Axes, rows: NDArray[np.int64], shares: Sequence[float], colours: Sequence[str]
) -> None:
    """Bars from the left, each with its share behind it."""
    axes.barh(rows, shares, height=0.55, color=list(colours))
    for row, share in zip(rows, shares, strict=True):
        axes.annotate(
            f"{share:.1%}",
            (share, float(row)),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_xlim(0, 1.24)
    axes.set_xticks(np.linspace(0, 1, 5))
    axes.xaxis.set_major_formatter(_per_cent())
    axes.grid(False, axis="y")


def _colours(count: int) -> list[str]:
    """As many as asked for, the strong one first: what succeeds is orange."""
    order = (COLOURS[1], COLOURS[0], *COLOURS[2:])
    return [order[place % len(order)] for place in range(count)]


def _per_cent() -> FuncFormatter:
    return FuncFormatter(lambda share, _: f"{100 * share:.4g}%")
