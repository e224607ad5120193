"""A bar on standard error while something is fetched; nothing where no one looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

__all__ = ["Advance", "shown"]

Advance = Callable[[int, int | None], None]
"""Takes how many bytes are there, and how many there will be if that is known."""


@contextmanager
def shown(what: str) -> Generator[Advance]:
    """Shows ``what`` with how far it is, on a terminal; elsewhere it says nothing."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
