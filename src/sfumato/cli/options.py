"""Options that several commands share, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_FORMATS = (".png", ".svg", ".pdf")


def _whole(text: str | int) -> int:
    """A whole number, written 10000 or 1e4."""
    number = float(text)
    if number != int(number):
        raise ValueError(f"{text!r} is not a whole number")
    return int(number)


def _plot_path(path: Path | None) -> Path | None:
    """Refuses an unknown format before anything is computed."""
    if path is not None and path.suffix.lower() not in _FORMATS:
        raise ValueError(f"plot file must end in {', '.join(_FORMATS)}, got {str(path)!r}")
    return path


__all__ = [
    "AccountantName",
    "AsJson",
    "Delta",
    "MaybeSteps",
    "NeighboursName",
    "NoiseMultiplier",
    "Plot",
    "SampleRate",
    "Steps",
    "Unit",
]

NoiseMultiplier = Annotated[
    float, typer.Option(help="Standard deviation of the noise over the clip norm (sigma).")
]
SampleRate = Annotated[
    float, typer.Option(help="Probability that a record enters a lot: lot size over N.")
]
Steps = Annotated[
    int,
    typer.Option(
        parser=_whole, metavar="INTEGER", help="Number of steps (lots), empty ones included."
    ),
]
MaybeSteps = Annotated[
    int | None, typer.Option(parser=_whole, metavar="INTEGER", help="Number of steps.")
]
Delta = Annotated[float, typer.Option(help="The delta at which epsilon is stated, below 1/N.")]
NeighboursName = Annotated[
    str | None,
    typer.Option(
        "--neighbours",
        help="add-remove, replace-one or zero-out. Default: as the mechanism declares.",
    ),
]
AccountantName = Annotated[
    str, typer.Option("--accountant", help="pld (exact), rdp, moments, strong or basic.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Plot = Annotated[
    Path | None,
    typer.Option(callback=_plot_path, help="Also draw a plot into this file (png, svg or pdf)."),
]
Unit = Annotated[str, typer.Option(help="Whose data is protected: record, person, ...")]
