"""Small tables for notebooks: what an object says of itself, as HTML.

A table asks no other machine for anything, runs no script, and takes the colours of the page it is
shown on. Everything in it is escaped: names come from files and from people.

    >>> shown = facts_table("Guarantee", [("epsilon", 0.947), ("unit", "<b>person</b>")])
    >>> "0.947" in shown, "&lt;b&gt;person&lt;/b&gt;" in shown
    (True, True)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

__all__ = ["CURATOR", "facts_table"]

CURATOR = "For the curator only: measured with private data, not for publication."
"""What stands below everything that was read from private data without being charged."""

_LONGEST_TEXT, _LONGEST_DATA = 2000, 240
# Notebooks read dollars as mathematics unless they are told not to.
_IGNORED = "sfumato tex2jax_ignore mathjax_ignore"
_WHOLE = "color:inherit;font-size:0.95em;margin:0.4em 0"
_STAMP = (
    "display:inline-block;border:2px solid currentColor;padding:0.3em 0.7em;margin:0 0 0.5em;"
    "font-weight:bold"
)
_TABLE = "border-collapse:collapse;margin:0;color:inherit;font-variant-numeric:tabular-nums"
_CAPTION = (
    "caption-side:top;text-align:left;font-weight:bold;color:inherit;padding:0 0 0.3em;"
    "white-space:normal"
)
_CELL = (
    "text-align:left;vertical-align:top;padding:0.2em 1.2em 0.2em 0;color:inherit;"
    "border:0;white-space:normal;max-width:44em"
)
_HEAD = f"{_CELL};border-bottom:1px solid currentColor"
_NAME = f"{_CELL};font-weight:normal;opacity:0.75"
_NOTE = "margin:0.4em 0 0;opacity:0.75"


def facts_table(
    title: str,
    rows: Sequence[Sequence[object]],
    *,
    headings: Sequence[str] = (),
    stamp: str = "",
    note: str = "",
) -> str:
    """A quiet table: a title, rows, and a line below.

    Args:
        title: what it is about.
        rows: cells of each, the first of which is the row's name if there are no ``headings``.
        headings: one a column.
        stamp: what nobody may overlook, in a frame above the table.
        note: what a reader must know besides.
    """
    above = f'<p style="{_STAMP}">{escape(stamp)}</p>' if stamp else ""
    caption = f'<caption style="{_CAPTION}">{escape(title)}</caption>' if title else ""
    below = f'<p style="{_NOTE}">{escape(note)}</p>' if note else ""
    body = "".join(_row(row, named=not headings) for row in rows)
    return (
        f'<div class="{_IGNORED}" style="{_WHOLE}">{above}<table style="{_TABLE}">{caption}'
        f"{_head(headings)}<tbody>{body}</tbody></table>{below}</div>"
    )


def _head(headings: Sequence[str]) -> str:
    if not headings:
        return ""
    cells = "".join(f'<th scope="col" style="{_HEAD}">{escape(name)}</th>' for name in headings)
    return f"<thead><tr>{cells}</tr></thead>"


def _row(row: Sequence[object], *, named: bool) -> str:
    cells = [
        f'<th scope="row" style="{_NAME}">{escape(_text(cell))}</th>'
        if named and place == 0
        else f'<td style="{_CELL}">{escape(_text(cell))}</td>'
        for place, cell in enumerate(row)
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _text(value: Any) -> str:
    """In plain words; what is long is cut, and says so."""
    if isinstance(value, str):
        return _cut(value, _LONGEST_TEXT)
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, Mapping | list | tuple):
        return _cut(json.dumps(value, default=str, ensure_ascii=False), _LONGEST_DATA)
    return _cut(str(value), _LONGEST_TEXT)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"
