"""The figure of attacks on collaborative training: a row a defence, what each attacker gets in it.

What it shows was made from private data: it is for the curator.

    >>> import numpy as np
    >>> pictures = np.zeros((3, 8, 8))
    >>> figure = collaborative_figure(
    ...     [MatrixLine("none", "no promise", (pictures,), ("44.0 dB",), ("92 %",))],
    ...     ("one image",), ("accuracy",),
    ... )
    >>> [len(axes.images) for axes in figure.axes]
    [1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["MatrixLine", "collaborative_figure"]

_HIGH, _LABEL, _WORD, _GAP, _TOP = 0.62, 2.9, 0.95, 0.16, 0.8  # inches
_NUMBER, _SHARE = 0.66, 0.9


@final
@dataclass(frozen=True, eq=False)
class MatrixLine:
    """One defence.

    Attributes:
        name: of it.
        promise: what it guarantees, in a few words; empty for originals.
        pictures: what each attack gets, some images each; None where it gets none.
        scores: of each attack that has pictures, in words.
        numbers: of what has none.
    """

    name: str
    promise: str
    pictures: Sequence[ArrayLike | None]
    scores: Sequence[str]
    numbers: Sequence[str]


def collaborative_figure(
    lines: Sequence[MatrixLine],
    attacks: Sequence[str],
    measures: Sequence[str],
    *,
    title: str = "What attackers get out of collaborative training, by defence",
) -> Figure:
    """A matrix of pictures and numbers.

    Args:
        lines: from the top; the first may be the originals.
        attacks: those with pictures.
        measures: columns of numbers.
        title: of the figure.
    """
    strips = [[_strip(found) for found in line.pictures] for line in lines]
    columns = zip(*strips, strict=True)
    shapes = [[s.shape[1] / s.shape[0] for s in column if s is not None] for column in columns]
    widths = [_HIGH * _SHARE * max(ratios, default=1.0) + _NUMBER for ratios in shapes]
    wide = _LABEL + sum(widths) + _WORD * len(measures) + _GAP * (len(widths) + 1)
    high = _TOP + _HIGH * len(lines)
    figure, first = new_figure("", "", "", (wide, high))
    first.remove()
    figure.set_layout_engine("none")
    figure.text(
        0.1 / wide, 1 - 0.1 / high, title, va="top", fontsize=13, fontweight="bold", color=INK
    )
    at = _LABEL
    for place, (name, width) in enumerate(zip(attacks, widths, strict=True)):
        axes = _column(figure, at, width, name, len(lines), (wide, high))
        for row, line in enumerate(lines):
            _draw(axes, strips[row][place], row)
            axes.text(
                width / _HIGH, row, line.scores[place], ha="right", va="center", fontsize=9,
                color=INK,
            )  # fmt: skip
        axes.set_xlim(0, width / _HIGH)
        at += width + _GAP
    for place, name in enumerate(measures):
        axes = _column(figure, at, _WORD, name, len(lines), (wide, high), words=True)
        axes.set_xlim(0, 1)
        for row, line in enumerate(lines):
            axes.text(0.98, row, line.numbers[place], ha="right", va="center", fontsize=9)
        at += _WORD
    for row, line in enumerate(lines):
        y = 1 - (_TOP + _HIGH * (row + 0.5)) / high
        figure.text(0.1 / wide, y, line.name, va="bottom", fontsize=9.5, color=INK)
        figure.text(
            0.1 / wide, y - 0.02 / high, line.promise, va="top", fontsize=8, color=COLOURS[0]
        )
    return figure


def _column(
    figure: Figure,
    at: float,
    width: float,
    name: str,
    rows: int,
    size: tuple[float, float],
    words: bool = False,
) -> Axes:
    wide, high = size
    axes = figure.add_axes((at / wide, 0, width / wide, _HIGH * rows / high))
    axes.set_title(
        name, loc="right" if words else "left", fontsize=9.5, fontweight="bold", color=INK, pad=4
    )
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    for row in range(rows):
        axes.axhline(row - 0.5, color=PALE, linewidth=0.5)
    return axes


def _draw(axes: Axes, strip: NDArray[np.float64] | None, row: int) -> None:
    if strip is None:
        return
    width = _SHARE * strip.shape[1] / strip.shape[0]
    axes.imshow(
        strip, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto",
        extent=(0, width, row + 0.45, row - 0.45),
    )  # fmt: skip


def _strip(pictures: ArrayLike | None) -> NDArray[np.float64] | None:
    """Images side by side with a thin white line between them."""
    if pictures is None:
        return None
    found = np.asarray(pictures, dtype=np.float64)
    if found.ndim == 4 and found.shape[1] in (1, 3):
        found = np.moveaxis(found, 1, -1)
    if found.ndim == 4 and found.shape[-1] == 1:
        found = found[..., 0]
    if found.ndim not in (3, 4):
        raise ValueError(f"pictures must be images, got an array of shape {found.shape}")
    edge = max(1, found.shape[2] // 14)
    line = np.ones((found.shape[1], edge, *found.shape[3:]))
    parts = [part for one in found for part in (one, line)][:-1]
    return np.clip(np.concatenate(parts, axis=1), 0, 1)
