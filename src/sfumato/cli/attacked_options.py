"""Options that all attacks on models share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Data", "Declared", "Model", "Run", "Seed", "Test", "Trust"]

_WHAT = "What is attacked"

Run = Annotated[
    Path | None, typer.Option(help="The folder of a finished run.", rich_help_panel=_WHAT)
]
Model = Annotated[
    str | None,
    typer.Option(
        help="FILE.py:FUNCTION, which returns a torch module, or a function from NumPy inputs "
        "(floats between 0 and 1, channels first) to rows of probabilities.",
        rich_help_panel=_WHAT,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        help="What it was trained on: a named data set or a file; a run knows its own.",
        rich_help_panel=_WHAT,
    ),
]
Declared = Annotated[
    Path | None, typer.Option(help="What is public about your own data.", rich_help_panel=_WHAT)
]
Test = Annotated[
    str | None,
    typer.Option(help="Examples that were not trained on.", rich_help_panel=_WHAT),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Run the code of a run whose model is a function.", rich_help_panel=_WHAT
    ),
]
Seed = Annotated[int, typer.Option(help="Of the attack's own choices.")]
