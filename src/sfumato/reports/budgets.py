"""Budgets and released statistics, as a card shows them.

Each ledger's status and each answer is a :class:`~sfumato.reports.facts.Sources` with one record:
the answer's file, or what ``sfumato ledger show DATASET --json`` says.
"""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core.neighbours import Neighbours
from sfumato.core.records import NOT_PRIVATE
from sfumato.reports.documents import Block, Cell, Missing, Paragraph, Table
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_least_text,
    delta_text,
    epsilon_text,
    interval_texts,
    number_text,
    pointer,
)

__all__ = ["STATUS", "all_private", "budgets", "statistics"]

STATUS = "status"
"""The name of the record that :func:`budgets` reads."""

_MOST_ROWS = 30


def budgets(ledgers: Sequence[Sources]) -> list[Block]:
    """One row a dataset: what may be spent, what was, what is left."""
    rows: list[tuple[Cell, ...]] = [
        (
            one.fact(f"{STATUS}#/dataset"),
            one.fact(f"{STATUS}#/unit", lambda unit: f"one {unit}"),
            _compared(one, f"{STATUS}#"),
            ("epsilon ", one.fact(f"{STATUS}#/epsilon", epsilon_text), ", delta ",
             one.fact(f"{STATUS}#/delta", delta_text)),
            one.fact(f"{STATUS}#/reading", epsilon_text),
            one.fact(f"{STATUS}#/left", at_least_text),
            one.fact(f"{STATUS}#/releases"),
        )
        for one in ledgers
    ]  # fmt: skip
    return [
        Table(
            ("dataset", "protects", "what is compared", "cap", "spent", "left", "releases"), rows
        ),
        Paragraph(
            "The cap is the guarantee for everything together that passed through the ledger. "
            "Spent is a reading of its odometer, no guarantee by itself. Left is the largest "
            "epsilon that one more pure release (delta zero) may have.",
            "note",
        ),
    ]


def statistics(answers: Sequence[Sources], *, public: bool) -> list[Block]:
    """Every answer with its interval and what it cost.

    Args:
        answers: one file each.
        public: whether answers that are not private are left out; otherwise they are stamped.
    """
    rows: list[tuple[Cell, ...]] = []
    more: list[Block] = []
    if public and any(_left_out(one) for one in answers):
        text = (
            "Answers with seeded test coins are left out: anyone can subtract their noise, and "
            "what remains is the curator's."
        )
        more.append(Paragraph(text, "note"))
    for one in answers:
        try:
            for place in _places(one):
                if public and one.raw(f"{place}/private") is not True:
                    continue
                found, notes = _answer(one, place)
                rows += found
                more += notes
        except NotOnRecord as missing:
            more.append(Missing(str(missing)))
    if not rows:
        return more
    note = "Intervals are those of the noise alone: the data themselves may be a sample."
    headings = (
        "asked", "of", "answer", "interval", "confidence", "protects", "what is compared",
        "epsilon", "delta",
    )  # fmt: skip
    return [Table(headings, rows), *more, Paragraph(note, "note")]


def all_private(answers: Sources) -> bool:
    """Whether every answer of a file says that it is private."""
    try:
        return all(answers.raw(f"{place}/private") is True for place in _places(answers))
    except NotOnRecord:
        return False


def _left_out(answers: Sources) -> bool:
    """Whether an answer of a file says that it is not private."""
    try:
        said = [f"{place}/private" for place in _places(answers)]
    except NotOnRecord:
        return False
    return any(answers.has(place) and answers.raw(place) is not True for place in said)


def _places(answers: Sources) -> list[str]:
    """Of the answers in a file, which are one or several."""
    (name,) = answers.names
    several = f"{name}#/answers"
    if not answers.has(several):
        return [f"{name}#"]
    with answers.reading(several):
        return [f"{several}/{place}" for place in range(len(answers.raw(several)))]


def _compared(record: Sources, place: str) -> Fact:
    """The neighbour relation, in words."""
    unit = str(record.fact(f"{place}/unit").value)
    return record.fact(
        f"{place}/neighbours", lambda relation: Neighbours.parse(relation).describe(unit)
    )


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
    value, spread = _value(answer, at)
    said: tuple[Cell, ...] = ("", "", "", "", "")
    if row == 0:
        sure: Cell = ""
        if spread and answer.has(f"{place}/confidence"):
            sure = answer.fact(f"{place}/confidence", number_text)
        said = (
            sure, answer.fact(f"{place}/unit", lambda unit: f"one {unit}"),
            _compared(answer, place), answer.fact(f"{place}/epsilon", epsilon_text),
            answer.fact(f"{place}/delta", delta_text),
        )  # fmt: skip
    asked = _asked(answer, place) if row == 0 else ""
    return (asked, _joined(group), value, spread, *said)


def _value(answer: Sources, at: str) -> tuple[Fact, Cell]:
    """The answer, and its interval where it has one."""
    value, low, high = (f"{at}/{name}" for name in ("value", "low", "high"))
    if not (answer.has(low) and answer.has(high)):
        return answer.fact(value), ""
    with answer.reading(at):
        texts = interval_texts(*(answer.raw(place) for place in (value, low, high)))
    shown, below, above = (
        answer.fact(place, lambda _, text=text: text)
        for place, text in zip((value, low, high), texts, strict=True)
    )
    return shown, (below, " to ", above)


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
