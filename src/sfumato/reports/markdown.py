"""A report as Markdown, and as JSON."""

from __future__ import annotations

from typing import Any

from sfumato.reports.documents import (
    Block,
    Bullets,
    Cell,
    Code,
    Document,
    Missing,
    Paragraph,
    Picture,
    Section,
    Table,
    facts_of,
    pieces_of,
)

__all__ = ["to_json", "to_markdown"]

_EDITIONS = {
    "publishable": "*Privacy card: may be published.*",
    "curator": "*For the curator only: measured with private data.*",
}


def to_markdown(document: Document) -> str:
    """Headings, paragraphs and tables; of pictures, what is on them."""
    parts = [f"# {document.title}", _EDITIONS[document.edition]]
    for section in document.sections:
        if section.heading:
            parts.append(f"## {section.heading}")
        parts += [_block(block) for block in section.blocks]
    if document.sources:
        rows = "\n".join(f"| `{name}` | `{mark}` |" for name, mark in document.sources.items())
        parts.append(f"| made from | fingerprint |\n|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    match block:
        case Paragraph():
            text = _text(block.text)
            return f"> {text}" if block.kind in ("note", "warning") else text
        case Bullets():
            return "\n".join(f"- {_text(item)}" for item in block.items)
        case Code():
            return f"```sh\n{block.text.text}\n```"
        case Table():
            return _table(block)
        case Picture():
            return f"*Picture: {block.alt}.* {_text(block.caption)}".strip()
        case Missing():
            return f"> Not on record: `{block.place}`. {block.remedy}".strip()


def _table(block: Table) -> str:
    head = "| " + " | ".join(block.headings) + " |"
    line = "|" + "---|" * len(block.headings)
    rows = [
        "| " + " | ".join(_text(c).replace("|", "\\|") for c in row) + " |" for row in block.rows
    ]
    caption = f"**{block.caption}**\n\n" if block.caption else ""
    return caption + "\n".join([head, line, *rows])


def _text(cell: Cell) -> str:
    return "".join(str(piece) for piece in pieces_of(cell))


def to_json(document: Document) -> dict[str, Any]:
    """Every fact with its text and its record, section by section."""
    return {
        "title": document.title,
        "edition": document.edition,
        "sections": [_section(section) for section in document.sections],
        "sources": document.sources,
    }


def _section(section: Section) -> dict[str, Any]:
    missing = [block.place for block in section.blocks if isinstance(block, Missing)]
    return {
        "heading": section.heading,
        "text": [_block(block) for block in section.blocks if not isinstance(block, Missing)],
        "facts": [
            {"value": fact.value, "text": fact.text, "from": fact.source}
            for block in section.blocks
            for fact in facts_of(block)
        ],
        "missing": missing,
    }
