"""The curator's edition: the card, and everything that was measured with private data.

It is written for its reader's eyes alone. What it shows was never charged to a budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.core.guarantee import round_up
from sfumato.reports import findings
from sfumato.reports.card import RECORD, card_sections, fingerprints, release_sections
from sfumato.reports.documents import (
    Block,
    Cell,
    Document,
    Paragraph,
    Picture,
    Section,
    Table,
    recorded,
)
from sfumato.reports.facts import Fact, NotOnRecord, Sources, epsilon_text, per_cent_text
from sfumato.reports.training_figures import accuracy_by_epsilon_figure

__all__ = ["CuratorRun", "curator_report"]

_RESULTS = "curator/results.json"
_FILES = (RECORD, _RESULTS, findings.MEMBERSHIP, findings.INVERSION, findings.AUDIT)
_EPSILON = f"{RECORD}#/guarantee/epsilon"


@dataclass(frozen=True)
class CuratorRun:
    """All records of a run.

    Attributes:
        name: of its folder.
        sources: its public record and the curator's files.
        marks: fingerprints of the files that were read.
    """

    name: str
    sources: Sources
    marks: dict[str, str]

    @classmethod
    def read(cls, folder: str | Path, name: str = "") -> CuratorRun:
        """From a run's folder."""
        path = Path(folder)
        known = name or path.resolve().name
        sources = Sources.read(path, _FILES, known)
        return cls(known, sources, fingerprints(path, sources.names, known))

    @property
    def promises_something(self) -> bool:
        """Whether there is a guarantee."""
        return self.sources.has(_EPSILON) and not math.isinf(float(self.sources.raw(_EPSILON)))


def curator_report(
    runs: Sequence[CuratorRun],
    ledgers: Sequence[Sources] = (),
    answers: Sequence[Sources] = (),
    title: str = "What an attacker could learn",
) -> Document:
    """Several runs side by side, and the card of each."""
    named = {run.name: run.sources for run in runs}
    parts = (
        ("At a glance", lambda: _overview(runs)),
        ("What privacy costs", lambda: _accuracies(runs)),
        ("Who was trained on?", lambda: findings.memberships(named)),
        ("The most exposed", lambda: findings.most_exposed(named)),
        ("What does a class look like?", lambda: findings.inversions(named)),
        ("Is the promise kept?", lambda: findings.audits(named)),
    )
    sections = [Section(heading, recorded(make)) for heading, make in parts]
    sections += release_sections(ledgers, answers)
    many = len(runs) > 1
    for run in runs:
        if run.promises_something or not run.sources.has(RECORD):
            sections += card_sections(run.sources, f"{run.name}: " if many else "")
    marks = {name: mark for run in runs for name, mark in run.marks.items()}
    return Document(title, "curator", sections, marks)


def _overview(runs: Sequence[CuratorRun]) -> list[Block]:
    rows: list[Sequence[Cell]] = [_overview_row(run) for run in runs]
    headings = (
        "run", "epsilon claimed", "accuracy", "strongest attack", "its AUC",
        "members found at one false alarm in a hundred", "audited at least",
    )  # fmt: skip
    note = (
        "AUC: how often a member scores above somebody else; half of the time is guessing. "
        "Accuracy is on the test set."
    )
    return [Table(headings, rows), Paragraph(note, "note")]


def _overview_row(run: CuratorRun) -> tuple[Cell, ...]:
    sources = run.sources

    def cell(place: str, shown: object = None) -> Cell:
        try:
            return sources.fact(place, shown)  # type: ignore[arg-type]
        except NotOnRecord:
            return "not on record"

    try:
        at = findings.best_attack(sources)
        attack = (
            sources.fact(f"{at}/attack"), sources.fact(f"{at}/auc", lambda auc: f"{auc:.3f}"),
            findings.power(sources, at, 0),
        )  # fmt: skip
    except NotOnRecord:
        attack = ("not on record", "", "")
    epsilon = cell(_EPSILON, lambda e: "none" if math.isinf(float(e)) else epsilon_text(e))
    audited: Cell = cell(f"{findings.AUDIT}#/epsilon_at_least", epsilon_text)
    if sources.has(_EPSILON) and not run.promises_something:
        audited = "nothing claimed"
    return (run.name, epsilon, _accuracy(sources), *attack, audited)


def _accuracy(sources: Sources) -> Cell:
    """Of the final model, from the public record or the curator's results."""
    for place in (f"{RECORD}#/facts/accuracy", f"{_RESULTS}#/accuracy"):
        if sources.has(place):
            return sources.fact(place, per_cent_text)
    curve = f"{_RESULTS}#/curve"
    if sources.has(curve) and sources.raw(curve):
        return sources.fact(f"{curve}/{len(sources.raw(curve)) - 1}/accuracy", per_cent_text)
    return "not on record"


def _accuracies(runs: Sequence[CuratorRun]) -> list[Block]:
    """Accuracy against epsilon, over the runs."""
    points: list[tuple[float, float, float | None]] = []
    baseline, used = None, list[str]()
    for run in runs:
        accuracy = _accuracy(run.sources)
        if not isinstance(accuracy, Fact):
            continue
        used.append(accuracy.source)
        if run.promises_something:
            epsilon = round_up(float(run.sources.raw(_EPSILON)), 3)
            points.append((epsilon, float(accuracy.value), None))
        elif run.sources.has(_EPSILON):
            baseline = float(accuracy.value)
    if not points:
        return [Paragraph("No run with a guarantee has an accuracy on record.", "note")]
    if len(used) == 1:
        return [Paragraph("One run alone shows no cost: add one without privacy.", "note")]
    figure = accuracy_by_epsilon_figure(
        {"with privacy": sorted(points)}, title="Accuracy at each epsilon", baseline=baseline
    )
    figure.set_size_inches(5.6, 3.8)
    alt = "Accuracy on the test set against the epsilon claimed, one point a run"
    return [Picture(figure, alt, ", ".join(used))]
