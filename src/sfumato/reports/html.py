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

_WIDE = 4  # columns, from which on a table's rows are stacked on a phone
_LIGHT = """--ink: #1f2430; --paper: #fff; --line: #d5d9e0; --note: #5b6472; --warn: #9c3d54;
  --tint: #f4f6f9; --c0: #1b5e8c; --c1: #b5501a; --c2: #3c7d66; --c3: #8a5a99; --c4: #96741a;
  --c5: #9c3d54;"""
_DARK = """--ink: #e8eaee; --paper: #14171d; --line: #3a4150; --note: #a3adbb; --warn: #f09aa9;
  --tint: #1c2129; --c0: #7db8e0; --c1: #f0955e; --c2: #7cc4a8; --c3: #c79ad6; --c4: #dcb95c;
  --c5: #f09aa9;"""
_STYLE = (
    f""":root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
@media print {{ :root {{ color-scheme: light; {_LIGHT} --ink: #000; --note: #444; }} }}
"""
    """* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 52rem; margin: 2.5rem auto; padding: 0 1.25rem;
  overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0.2rem 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.4rem 0 0.6rem; padding-top: 0.6rem;
  border-top: 1px solid var(--line); }
.edition, .note, figcaption { color: var(--note); font-size: 0.92rem; }
.edition { margin: 0; }
.lead { font-size: 1.15rem; }
.warning { border-left: 4px solid var(--warn); padding: 0.3rem 0 0.3rem 0.9rem; }
.missing { border: 1px dashed var(--warn); border-radius: 6px; padding: 0.5rem 0.9rem; }
.caption { font-weight: 600; margin: 1.2rem 0 0; }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.94rem;
  overflow-wrap: normal; }
th, td { padding: 0.32rem 1.1rem 0.32rem 0; text-align: left; vertical-align: top; }
thead th { border-bottom: 1px solid var(--line); font-weight: 600; vertical-align: bottom; }
tbody tr + tr > * { border-top: 1px solid var(--line); }
tbody th { font-weight: inherit; color: var(--note); }
figure { margin: 1.2rem 0; }
figure svg { display: block; height: auto; width: 100%; max-width: calc(var(--w) * 1.4px);
  min-width: calc(var(--w) * 1px); }
figure svg text { fill: currentColor; }
pre { background: var(--tint); border-radius: 6px; padding: 0.8rem 1rem; overflow-x: auto;
  white-space: pre-wrap; font-size: 0.88rem; }
data { cursor: help; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) {
  body { margin: 1.2rem auto; padding: 0 0.9rem; }
  h1 { font-size: 1.45rem; }
  th, td { padding-right: 0.8rem; }
  table.wide, table.wide tbody, table.wide tr, table.wide th, table.wide td { display: block; }
  table.wide thead { display: none; }
  table.wide tr { border-top: 1px solid var(--line); padding: 0.5rem 0; }
  table.wide tr > * { border: 0; padding: 0.12rem 0; }
  table.wide tbody tr + tr > * { border: 0; }
  table.wide tbody th { color: inherit; font-weight: 600; }
  table.wide td { display: flex; justify-content: space-between; gap: 1rem; text-align: right; }
  table.wide td::before { content: attr(data-label); color: var(--note); text-align: left; }
  table.wide td:empty { display: none; }
}
@media print {
  body { margin: 0; max-width: none; font-size: 11pt; }
  h2 { break-after: avoid; }
  figure, tr, pre { break-inside: avoid; }
  .scroll { overflow: visible; }
  figure svg { min-width: 0; }
}
"""
)


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
    "publishable": "Publishable edition: made from public records alone.",
    "curator": "For the curator only: it tells what was measured with private data.",
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
            svg = drawn(block.figure, block.alt, block.source)
            return f'<figure data-from="{source}"><div class="scroll">{svg}</div>{caption}</figure>'
        case Missing():
            remedy = f" {escape(block.remedy)}" if block.remedy else ""
            command = f" <code>{escape(block.command)}</code>" if block.command else ""
            place = f"<code>{escape(block.place)}</code>"
            return f'<p class="missing">Not on record: {place}.{remedy}{command}</p>'


def _table(block: Table) -> str:
    caption = f'<p class="caption">{escape(block.caption)}</p>' if block.caption else ""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in block.headings)
    head = f"<thead><tr>{head}</tr></thead>" if any(block.headings) else ""
    body = "".join(_row(row, block.headings) for row in block.rows)
    wide = ' class="wide"' if len(block.headings) >= _WIDE else ""
    return f'{caption}<div class="scroll"><table{wide}>{head}<tbody>{body}</tbody></table></div>'


def _row(row: Sequence[Cell], headings: Sequence[str]) -> str:
    first, *others = row
    cells = "".join(
        f'<td data-label="{escape(name, quote=True)}">{_spanned(cell)}</td>'
        for cell, name in zip(others, headings[1:], strict=True)
    )
    return f'<tr><th scope="row">{_cell(first)}</th>{cells}</tr>'


def _spanned(cell: Cell) -> str:
    """One thing beside its label where rows are stacked; nothing where there is nothing."""
    text = _cell(cell)
    return f"<span>{text}</span>" if text else ""


def _cell(cell: Cell) -> str:
    return "".join(_piece(piece) for piece in pieces_of(cell))


def _piece(piece: Piece) -> str:
    if not isinstance(piece, Fact):
        return escape(piece)
    source = escape(piece.source, quote=True)
    value = piece.value if isinstance(piece.value, str) else json.dumps(piece.value)
    kept = f' value="{escape(value, quote=True)}"' if len(value) < 80 else ""
    text = escape(piece.text).replace(" %", "&nbsp;%")
    return f'<data{kept} data-from="{source}" title="{source}">{text}</data>'


def _footer(document: Document) -> str:
    rows = "".join(
        f'<tr><th scope="row"><code>{escape(name)}</code></th>'
        f"<td><code>{escape(mark)}</code></td></tr>"
        for name, mark in document.sources.items()
    )
    if not rows:
        return ""
    return (
        '<footer><p class="note">Every number comes from the files below; pointed at, it tells its '
        "place there. Beside each file stands how its <code>sha256sum</code> begins.</p>"
        f'<div class="scroll"><table class="note"><tbody>{rows}</tbody></table></div></footer>'
    )
