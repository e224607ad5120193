"""The figure of model inversion, from plain arrays: what comes out of a model, beside the truth.

What it shows was made from private data: it is for the curator, as the images are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from sfumato.reports.style import COLOURS, INK, PALE, new_figure

__all__ = ["ImageRow", "inversion_figure"]

ImageRow = tuple[str, ArrayLike, Sequence[bool] | None]
"""A label, an image for each class, and which a judge recognised; None if nobody judged."""


def inversion_figure(
    rows: Sequence[ImageRow],
    classes: Sequence[str],
    *,
    title: str = "What a class looks like, read off the model",
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> Figure:
    """One row of images for each model, one column for each class.

    Images that were recognised have an orange frame, others a pale one.

    Args:
        rows: what to show: class means first, then what came out of each model. Images are
            (height, width), or with one or three channels first or last.
        classes: the columns' names.
        title: of the figure.
        bounds: the values that are black and white; None stretches each image to its own.
    """
    pictures = [_pictures(label, images, len(classes)) for label, images, _ in rows]
    size = (1.6 + 0.72 * len(classes), 0.75 + 0.78 * len(rows))
    figure, first = new_figure(title, "", "", size)
    first.remove()
    grid = figure.subplots(
        len(rows), len(classes), squeeze=False, gridspec_kw={"wspace": 0.06, "hspace": 0.06}
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    for line, (label, _, recognised), images in zip(grid, rows, pictures, strict=True):
        seen = [None] * len(classes) if recognised is None else list(recognised)
        for axes, image, found in zip(line, images, seen, strict=True):
            _draw(axes, image, bounds)
            _frame(axes, found)
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=INK)
    for axes, name in zip(grid[0], classes, strict=True):
        axes.set_title(name, loc="center", fontsize=8, fontweight="normal", color=INK, pad=4)
    return figure


def _pictures(label: str, images: ArrayLike, count: int) -> NDArray[np.float64]:
    """As (count, height, width) or (count, height, width, 3)."""
    found = np.asarray(images, dtype=np.float64)
    if len(found) != count or found.ndim not in (3, 4):
        raise ValueError(f"{label!r} must have one image for each class, got {found.shape}")
    if found.ndim == 3:
        return found
    if found.shape[1] in (1, 3) and found.shape[-1] not in (1, 3):
        found = np.moveaxis(found, 1, -1)
    return found[..., 0] if found.shape[-1] == 1 else found


def _draw(axes: Axes, image: NDArray[np.float64], bounds: tuple[float, float] | None) -> None:
    low, high = (float(image.min()), float(image.max())) if bounds is None else bounds
    shown = np.clip((image - low) / max(high - low, 1e-12), 0, 1)
    axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])


def _frame(axes: Axes, recognised: bool | None) -> None:
    for spine in axes.spines.values():
        spine.set_visible(recognised is not None)
        spine.set_color(COLOURS[1] if recognised else PALE)
        spine.set_linewidth(2.0)
