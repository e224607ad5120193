"""The rows of a table of facts: what is on record, and what should have been."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from sfumato.reports.documents import Block, Cell, Missing, Table
from sfumato.reports.facts import NotOnRecord, Sources

__all__ = ["Rows", "in_words"]

Shown = Callable[[Any], str]


@final
class Rows:
    """Rows of two columns, made one after the other.

    Args:
        sources: the records.
        expected: whether a place must be on record; what is expected and is not there is said.
    """

    def __init__(self, sources: Sources, expected: Callable[[str], bool]) -> None:
        self.sources, self._expected = sources, expected
        self._rows: list[tuple[Cell, ...]] = []
        self._missing: list[Block] = []

    def add(self, label: str, place: str, shown: Shown | None = None) -> None:
        """A row of what is recorded there."""
        try:
            self._rows.append((label, self.sources.fact(place, shown)))
        except NotOnRecord as absent:
            if self._expected(place) or self.sources.has(place):
                self._missing.append(Missing(str(absent)))

    def add_if_there(self, label: str, place: str, shown: Shown | None = None) -> None:
        """The same of what not every such record has."""
        if self.sources.has(place):
            self.add(label, place, shown)

    def put(self, label: str, cell: Cell) -> None:
        """A row of what was computed."""
        self._rows.append((label, cell))

    def blocks(self) -> list[Block]:
        """The table, and what is missing."""
        return [Table(("", ""), self._rows), *self._missing]


def in_words(words: dict[str, str]) -> Shown:
    """What a recorded word means, or the word itself."""
    return lambda value: words.get(str(value), str(value))
