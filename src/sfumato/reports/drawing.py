"""Figures within a page: drawings that take the page's own colours, by day and by night."""

from __future__ import annotations

import hashlib
import io
import re
from html import escape

import matplotlib as mpl
from matplotlib.figure import Figure

from sfumato.reports.style import COLOURS, INK, PALE

__all__ = ["as_label", "drawn"]

_THEMED = {
    INK: "currentColor", PALE: "var(--line)", "#e6e8ec": "var(--line)", "#000000": "currentColor",
    "#ffffff": "var(--paper)",
} | {colour: f"var(--c{place}, {colour})" for place, colour in enumerate(COLOURS)}  # fmt: skip


def as_label(name: str) -> str:
    """A name as words of a figure: no formula, and no secret one that a legend leaves out."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def drawn(figure: Figure, alt: str, source: str = "") -> str:
    """An SVG element that scales with the page, names no other file, and is read out as ``alt``.

    Its ``--w`` is its width in points: a page makes it no smaller than letters allow.
    """
    salt = hashlib.blake2b(f"{alt}{source}".encode(), digest_size=8).hexdigest()
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = _without_idle_names(text)
    head, rest = text.split(">", 1)
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    for colour, theme in _THEMED.items():
        rest = rest.replace(colour, theme)
    width = round(72 * figure.get_size_inches()[0])
    said = escape(alt, quote=True)
    return f'{head} role="img" aria-label="{said}" style="--w: {width}">{rest.strip()}'


def _without_idle_names(svg: str) -> str:
    """Without the identifiers that nothing refers to, which other figures have, too."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', svg))
    return re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in used else "", svg)
