"""How large a question may be: checked when it is priced, so that none fails after its charge.

The figures are declared, and the same for every table. A question at a limit takes about half a
minute on one core, and about a gigabyte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sized
from typing import Any

__all__ = [
    "MOST_BINS",
    "MOST_CANDIDATES",
    "MOST_CELLS",
    "MOST_KEYS",
    "MOST_TRIALS",
    "check_size",
    "listed",
]

MOST_BINS = 10_000
"""Bins of one axis; the engine is sent a tree of comparisons."""
MOST_KEYS = 100_000
"""Public categories of one column; the engine is sent all of them."""
MOST_CELLS = 1_000_000
"""Cells of one answer."""
MOST_CANDIDATES = 1_000_000
"""Parts into which a quantile's range falls."""
MOST_TRIALS = 10_000_000
"""Candidates of all cells' quantiles together, and of all winners' choices."""


def check_size(what: str, size: int, most: int, remedy: str) -> None:
    """Refuses what is larger than a limit.

    Raises:
        ValueError: with what to do instead.
    """
    if size > most:
        raise ValueError(f"{what} must be at most {most:,}, got {size:,}: {remedy}")


def listed(what: str, given: Iterable[Any], most: int, remedy: str) -> tuple[Any, ...]:
    """All that is given, of which no more than one too many is read.

    Raises:
        ValueError: if it is more than a limit.
    """
    if isinstance(given, Sized):
        check_size(what, len(given), most, remedy)
    found = tuple(itertools.islice(given, most + 1))
    if len(found) > most:
        raise ValueError(f"{what} must be at most {most:,}, got more: {remedy}")
    return found
