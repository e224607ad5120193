"""A report as one HTML page that asks no other machine for anything: screens, phones, paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from sfumato.reports.documents import (
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Missing,
    Paragraph,
    Picture,
    Piece,
    Section,
    Table,
    pieces_of,
)
from sfumato.reports.drawing import drawn
from sfumato.reports.facts import Fact

__all__ = ["block_html", "to_html"]

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --paper: #fff; --line: #d5d9e0; --note: #5b6472;
        --accent: #1b5e8c; --warn: #9c3d54; --tint: #f4f6f9; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaee; --paper: #14171d; --line: #3a4150; --note: #a3adbb; --accent: #7db8e0;
          --warn: #f09aa9; --tint: #1c2129; }
}
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
       background: var(--paper); max-width: 52rem; margin: 2.5rem auto; padding: 0 1.25rem;
       overflow-wrap: break-word; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0.2rem 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.4rem 0 0.6rem; padding-top: 0.6rem;
     border-top: 1px solid var(--line); }
.edition { color: var(--note); font-size: 0.9rem; margin: 0; }
.lead { font-size: 1.15rem; }
.note { color: var(--note); font-size: 0.92rem; }
.warning { border-left: 4px solid var(--warn); padding: 0.3rem 0 0.3rem 0.9rem; }
.missing { border: 1px dashed var(--warn); border-radius: 6px; padding: 0.5rem 0.9rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.94rem; }
th, td { padding: 0.32rem 1.1rem 0.32rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 1px solid var(--line); font-weight: 600; vertical-align: bottom; }
tbody tr + tr td { border-top: 1px solid var(--line); }
td:first-child { color: var(--note); }
figure { margin: 1.2rem 0; } figure svg { width: 100%; max-width: 38rem; height: auto; }
figure svg text { fill: currentColor; }
figcaption { color: var(--note); font-size: 0.92rem; }
pre { background: var(--tint); border-radius: 6px; padding: 0.8rem 1rem; overflow-x: auto;
      white-space: pre-wrap; font-size: 0.88rem; }
data { font-variant-numeric: tabular-nums; cursor: help; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 34rem) { body { margin: 1.2rem auto; padding: 0 0.9rem; }
  h1 { font-size: 1.45rem; } th, td { padding-right: 0.8rem; } }
@media print { :root { --ink: #000; --paper: #fff; --note: #444; --line: #bbb; --tint: #f4f4f4; }
  body { margin: 0; max-width: none; font-size: 11pt; } h2 { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; } .scroll { overflow: visible; } }
"""


def to_html(document: Document) -> str:
    """The whole page."""
    title = escape(document.title)
    sections = "\n".join(_section(section) for section in document.sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{title}</title><style>{_STYLE}</style></head>\n'
        f'<body><p class="edition">{escape(_EDITIONS[document.edition])}</p><h1>{title}</h1>\n'
        f"{sections}\n{_footer(document)}</body></html>\n"
    )


_EDITIONS = {
    "publishable": "Privacy card. Everything on it was paid for or is public: it may be published.",
    "curator": "For the curator only. It tells what was measured with private data: keep it.",
}


def _section(section: Section) -> str:
    heading = f"<h2>{escape(section.heading)}</h2>\n" if section.heading else ""
    blocks = "\n".join(block_html(block) for block in section.blocks)
    return f"<section>{heading}{blocks}</section>"


def block_html(block: Block) -> str:
    """One block."""
    match block:
        case Paragraph():
            known = block.kind if block.kind in ("lead", "note", "warning") else ""
            kind = f' class="{known}"' if known else ""
            return f"<p{kind}>{_cell(block.text)}</p>"
        case Bullets():
            return "<ul>" + "".join(f"<li>{_cell(item)}</li>" for item in block.items) + "</ul>"
        case Code():
            return f"<pre><code>{_piece(block.text)}</code></pre>"
        case Table():
            return _table(block)
        case Picture():
            caption = f"<figcaption>{_cell(block.caption)}</figcaption>" if block.caption else ""
            source = escape(block.source, quote=True)
            return (
                f'<figure data-from="{source}">{drawn(block.figure, block.alt)}{caption}</figure>'
            )
        case Missing():
            remedy = f" {escape(block.remedy)}" if block.remedy else ""
            return (
                f'<p class="missing">Not on record: <code>{escape(block.place)}</code>.{remedy}</p>'
            )


def _table(block: Table) -> str:
    caption = f"<p><strong>{escape(block.caption)}</strong></p>" if block.caption else ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in block.headings)
    head = f"<thead><tr>{head}</tr></thead>" if any(block.headings) else ""
    body = "".join(_row(row) for row in block.rows)
    return f'{caption}<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def _row(row: Sequence[Cell]) -> str:
    return "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>"


def _cell(cell: Cell) -> str:
    return "".join(_piece(piece) for piece in pieces_of(cell))


def _piece(piece: Piece) -> str:
    if not isinstance(piece, Fact):
        return escape(piece)
    source = escape(piece.source, quote=True)
    value = piece.value if isinstance(piece.value, str) else json.dumps(piece.value)
    kept = f' value="{escape(value, quote=True)}"' if len(value) < 80 else ""
    return f'<data{kept} data-from="{source}" title="{source}">{escape(piece.text)}</data>'


def _footer(document: Document) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(mark)}</code></td></tr>"
        for name, mark in document.sources.items()
    )
    if not rows:
        return ""
    return (
        '<footer><p class="note">Made from these records alone; a number tells its own when it is '
        f'pointed at.</p><div class="scroll"><table class="note"><tbody>{rows}</tbody></table>'
        "</div></footer>"
    )
