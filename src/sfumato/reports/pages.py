"""A page by itself: HTML that asks no other machine for anything, for screens, phones and paper."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

__all__ = ["Part", "Picture", "Table", "Text", "page"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --paper: #fff; --pale: #c5cad3; --note: #5b6472; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaee; --paper: #14171d; --pale: #3a4150; --note: #9aa4b2; }
  img { background: #fff; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
th, td { padding: 0.3rem 0.8rem 0.3rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { border-bottom: 1px solid var(--pale); font-weight: 600; }
caption { text-align: left; font-weight: 600; padding-bottom: 0.3rem; }
img { max-width: 100%; height: auto; border-radius: 4px; }
.note { color: var(--note); font-size: 0.9rem; }
@media print { body { margin: 0; max-width: none; } table, img { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Text:
    """A paragraph, or a heading, or a remark in small letters."""

    text: str
    kind: str = "p"

    def html(self) -> str:
        """As HTML; the text is plain."""
        if self.kind == "note":
            return f'<p class="note">{escape(self.text)}</p>'
        return f"<{self.kind}>{escape(self.text)}</{self.kind}>"


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; the first column says what a row is about."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""

    def html(self) -> str:
        """As HTML, which scrolls sideways on narrow screens."""
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.headings)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        return f'<div class="scroll"><table>{caption}<tr>{head}</tr>{body}</table></div>'


@dataclass(frozen=True)
class Picture:
    """A figure, kept within the page."""

    figure: Figure
    alt: str

    def html(self) -> str:
        """As HTML with the picture in it."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144)
        data = base64.b64encode(buffer.getvalue()).decode()
        return f'<p><img alt="{escape(self.alt)}" src="data:image/png;base64,{data}"></p>'


Part = Text | Table | Picture


def page(title: str, parts: Sequence[Part]) -> str:
    """The whole page."""
    body = "\n".join(part.html() for part in parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
