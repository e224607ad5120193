"""Options that several commands share, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AccountantName",
    "AsJson",
    "Delta",
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
Steps = Annotated[int, typer.Option(help="Number of steps (lots), empty ones included.")]
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
    Path | None, typer.Option(help="Also draw a plot into this file (png, svg or pdf).")
]
Unit = Annotated[str, typer.Option(help="Whose data is protected: record, person, ...")]
