"""Budgets and released statistics, as a card shows them.

Each ledger's status and each answer is a :class:`~sfumato.reports.facts.Sources` with one record:
the answer's file, or what ``sfumato ledger show DATASET --json`` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core.records import NOT_PRIVATE
from sfumato.reports.documents import Block, Cell, Missing, Paragraph, Table
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_least_text,
    delta_text,
    epsilon_text,
    number_text,
    pointer,
)

__all__ = ["STATUS", "budgets", "statistics"]

STATUS = "status"
"""The name of the record that :func:`budgets` reads."""

_MOST_ROWS = 30


def budgets(ledgers: Sequence[Sources]) -> list[Block]:
    """One row a dataset: what may be spent, what was, what is left."""
    rows: list[tuple[Cell, ...]] = [
        (
            one.fact(f"{STATUS}#/dataset"),
            one.fact(f"{STATUS}#/unit", lambda unit: f"one {unit}"),
            ("epsilon ", one.fact(f"{STATUS}#/epsilon", epsilon_text), ", delta ",
             one.fact(f"{STATUS}#/delta", delta_text)),
            one.fact(f"{STATUS}#/reading", epsilon_text),
            one.fact(f"{STATUS}#/left", at_least_text),
            one.fact(f"{STATUS}#/releases"),
        )
        for one in ledgers
    ]  # fmt: skip
    return [
        Table(("dataset", "protects", "cap", "spent", "left", "releases"), rows),
        Paragraph(
            "The cap is the guarantee for everything together that passed through the ledger. "
            "Spent is a reading of its odometer, no guarantee by itself. Left is the largest "
            "epsilon that one more release may have.",
            "note",
        ),
    ]


def statistics(answers: Sequence[Sources]) -> list[Block]:
    """Every answer with its interval and what it cost."""
    rows: list[tuple[Cell, ...]] = []
    more: list[Block] = []
    for one in answers:
        (name,) = one.names
        several = one.has(f"{name}#/answers")
        try:
            places = [f"{name}#"]
            if several:
                with one.reading(f"{name}#/answers"):
                    count = len(one.raw(f"{name}#/answers"))
                places = [f"{name}#/answers/{place}" for place in range(count)]
            for place in places:
                found, notes = _answer(one, place)
                rows += found
                more += notes
        except NotOnRecord as missing:
            more.append(Missing(str(missing)))
    if not rows:
        return more
    note = "Intervals are those of the noise alone: the data themselves may be a sample."
    headings = ("asked", "of", "answer", "interval", "confidence", "protects", "epsilon", "delta")
    return [Table(headings, rows), *more, Paragraph(note, "note")]


def _answer(answer: Sources, place: str) -> tuple[list[tuple[Cell, ...]], list[Block]]:
    """Its rows, and what else must be said of it."""
    with answer.reading(f"{place}/rows"):
        count = len(answer.raw(f"{place}/rows"))
    rows = [_row(answer, place, row) for row in range(min(count, _MOST_ROWS))]
    notes: list[Block] = []
    if answer.raw(f"{place}/private") is not True:
        asked = _asked(answer, place)
        notes.append(Paragraph((NOT_PRIVATE, " (", asked, ")"), "warning"))
    if count > _MOST_ROWS:
        left = answer.computed(count - _MOST_ROWS, f"{place}/rows")
        notes.append(Paragraph((_asked(answer, place), ": ", left, " more rows are in the file.")))
    return rows, notes


def _row(answer: Sources, place: str, row: int) -> tuple[Cell, ...]:
    at = f"{place}/rows/{row}"
    with answer.reading(f"{place}/keys"):
        keys = [pointer(str(key)) for key in answer.raw(f"{place}/keys")]
    group = [answer.fact(f"{at}/{key}") for key in keys if answer.has(f"{at}/{key}")]
    spread: Cell = ""
    if answer.has(f"{at}/low") and answer.has(f"{at}/high"):
        spread = (answer.fact(f"{at}/low", number_text), " to ",
                  answer.fact(f"{at}/high", number_text))  # fmt: skip
    said: tuple[Cell, ...] = ("", "", "", "")
    if row == 0:
        sure: Cell = ""
        if spread and answer.has(f"{place}/confidence"):
            sure = answer.fact(f"{place}/confidence", number_text)
        said = (
            sure, answer.fact(f"{place}/unit", lambda unit: f"one {unit}"),
            answer.fact(f"{place}/epsilon", epsilon_text),
            answer.fact(f"{place}/delta", delta_text),
        )  # fmt: skip
    asked = _asked(answer, place) if row == 0 else ""
    return (asked, _joined(group), answer.fact(f"{at}/value"), spread, *said)


def _asked(answer: Sources, place: str) -> Fact:
    with answer.reading(f"{place}/query"):
        query = answer.raw(f"{place}/query")
        inner = query.get("of") or query
        words = " of ".join(str(inner[name]) for name in ("query", "column") if inner.get(name))
        if inner.get("where") or query.get("where"):
            words += f" where {inner.get('where') or query['where']}"
        return answer.computed(words or "a statistic", f"{place}/query")


def _joined(facts: Sequence[Fact]) -> Cell:
    pieces: list[str | Fact] = []
    for fact in facts:
        pieces += [", ", fact] if pieces else [fact]
    return tuple(pieces)
