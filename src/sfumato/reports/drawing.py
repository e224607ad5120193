"""Figures within a page: drawings that take the page's own colours, by day and by night."""

from __future__ import annotations

import hashlib
import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

from sfumato.reports.style import INK, PALE

__all__ = ["drawn"]

_THEMED = {
    INK: "currentColor", PALE: "var(--line)", "#e6e8ec": "var(--line)", "#000000": "currentColor",
    "#ffffff": "var(--paper)",
}  # fmt: skip


def drawn(figure: Figure, alt: str) -> str:
    """An SVG element that scales with the page, names no other file, and is read out as ``alt``."""
    salt = hashlib.blake2b(alt.encode(), digest_size=8).hexdigest()  # identifiers of its own
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    head, rest = text.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    for colour, theme in _THEMED.items():
        rest = rest.replace(colour, theme)
    return f'{head} role="img" aria-label="{_attribute(alt)}">{rest.strip()}'


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
