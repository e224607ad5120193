"""The figure of planted secrets, from plain numbers: how little they surprise, beside all others.

What it shows was measured on a model of private data: it is for the curator, as the results are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["Canary", "exposure_figure"]

Canary = tuple[str, float, float]
"""A label, how surprising the canary is, and its exposure in bits."""

_LABELLED = 6
_BINS = 60


def exposure_figure(
    candidates: ArrayLike,
    canaries: Sequence[Canary],
    *,
    title: str = "How little a planted secret surprises the model",
) -> Figure:
    """A histogram of candidates' surprise, canaries marked; below it, who is as low by chance.

    The lower panel has a curve: for each surprise, the logarithm of the share of the candidates
    that surprise no more. A canary that was never planted lies on it. The six most exposed
    canaries are named. Numbers that are infinite count, but are not drawn.

    Args:
        candidates: how surprising each sequence of the format is, or each of a sample of them.
        canaries: the secrets in question.
        title: of the figure.
    """
    every = np.sort(np.asarray(candidates, dtype=np.float64).ravel())
    finite = every[np.isfinite(every)]
    drawn = [canary for canary in canaries if np.isfinite(canary[1])]
    if not len(finite) or np.isnan(every).any():
        validation.fail("candidates", "numbers, one or more of them finite", len(every))
    figure, upper = new_figure(title, "", "candidates", (7.2, 5.6))
    grid = figure.add_gridspec(2, 1, height_ratios=(1, 1.1))
    upper.set_subplotspec(grid[0])
    lower = figure.add_subplot(grid[1], sharex=upper)
    _histogram(upper, finite, drawn)
    _chances(lower, finite, len(every), drawn)
    return figure


def _histogram(axes: Axes, values: NDArray[np.float64], canaries: Sequence[Canary]) -> None:
    places = np.array([surprise for _, surprise, _ in canaries])
    both = np.concatenate([values, places])
    edges = np.linspace(both.min(), both.max(), _BINS + 1)
    if edges[0] == edges[-1]:
        edges = edges[0] + np.linspace(-0.5, 0.5, _BINS + 1)
    axes.hist(values, edges.tolist(), color=COLOURS[0], alpha=0.6, label="candidates")
    for place in places.tolist():
        axes.axvline(place, color=COLOURS[1], linewidth=1.5)
    axes.tick_params(labelbottom=False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))


def _chances(
    axes: Axes, values: NDArray[np.float64], count: int, canaries: Sequence[Canary]
) -> None:
    """In bits upwards, and in shares on the right."""
    _quiet(axes)
    bits = -np.log2(np.arange(1, len(values) + 1) / count)
    axes.step(values, bits, where="post", color=COLOURS[0], linewidth=2, label="candidates")
    for _, surprise, exposure in canaries:
        axes.plot(
            [surprise], [exposure], "o", color=COLOURS[1], markersize=7, markeredgecolor="white"
        )
    _names(axes, canaries)
    highest = max([float(bits[0]), *(exposure for *_, exposure in canaries)])
    axes.set_ylim(-0.04 * highest, 1.12 * max(highest, 1.0))
    axes.set_xlabel("how surprising to the model")
    axes.set_ylabel("exposure in bits")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    right = axes.secondary_yaxis("right", functions=(_same, _same))
    right.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    right.yaxis.set_major_formatter(FuncFormatter(_one_in))
    right.set_ylabel("by chance", color=INK)
    right.tick_params(colors=PALE, labelcolor=INK)
    right.spines["right"].set_color(PALE)


def _names(axes: Axes, canaries: Sequence[Canary]) -> None:
    """Beside the dots of the most exposed, towards the middle."""
    left, right = axes.get_xlim()
    most = sorted(canaries, key=lambda canary: -canary[2])[:_LABELLED]
    for label, surprise, exposure in most:
        before = surprise > (left + right) / 2
        short = label if len(label) <= 28 else f"{label[:27]}…"
        axes.annotate(
            short,
            (surprise, exposure),
            xytext=(-8 if before else 8, 3),
            textcoords="offset points",
            ha="right" if before else "left",
            fontsize=9,
            color=INK,
            parse_math=False,
        )


def _same(values: ArrayLike) -> ArrayLike:
    return values


def _one_in(bits: float, _: int | None = None) -> str:
    if bits < 0 or bits > 60:
        return "" if bits < 0 else f"2^-{bits:.0f}"
    times = 2.0**bits
    return f"1 in {times:,.0f}" if times < 1e6 else f"1 in {times:.0e}"


def _quiet(axes: Axes) -> None:
    """Quiet axes, as those of ``new_figure``."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(PALE)
    axes.tick_params(colors=INK, labelcolor=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_color(INK)
    axes.grid(True, linewidth=0.8, color="#e6e8ec")
    axes.set_axisbelow(True)
