"""Budgets and released statistics, as a card shows them."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.reports.documents import Block, Cell, Paragraph, Table
from sfumato.reports.facts import Fact, Sources, epsilon_text, number_text

__all__ = ["ANSWER", "STATUS", "budgets", "statistics"]

STATUS, ANSWER = "status", "answer"
"""The names of the records that :func:`budgets` and :func:`statistics` read."""

_MOST_ROWS = 30


def budgets(ledgers: Sequence[Sources]) -> list[Block]:
    """One row a dataset: what may be spent, what was, what is left."""
    rows: list[tuple[Cell, ...]] = [
        (
            one.fact(f"{STATUS}#/dataset"),
            ("epsilon ", one.fact(f"{STATUS}#/epsilon", epsilon_text), ", delta ",
             one.fact(f"{STATUS}#/delta", _delta)),
            one.fact(f"{STATUS}#/reading", epsilon_text),
            one.fact(f"{STATUS}#/left", _down),
            one.fact(f"{STATUS}#/releases"),
        )
        for one in ledgers
    ]  # fmt: skip
    return [
        Table(("dataset", "cap", "spent", "left", "releases"), rows),
        Paragraph(
            "The cap is the guarantee for everything together that passed through the ledger. "
            "Spent is a reading of its odometer; left is the largest epsilon that one more "
            "release may have.",
            "note",
        ),
    ]


def statistics(answers: Sequence[Sources]) -> list[Block]:
    """Every answer with its interval and what it cost."""
    rows: list[tuple[Cell, ...]] = []
    for one in answers:
        for place, _ in enumerate(one.raw(f"{ANSWER}#/rows")[:_MOST_ROWS]):
            rows.append(_row(one, place))
    return [Table(("asked", "of", "answer", "interval", "epsilon"), rows)]


def _row(answer: Sources, place: int) -> tuple[Cell, ...]:
    at = f"{ANSWER}#/rows/{place}"
    keys: list[str] = answer.raw(f"{ANSWER}#/keys")
    group = [answer.fact(f"{at}/{key}") for key in keys if answer.has(f"{at}/{key}")]
    spread: Cell = ""
    if answer.has(f"{at}/low") and answer.has(f"{at}/high"):
        spread = (answer.fact(f"{at}/low", number_text), " to ",
                  answer.fact(f"{at}/high", number_text))  # fmt: skip
    asked = _asked(answer)
    return (
        asked if place == 0 else "", _joined(group), answer.fact(f"{at}/value"), spread,
        answer.fact(f"{ANSWER}#/epsilon", epsilon_text) if place == 0 else "",
    )  # fmt: skip


def _asked(answer: Sources) -> Cell:
    query = answer.raw(f"{ANSWER}#/query")
    inner = query.get("of") or query
    words = " of ".join(str(inner[name]) for name in ("query", "column") if inner.get(name))
    return answer.computed(words or "a statistic", f"{ANSWER}#/query")


def _joined(facts: Sequence[Fact]) -> Cell:
    pieces: list[str | Fact] = []
    for fact in facts:
        pieces += [", ", fact] if pieces else [fact]
    return tuple(pieces)


def _delta(value: float) -> str:
    return f"{value:.3g}"


def _down(value: float) -> str:
    return f"{int(value * 1000) / 1000:.10g}"
