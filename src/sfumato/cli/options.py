"""Options that several commands share, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import click
import typer

_FORMATS = (".png", ".svg", ".pdf")


def _whole(text: str | int) -> int:
    """A whole number, written 10000 or 1e4."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a whole number")


def _plot_path(path: Path | None) -> Path | None:
    """Refuses an unknown format before anything is computed."""
    if path is not None and path.suffix.lower() not in _FORMATS:
        raise ValueError(f"plot file must end in {', '.join(_FORMATS)}, got {str(path)!r}")
    return path


class _Seed(click.types.IntParamType):
    """What every generator takes: Python's, NumPy's and PyTorch's."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        seed = super().convert(value, param, ctx)
        if not 0 <= seed < 2**63:
            self.fail(f"a seed must be a whole number from 0 to 2^63 - 1, got {seed}", param, ctx)
        return seed


def bound_seeds(command: click.Command) -> None:
    """Every option ``--seed`` of the command and of those in it takes what generators take."""
    for parameter in command.params:
        if parameter.name == "seed":
            parameter.type = _Seed()
    for inner in getattr(command, "commands", {}).values():
        bound_seeds(inner)


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
    "bound_seeds",
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
