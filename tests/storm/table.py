"""A log of storms, added up."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

__all__ = ["table"]

_COLUMNS = ("kills", "late", "others", "overspent", "lost", "wrong", "double", "minutes")
_HEADINGS = (
    "kind", "pieces", "kills", "at calls", "fresh", "too late", "others", "overspent", "lost",
    "wrong", "double", "minutes",
)  # fmt: skip


def table(log: list[dict[str, Any]]) -> str:
    """Markdown: a row a kind, and one for all.

    *at calls* and *fresh* are shares of the kills, the others were forks killed at a moment; *too
    late* came when a child had ended, and is no kill; *others* are servers that were killed, and
    failures that processes met on a bad disk.
    """
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in log:
        for kind in (line["kind"], "all"):
            row = sums[kind]
            row["pieces"] += 1
            row["calls"] += line["how"].get("call", 0)
            row["fresh"] += line["how"].get("fresh", 0)
            for column in _COLUMNS:
                row[column] += line[column]
    total = sums.pop("all", None)
    rows = list(sums.items()) + ([("all", total)] if total else [])
    lines = ["| " + " | ".join(_HEADINGS) + " |", "|---" + "|---:" * (len(_HEADINGS) - 1) + "|"]
    for kind, row in rows:
        names = ("pieces", "kills", "calls", "fresh", *_COLUMNS[1:])
        cells = [f"{row[name]:,.0f}" for name in names]
        lines.append("| " + " | ".join([kind, *cells]) + " |")
    return "\n".join(lines)
