"""What a report consists of, before it is HTML, Markdown or JSON.

Text is made of pieces: words, and facts that know their record. Words hold no digits: a number is
a fact, or it is not in a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

from sfumato.reports.facts import Fact, NotOnRecord

__all__ = [
    "Block",
    "Bullets",
    "Cell",
    "Code",
    "Document",
    "Missing",
    "Paragraph",
    "Picture",
    "Piece",
    "Section",
    "Table",
    "facts_of",
    "pieces_of",
    "recorded",
]

Piece = str | Fact
Cell = Piece | tuple[Piece, ...]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``kind`` is "plain", "lead", "note" or "warning"."""

    text: Cell
    kind: str = "plain"


@dataclass(frozen=True)
class Bullets:
    """A list of things."""

    items: Sequence[Cell]


@dataclass(frozen=True)
class Code:
    """A command, to copy."""

    text: Fact


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first column says what a row is about."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure; ``alt`` says what is on it, ``source`` what it was drawn from."""

    figure: Figure
    alt: str
    source: str
    caption: Cell = ""


@dataclass(frozen=True)
class Missing:
    """In the place of what is not on record; ``command`` would put it there."""

    place: str
    remedy: str = ""
    command: str = ""


Block = Paragraph | Bullets | Code | Table | Picture | Missing


@dataclass(frozen=True)
class Section:
    """A heading and what is below it."""

    heading: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        title: its heading.
        edition: "publishable" or "curator".
        sections: in order; the first may have no heading.
        sources: names of the records that it was made from, with their fingerprints.
    """

    title: str
    edition: str
    sections: Sequence[Section]
    sources: dict[str, str] = field(default_factory=dict[str, str])


def recorded(make: Callable[[], Sequence[Block]], remedy: str = "") -> Sequence[Block]:
    """What ``make`` makes, or, where a record is missing, that it is."""
    try:
        return make()
    except NotOnRecord as missing:
        return [Missing(str(missing), remedy)]


def pieces_of(cell: Cell) -> tuple[Piece, ...]:
    """The pieces of a cell."""
    return cell if isinstance(cell, tuple) else (cell,)


def facts_of(block: Block) -> Iterator[Fact]:
    """Every fact in a block, in order."""
    match block:
        case Paragraph():
            cells: Sequence[Cell] = [block.text]
        case Bullets():
            cells = block.items
        case Code():
            cells = [block.text]
        case Table():
            cells = [cell for row in block.rows for cell in row]
        case Picture():
            cells = [block.caption]
        case Missing():
            cells = []
    for cell in cells:
        yield from (piece for piece in pieces_of(cell) if isinstance(piece, Fact))
