"""How commands speak: tables for people, JSON for programs, a spinner for what takes a while."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from sfumato.core.guarantee import Guarantee, round_up

__all__ = [
    "console",
    "guarantee_table",
    "kept_for_later",
    "number",
    "plain_table",
    "print_json",
    "working",
]


def console(stderr: bool = False) -> Console:
    """A console on the stream as it is now, so that redirection and tests see it.

    What stands in brackets is printed as it is: names, paths and words that were typed have them.
    """
    file = sys.stderr if stderr else sys.stdout
    return Console(file=file, highlight=False, soft_wrap=False, markup=False, emoji=False)


def print_json(data: dict[str, Any]) -> None:
    """One JSON object on standard output; ``epsilon`` infinite is the text "inf"."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


@contextmanager
def working(what: str) -> Generator[None]:
    """A spinner on standard error while something takes its time; nothing where no one looks."""
    with console(stderr=True).status(f"{what} ..."):
        yield


def number(value: float | None) -> str:
    """A number for people: four significant digits or all whole ones, rounded up."""
    if value is None:
        return ""
    if math.isinf(value):
        return "infinite"
    return f"{math.ceil(value):,}" if value > 1000 else f"{round_up(value):.4g}"


def plain_table(title: str) -> Table:
    """A table with a line under its headings and nothing else drawn."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )


def guarantee_table(guarantee: Guarantee, facts: dict[str, str]) -> Table:
    """The guarantee and what led to it, as two columns."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("epsilon", number(guarantee.epsilon))
    table.add_row("delta", f"{guarantee.delta:g}")
    table.add_row("neighbours", guarantee.neighbours.describe(guarantee.unit))
    table.add_row("accountant", guarantee.accountant)
    if guarantee.note:
        table.add_row("note", guarantee.note)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


@contextmanager
def kept_for_later(folder: Path) -> Generator[None]:
    """Says what to do after an interruption."""
    try:
        yield
    except KeyboardInterrupt:
        said = f"What is done is kept in {folder}: the same command goes on from there."
        console(stderr=True).print(said, markup=False, soft_wrap=True)
        raise
