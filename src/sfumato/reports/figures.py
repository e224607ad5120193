"""The figures of accounting and of the first attacks, from plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import ArrayLike

from sfumato.core.guarantee import round_up
from sfumato.reports.style import COLOURS, INK, new_figure

__all__ = [
    "averaging_figure",
    "comparison_figure",
    "crossover_figure",
    "epsilon_curve_figure",
    "trade_off_figure",
]


def comparison_figure(
    names: Sequence[str],
    epsilons: Sequence[float],
    claimed: Sequence[float | None],
    title: str = "The same training run, by each composition theorem",
) -> Figure:
    """Bars on a log axis: what each theorem proves, and beside it what was claimed."""
    figure, axes = new_figure(title, "epsilon (log scale, shorter is better)", "", (8.0, 4.6))
    rows = np.arange(len(names))[::-1]
    axes.barh(rows, epsilons, height=0.55, color=COLOURS[0], label="theorem, done right")
    marks = [(row, claim) for row, claim in zip(rows, claimed, strict=True) if claim is not None]
    if marks:
        axes.plot(
            [claim for _, claim in marks],
            [row for row, _ in marks],
            marker="D",
            linestyle="none",
            color=COLOURS[1],
            label="claimed on the slides",
        )
    for row, epsilon in zip(rows, epsilons, strict=True):
        shown = round_up(epsilon)
        axes.annotate(
            f"{shown:,.4g}" if shown < 1000 else f"{shown:,.0f}",
            (epsilon, float(row)),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_xscale("log")
    axes.set_xlim(min(epsilons) / 3, max(epsilons) * 6)
    axes.set_yticks(rows, list(names))
    axes.grid(False, axis="y")
    axes.legend(loc="lower right", frameon=False)
    return figure


def averaging_figure(
    queries: Sequence[int],
    means: Sequence[float],
    half_widths: Sequence[float],
    truth: float,
    epsilons: Sequence[float],
    allowed: int | None = None,
    confidence: float = 0.9,
) -> Figure:
    """The interval closing in on the truth as questions are repeated, with the epsilon spent.

    ``allowed``: after how many queries a budget would have refused.
    """
    figure, axes = new_figure(
        "Averaging attack: the noise averages away, the budget does not",
        "times the same question was asked (log scale)",
        f"estimate with {confidence:.0%} interval",
    )
    axes.axhline(truth, color=INK, linewidth=1, linestyle=":", label="true count")
    axes.errorbar(
        queries,
        means,
        yerr=half_widths,
        fmt="o",
        capsize=5,
        color=COLOURS[0],
        label="attacker's estimate",
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for k, mean, half, epsilon in zip(queries, means, half_widths, epsilons, strict=True):
        axes.annotate(
            f"epsilon {epsilon:.3g}",
            (k, mean + half),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=COLOURS[1],
        )
    axes.margins(y=0.18, x=0.12)
    if allowed is not None:
        limits = axes.get_xlim()
        axes.axvspan(
            max(allowed, limits[0]),
            10 * limits[1],
            color=COLOURS[1],
            alpha=0.08,
            label=f"refused by the budget after {allowed} queries",
        )
        axes.set_xlim(limits)
    axes.legend(loc="lower right", frameon=False)
    return figure


def crossover_figure(
    dimensions: ArrayLike,
    laplace: ArrayLike,
    gaussian: ArrayLike,
    crossover: int,
    epsilon: float,
    delta: float,
    error: str = "standard deviation of the noise",
) -> Figure:
    """The error of Laplace and Gaussian noise against the dimension, on log axes."""
    figure, axes = new_figure(
        f"Laplace or Gaussian? At epsilon {epsilon:g}, delta {delta:g}",
        "dimension k, every coordinate may move by 1",
        error,
    )
    axes.loglog(dimensions, laplace, color=COLOURS[0], linewidth=2, label="Laplace (pure)")
    axes.loglog(dimensions, gaussian, color=COLOURS[1], linewidth=2, label="Gaussian")
    axes.axvline(crossover, color=INK, linewidth=1, linestyle=":")
    axes.annotate(
        f"Gaussian is better from k = {crossover}",
        (crossover, axes.get_ylim()[0]),
        xytext=(6, 12),
        textcoords="offset points",
        fontsize=9,
        color=INK,
    )
    axes.legend(loc="upper left", frameon=False)
    return figure


def trade_off_figure(alphas: ArrayLike, betas: ArrayLike, label: str) -> Figure:
    """The trade-off curve: no attacker lies below it."""
    figure, axes = new_figure(
        "What an attacker cannot do",
        "false positive rate",
        "false negative rate, at least",
        (5.4, 5.0),
    )
    axes.plot([0, 1], [1, 0], color=INK, linewidth=1, linestyle=":", label="guessing")
    axes.plot(alphas, betas, color=COLOURS[0], linewidth=2, label=label)
    axes.fill_between(np.asarray(alphas), 0, np.asarray(betas), color=COLOURS[0], alpha=0.08)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(loc="upper right", frameon=False)
    return figure


def epsilon_curve_figure(steps: ArrayLike, epsilons: ArrayLike, delta: float) -> Figure:
    """Epsilon as training goes on."""
    figure, axes = new_figure("Epsilon as training goes on", "steps", f"epsilon at delta {delta:g}")
    axes.plot(steps, epsilons, color=COLOURS[0], linewidth=2)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    return figure
