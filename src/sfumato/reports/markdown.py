"""A report as Markdown, and as JSON."""

from __future__ import annotations

import re
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
    "publishable": "*Publishable edition: made from public records alone.*",
    "curator": "*For the curator only: it tells what was measured with private data.*",
}


_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")
"""Letters that mean something in Markdown, wherever they stand."""


def to_markdown(document: Document) -> str:
    """Headings, paragraphs and tables; of pictures, what is on them."""
    parts = [f"# {_plain(document.title)}", _EDITIONS[document.edition]]
    for section in document.sections:
        if section.heading:
            parts.append(f"## {_plain(section.heading)}")
        parts += [_block(block) for block in section.blocks]
    if document.sources:
        rows = "\n".join(
            f"| {_code(name)} | {_code(mark)} |" for name, mark in document.sources.items()
        )
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
            fence = "`" * max(3, 1 + _longest_run(block.text.text))
            return f"{fence}sh\n{block.text.text}\n{fence}"
        case Table():
            return _table(block)
        case Picture():
            return f"*Picture: {_plain(block.alt)}.* {_text(block.caption)}".strip()
        case Missing():
            command = f" {_code(block.command)}" if block.command else ""
            return f"> Not on record: {_code(block.place)}. {_plain(block.remedy)}{command}".strip()


def _table(block: Table) -> str:
    head = "| " + " | ".join(_plain(name) for name in block.headings) + " |"
    line = "|" + "---|" * len(block.headings)
    rows = ["| " + " | ".join(_text(cell) for cell in row) + " |" for row in block.rows]
    caption = f"**{_plain(block.caption)}**\n\n" if block.caption else ""
    return caption + "\n".join([head, line, *rows])


def _text(cell: Cell) -> str:
    return "".join(_plain(str(piece)) for piece in pieces_of(cell))


def _plain(text: str) -> str:
    """Words as they are: on one line, and no letter of them is markup."""
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s*[\r\n\v\f\x85\u2028\u2029]\s*", " ", text))


def _code(text: str) -> str:
    fence = "`" * (1 + _longest_run(text))
    gap = " " if fence != "`" else ""
    line = " ".join(text.splitlines()).replace("|", "\\|")
    return f"{fence}{gap}{line}{gap}{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def to_json(document: Document) -> dict[str, Any]:
    """Every fact with its text and its record, section by section."""
    return {
        "title": document.title,
        "edition": document.edition,
        "sections": [_section(section) for section in document.sections],
        "sources": document.sources,
    }


def _section(section: Section) -> dict[str, Any]:
    blocks = section.blocks
    return {
        "heading": section.heading,
        "text": [_block(block) for block in blocks if not isinstance(block, Missing)],
        "facts": [
            {"value": fact.value, "text": fact.text, "from": fact.source}
            for block in blocks
            for fact in facts_of(block)
        ],
        "pictures": [
            {"of": block.alt, "from": block.source}
            for block in blocks
            if isinstance(block, Picture)
        ],
        "missing": [block.place for block in blocks if isinstance(block, Missing)],
    }
