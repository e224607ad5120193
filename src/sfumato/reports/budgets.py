"""Budgets and released statistics, as a card shows them.

Each ledger's status and each answer is a :class:`~sfumato.reports.facts.Sources` with one record:
the answer's file, or what ``sfumato ledger show DATASET --json`` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfumato.core.neighbours import Neighbours
from sfumato.core.records import NOT_PRIVATE
from sfumato.reports.documents import (
    Block,
    Bullets,
    Cell,
    Missing,
    Paragraph,
    Table,
    recorded,
)
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_least_text,
    at_most_text,
    delta_text,
    epsilon_text,
    interval_texts,
    pointer,
)
from sfumato.reports.findings import surely
from sfumato.reports.wording import words_for

__all__ = ["STATUS", "all_private", "budgets", "promised", "statistics"]

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
    confident: list[tuple[Sources, str]] = []
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
                if any(row[3] for row in found) and one.has(f"{place}/confidence"):
                    confident.append((one, f"{place}/confidence"))
        except NotOnRecord as missing:
            more.append(Missing(str(missing)))
    if not rows:
        return more
    note = "Intervals are those of the noise alone: the data themselves may be a sample."
    headings = (
        "asked", "of", "answer", "interval", "protects", "what is compared", "epsilon", "delta",
    )  # fmt: skip
    sure = surely(confident, "Intervals hold")
    return [Table(headings, rows), *sure, *more, Paragraph(note, "note")]


def promised(answers: Sequence[Sources]) -> list[Block]:
    """What all private answers together promise, in plain words, for each unit and relation.

    Their epsilons and deltas are added up, which always holds. With (epsilon, delta), whoever is
    wrong about a share a of the others finds at most min(e^epsilon a + delta,
    1 - e^-epsilon (1 - delta - a)) of those looked for (Kairouz, Oh and Viswanath,
    arXiv:1311.0776, theorem 2.1), and names the side of a fair coin with a chance of at most
    (e^epsilon + delta) / (e^epsilon + 1).
    """
    sums: dict[tuple[str, Neighbours], list[tuple[Sources, str]]] = {}
    for one in answers:
        try:
            for place in _places(one):
                if one.raw(f"{place}/private") is True:
                    of = (str(one.raw(f"{place}/unit")), _relation(one, place))
                    sums.setdefault(of, []).append((one, place))
        except NotOnRecord:
            continue  # the table of answers says what is missing
    return [
        block
        for (unit, relation), places in sums.items()
        for block in recorded(lambda u=unit, r=relation, p=places: _promised(u, r, p))
    ]


def _promised(
    unit: str, relation: Neighbours, places: Sequence[tuple[Sources, str]]
) -> list[Block]:
    parts = [(one.fact(f"{at}/epsilon"), one.fact(f"{at}/delta")) for one, at in places]
    with places[0][0].reading(f"{places[0][1]}/epsilon"):
        epsilon = math.fsum(float(part[0].value) for part in parts)
        delta = math.fsum(float(part[1].value) for part in parts)
    source = "computed from " + ", ".join(fact.source for part in parts for fact in part)
    words, factor = words_for(unit, relation), math.exp(min(epsilon, 700.0))

    def at_most(value: float) -> Fact:
        return Fact(min(value, 1.0), at_most_text(min(value, 1.0)), source)

    right = at_most((factor + delta) / (factor + 1))
    found = at_most(min(factor * 0.01 + delta, 1 - (0.99 - delta) / factor))
    together = (
        "All of these statistics together: epsilon ",
        Fact(epsilon, epsilon_text(epsilon), source), " at delta ",
        Fact(delta, delta_text(delta), source), f" ({relation.describe(unit)}).",
    )  # fmt: skip
    (coin, other), (looked_for, of_whom) = words.coin, words.found
    bullets = Bullets(
        [
            (
                coin, f"{words.own}{other}. Whoever sees the statistics, and knows {words.knows}, "
                "names the side of the coin with a chance of at most ", right, " of being right. "
                "Guessing alone is right half of the time.",
            ),
            (looked_for, found, f"{of_whom} {words.at_random}"),
            *words.not_hidden,
            words.general,
        ]
    )  # fmt: skip
    return [Paragraph(together, "lead"), bullets]


def _relation(answer: Sources, place: str) -> Neighbours:
    with answer.reading(f"{place}/neighbours"):
        return Neighbours.parse(answer.raw(f"{place}/neighbours"))


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
    said: tuple[Cell, ...] = ("", "", "", "")
    if row == 0:
        said = (
            answer.fact(f"{place}/unit", lambda unit: f"one {unit}"),
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
