"""What teachers' votes were like, run by run: blocks of the curator's edition.

All of it is read from private votes, in the run's ``curator/results.json``, and was never charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.reports.documents import Block, Missing, Paragraph, Picture, Table
from sfumato.reports.drawing import as_label
from sfumato.reports.facts import Fact, NotOnRecord, Sources, epsilon_text
from sfumato.reports.pate_figures import agreement_figure, costs_figure

__all__ = ["RESULTS", "agreements"]

RESULTS = "curator/results.json"
_SHARES, _CURVE = f"{RESULTS}#/agreement", f"{RESULTS}#/curve"
_MOST = 1e6  # an epsilon beyond is drawn as this


def agreements(runs: Mapping[str, Sources]) -> list[Block]:
    """For each run: how far teachers agreed, and what questions cost for all data and for these."""
    note = (
        "For the curator alone: how far teachers agree was read from their votes, and so was what "
        "answers cost for these data. Nothing of it was charged, and none of it may be published."
    )
    blocks: list[Block] = [Paragraph(note, "warning")]
    rows: list[Sequence[str | Fact]] = []
    for name, sources in runs.items():
        try:
            pictures = [_histogram(name, sources), _costs(name, sources)]
            rows.append(_last(name, sources))
            blocks += pictures
        except NotOnRecord as missing:
            blocks.append(Missing(str(missing)))
    headings = ("run", "questions", "answers", "epsilon for all data", "epsilon for these")
    if rows:
        caption = "After the last question, both by RDP; the guarantee has the finer accountant"
        blocks.insert(1, Table(headings, rows, caption))
    return blocks


def _histogram(name: str, sources: Sources) -> Picture:
    edges, counts = (_numbers(sources, f"{_SHARES}/{part}") for part in ("edges", "counts"))
    if len(edges) != len(counts) + 1 or not counts:
        raise NotOnRecord(f"{sources.full(_SHARES)} (in a form that can be read)")
    figure = agreement_figure(edges, [int(n) for n in counts], as_label(f"{name}: agreement"))
    figure.set_size_inches(4.8, 3.5)
    figure.axes[0].set_xlabel("share of the teachers with the first class")
    alt = "Of how many questions the class with the most votes has how large a share of them"
    return Picture(figure, alt, sources.full(_SHARES))


def _costs(name: str, sources: Sources) -> Picture:
    lines = [_numbers(sources, f"{_CURVE}/{part}") for part in _LINES]
    questions, independent, dependent = lines
    if not len(questions) == len(independent) == len(dependent) > 0:
        raise NotOnRecord(f"{sources.full(_CURVE)} (in a form that can be read)")
    with sources.reading(f"{_CURVE}/delta"):
        delta = float(sources.fact(f"{_CURVE}/delta").value)
    line = ("epsilon", [int(n) for n in questions], independent, dependent)
    figure = costs_figure([line], delta, as_label(f"{name}: what they cost"), "questions")
    figure.set_size_inches(4.8, 3.5)
    alt = "Epsilon after each number of questions, for all data and for these"
    return Picture(figure, alt, sources.full(_CURVE))


_LINES = ("questions", "independent", "dependent")


def _last(name: str, sources: Sources) -> tuple[str | Fact, ...]:
    last = len(_numbers(sources, f"{_CURVE}/questions")) - 1
    parts = ("questions", "answers", "independent", "dependent")
    shown: tuple[Any, ...] = (None, None, epsilon_text, epsilon_text)
    places = [f"{_CURVE}/{part}/{last}" for part in parts]
    return name, *(sources.fact(at, text) for at, text in zip(places, shown, strict=True))


def _numbers(sources: Sources, place: str) -> list[float]:
    values = sources.raw(place)
    with sources.reading(place):
        return [max(-_MOST, min(_MOST, float(value))) for value in values]
