"""The figures of membership inference, from plain numbers.

What they show was measured with private data, the pictures of the most exposed people included:
they are for the curator, as the results are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.reports.attack_figures import Curve, Scores, roc_figure, score_figure
from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = [
    "Band",
    "gap_figure",
    "membership_roc_figure",
    "membership_score_figure",
    "most_exposed_figure",
]

Band = tuple[str, ArrayLike, ArrayLike, ArrayLike]
"""A curve's label, rates of false alarms, and the lower and upper limits of what is found there."""

_MOST_PICTURES = 100


def membership_roc_figure(
    curves: Sequence[Curve],
    bands: Sequence[Band] = (),
    *,
    epsilon: float | None = None,
    delta: float = 0.0,
    claims: Mapping[str, tuple[float, float]] | None = None,
    lowest: float = 1e-4,
    others: int | None = None,
    title: str = "Members found at each rate of false alarms",
) -> Figure:
    """Curves on log axes with their intervals, and what differential privacy forbids, shaded.

    Args:
        curves: labels, false positive rates and true positive rates.
        bands: limits of some of the curves, by their labels.
        epsilon: of a claim whose bound is drawn.
        delta: of that claim.
        claims: epsilon and delta of single curves, by their labels: each bound is drawn for its
            own curve, since none says anything about another run.
        lowest: where both axes begin.
        others: how many non-members were scored; left of 1 / ``others``, where there is less than
            one false alarm, the figure says so.
        title: its heading.
    """
    figure = roc_figure(curves, epsilon, lowest, title, delta, claims)
    (axes,) = figure.axes
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    for place, (label, rates, lower, upper) in enumerate(bands):
        if label not in colours:
            validation.fail("a band's label", f"one of {list(colours)}", label)
        low = np.maximum(np.asarray(lower, dtype=np.float64), lowest / 10)  # 0 has no logarithm
        axes.fill_between(
            np.asarray(rates, dtype=np.float64),
            low,
            np.asarray(upper, dtype=np.float64),
            color=colours[label],
            alpha=0.18,
            linewidth=0,
            zorder=1.5,
            label="limits, each at its rate" if place == 0 else None,
        )
    _names_below(figure, axes, [label for label, _, _ in curves])
    if others is not None and 1 / others > lowest:
        _unseen(axes, lowest, 1 / others)
    return figure


def _names_below(figure: Figure, axes: Axes, labels: Sequence[str]) -> None:
    """Names below the axes, where they cover no curve; dots where colours begin again."""
    lines = {line.get_label(): line for line in axes.lines}
    for label in labels[len(COLOURS) :]:
        lines[label].set_linestyle(":")
    legend = axes.get_legend()
    if legend is not None:
        legend.remove()
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.18 * math.ceil(len(names) / 2))


def _unseen(axes: Axes, lowest: float, first: float) -> None:
    """The part of the axis in which not one false alarm was counted."""
    axes.axvspan(lowest, first, facecolor="none", edgecolor=PALE, hatch="///", linewidth=0)
    axes.axvline(first, color=PALE, linewidth=1)
    axes.annotate(
        "less than one false alarm",
        (math.sqrt(lowest * first), 0.5),
        xycoords=("data", "axes fraction"),
        rotation=90,
        ha="center",
        va="center",
        fontsize=8,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
    )


def membership_score_figure(
    panels: Sequence[Scores],
    thresholds: Sequence[float | None] | None = None,
    xlabel: str = "score (the outermost bars hold all beyond)",
    log: bool = True,
) -> Figure:
    """Histograms of the scores of members and of others, one panel an attack.

    Args:
        panels: a heading, the scores of members, and those of others.
        thresholds: from which score on each attack calls a member; None for one that does not.
        xlabel: what scores are.
        log: shares on a log axis, where the few who are most exposed can be seen.
    """
    figure = score_figure(panels, xlabel=xlabel, ylabel="share of candidates")
    marks = [None] * len(panels) if thresholds is None else list(thresholds)
    if len(marks) != len(panels):
        validation.fail("thresholds", f"one for each of {len(panels)} panels", marks)
    for axes, mark in zip(figure.axes, marks, strict=True):
        if mark is not None and math.isfinite(mark):
            axes.axvline(mark, color=INK, linewidth=1, linestyle="--", label="called a member from")
        if log:
            _log_shares(axes)
    legend = figure.axes[-1].get_legend()
    if legend is not None:
        legend.remove()  # it would lie on the bars
    named: dict[str, Artist] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=3, frameon=False
    )
    return figure


def _log_shares(axes: Axes) -> None:
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    axes.set_yscale("log")
    axes.set_ylim(min(height for height in heights if height > 0) / 2, 2 * max(heights))
    axes.yaxis.set_major_formatter(_per_cent())


def most_exposed_figure(
    pictures: ArrayLike,
    scores: Sequence[float],
    captions: Sequence[str] | None = None,
    columns: int = 5,
    title: str = "The members who are most exposed",
) -> Figure:
    """A grid of pictures with their scores, in the order given.

    Args:
        pictures: of shape (pictures, height, width) or (pictures, height, width, channels) with 1,
            3 or 4 channels. Whole numbers are read as 0 to 255; others from their least to their
            largest.
        scores: one for each.
        captions: a word for each, such as its class or its place among the candidates.
        columns: how many are side by side.
        title: the heading.
    """
    shown = _grid_of(pictures)
    words = [""] * len(shown) if captions is None else list(captions)
    if not len(shown) == len(scores) == len(words):
        sizes = len(shown), len(scores), len(words)
        validation.fail("pictures, scores and captions", "of the same number", sizes)
    across = min(validation.count("columns", columns), len(shown))
    down = math.ceil(len(shown) / across)
    size = (1.35 * max(across, 3) + 0.3, 1.75 * down + 0.4)
    figure, first = new_figure("", "", "", size)
    first.remove()
    figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold", color=INK)
    for place, (picture, score, word) in enumerate(zip(shown, scores, words, strict=True)):
        axes = figure.add_subplot(down, across, place + 1)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(PALE)
        said = f"score {score:.3g}"
        axes.set_xlabel(f"{word}\n{said}" if word else said, fontsize=9, color=INK)
    return figure


def _grid_of(pictures: ArrayLike) -> NDArray[np.float64]:
    raw = np.asarray(pictures)
    if raw.ndim not in (3, 4) or raw.size == 0 or (raw.ndim == 4 and raw.shape[3] not in (1, 3, 4)):
        wanted = "of shape (pictures, height, width) or with 1, 3 or 4 channels last"
        validation.fail("pictures", wanted, raw.shape)
    if len(raw) > _MOST_PICTURES:
        validation.fail("pictures", f"{_MOST_PICTURES} at most", len(raw))
    values = raw.astype(np.float64)
    low, high = (0.0, 255.0) if raw.dtype.kind in "ui" else (values.min(), values.max())
    scaled = np.clip((values - low) / (high - low if high > low else 1.0), 0, 1)
    return scaled[..., 0] if raw.ndim == 4 and raw.shape[3] == 1 else scaled


def gap_figure(
    gaps: ArrayLike,
    successes: ArrayLike,
    private: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    guessing: float = 0.5,
    ylabel: str = "AUC of the attack",
    title: str = "Models that overfit give their members away",
) -> Figure:
    """Success of an attack against overfitting, one dot a model.

    Args:
        gaps: accuracy on training data less accuracy on fresh data.
        successes: of the attack on each model: its AUC, or its advantage.
        private: which models were trained with differential privacy.
        names: a word beside each dot; empty ones are left out.
        guessing: the success of a guess: 0.5 for an AUC, 0 for an advantage.
        ylabel: what success is.
        title: the heading.
    """
    x, y = np.asarray(gaps, dtype=np.float64), np.asarray(successes, dtype=np.float64)
    kinds = np.asarray(private, dtype=bool)
    if not x.shape == y.shape == kinds.shape or x.ndim != 1:
        shapes = x.shape, y.shape, kinds.shape
        validation.fail("gaps, successes and private", "lists of the same length", shapes)
    words = [""] * len(x) if names is None else list(names)
    if len(words) != len(x):
        validation.fail("names", f"one for each of {len(x)} models", words)
    figure, axes = new_figure(title, "accuracy on members less accuracy on others", ylabel)
    axes.axhline(guessing, color=INK, linewidth=1, linestyle=":", label="guessing")
    for chosen, colour, marker, label in (
        (~kinds, COLOURS[1], "o", "not private"),
        (kinds, COLOURS[0], "D", "private"),
    ):
        if chosen.any():
            axes.scatter(
                x[chosen], y[chosen], 46, color=colour, marker=marker, alpha=0.85,
                edgecolor="white", linewidth=0.8, label=label, zorder=3,
            )  # fmt: skip
    for word, place in zip(words, zip(x.tolist(), y.tolist(), strict=True), strict=True):
        axes.annotate(word, place, xytext=(7, 4), textcoords="offset points", fontsize=8, color=INK)
    axes.xaxis.set_major_formatter(_per_cent())
    axes.margins(0.09, 0.12)
    axes.legend(loc="upper left", frameon=True, facecolor="white", edgecolor="none")
    return figure


def _per_cent() -> FuncFormatter:
    return FuncFormatter(lambda share, _: f"{100 * share:.4g}%")
