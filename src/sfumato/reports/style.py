"""One look for every figure: quiet axes, colours that survive grey printing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["COLOURS", "INK", "PALE", "Drawing", "new_figure", "save"]

INK, PALE = "#1f2430", "#c9ced6"
COLOURS = ("#1b5e8c", "#d1662b", "#4d9078", "#8a5a99", "#b8932f", "#9c3d54")

_STYLE = {
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "font.size": 10,
    "grid.color": "#e6e8ec",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


_NOTEBOOK_DPI = 110


@final
class Drawing(Figure):
    """A figure that notebooks show by themselves, without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=_NOTEBOOK_DPI)
        return buffer.getvalue()

    def save(self, path: str | Path) -> Path:
        """Writes it in the format that the name ends in; see :func:`save`."""
        return save(self, path)


def new_figure(
    title: str, xlabel: str, ylabel: str, size: tuple[float, float] = (7.2, 4.4)
) -> tuple[Drawing, Axes]:
    """A figure with one pair of axes, made without pyplot, so that nothing global changes."""
    with mpl.rc_context(_STYLE):  # pyright: ignore[reportArgumentType]
        figure = Drawing(figsize=size, dpi=150, layout="constrained")
        axes = figure.subplots()
        axes.set_title(title, pad=12)
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(True, axis="both", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, axes


def save(figure: Figure, path: str | Path) -> Path:
    """Writes the figure in the format its name ends in (png, svg, pdf), making its folder.

    Raises:
        ValueError: for a name whose ending is no known format.
    """
    path = Path(path)
    known = sorted(figure.canvas.get_supported_filetypes())
    if path.suffix.lstrip(".").lower() not in known:
        raise ValueError(f"plot file must end in one of {', '.join(known)}, got {str(path)!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    return path
