"""The publishable privacy card, made from public records alone.

What it takes has no door to what the curator knows: a :class:`PublicRun` reads ``record.json`` and
opens no other file of a run. Runs without a guarantee are left out, and it says so: whatever is
known of them was read from private data and not paid for. Of a run whose record does not say what
it promises, nothing else is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.core.records import NOT_PRIVATE
from sfumato.reports import budgets, method_facts, promises
from sfumato.reports.documents import (
    Block,
    Cell,
    Document,
    Missing,
    Paragraph,
    Picture,
    Section,
    Table,
    recorded,
)
from sfumato.reports.facts import NotOnRecord, Sources, delta_text, epsilon_text, per_cent_text
from sfumato.reports.training_figures import learning_curve_figure

__all__ = [
    "PublicRun",
    "card_sections",
    "fingerprint",
    "fingerprints",
    "privacy_card",
    "release_sections",
]

RECORD = promises.RECORD
_ACCURACY, _CURVE = f"{RECORD}#/facts/accuracy", f"{RECORD}#/facts/curve"
_COLUMNS = ("step", "accuracy", "epsilon")


@dataclass(frozen=True)
class PublicRun:
    """What a run says in public.

    Attributes:
        name: of its folder.
        sources: its public record.
        marks: fingerprints of the files that were read.
    """

    name: str
    sources: Sources
    marks: dict[str, str]

    @classmethod
    def read(cls, folder: str | Path, name: str = "") -> PublicRun:
        """From a run's folder, of which only ``record.json`` is opened.

        Raises:
            ValueError: if that is no JSON.
        """
        path = Path(folder)
        known = name or path.resolve().name
        sources = Sources.read(path, (RECORD,), known)
        return cls(known, sources, fingerprints(path, sources.names, known))


def fingerprint(path: Path) -> str:
    """How SHA-256 of a file begins."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def fingerprints(folder: Path, names: Sequence[str], origin: str) -> dict[str, str]:
    """Of each file, by its name behind ``origin``."""
    return {f"{origin}/{name}": fingerprint(folder / name) for name in names}


def privacy_card(
    runs: Sequence[PublicRun],
    ledgers: Sequence[Sources] = (),
    answers: Sequence[Sources] = (),
    title: str = "Privacy card",
) -> Document:
    """The card of one run or several, with the budgets and statistics of the same data."""
    kept = [run for run in runs if promises.promises_something(run.sources) is not False]
    sections = [_overview(kept)] if len(kept) > 1 else []
    notes = _notes(runs, kept)
    if notes:
        sections.insert(0, Section("", notes))
    for run in kept:
        sections += card_sections(run.sources, f"{run.name}: " if len(kept) > 1 else "")
    sections += release_sections(ledgers, answers)
    marks = {name: mark for one in (*kept, *answers) for name, mark in one.marks.items()}
    return Document(title, "publishable", sections, marks)


def _notes(runs: Sequence[PublicRun], kept: Sequence[PublicRun]) -> list[Block]:
    """What a reader must know before everything else."""
    blocks: list[Block] = []
    if len(kept) > 1 and any(promises.is_stamped(run.sources) for run in kept):
        text = "NOT PRIVATE: some of these runs are not, and say so below. Do not publish them."
        blocks.append(Paragraph(text, "warning"))
    if len(kept) < len(runs):
        text = "Runs that promise nothing are left out: whatever is known of them is the curator's."
        blocks.append(Paragraph(text, "note"))
    return blocks


def release_sections(ledgers: Sequence[Sources], answers: Sequence[Sources]) -> list[Section]:
    """Budgets and statistics, where there are any."""
    found: list[Section] = []
    if ledgers:
        found.append(Section("The budget", recorded(lambda: budgets.budgets(ledgers))))
    if answers:
        heading = "Statistics that were released"
        found.append(Section(heading, recorded(lambda: budgets.statistics(answers))))
    return found


def card_sections(sources: Sources, prefix: str = "") -> list[Section]:
    """Everything about one run, from its record."""
    if promises.promises_something(sources) is None:
        place = f"{RECORD}#/guarantee/epsilon" if sources.has(RECORD) else RECORD
        remedy = "Without it, nothing can be said of what the run promises, and nothing else is."
        return [Section(_headed(prefix, "the guarantee"), [Missing(sources.full(place), remedy)])]
    promised = (
        ("what it promises to somebody in the data", lambda: promises.promises(sources)),
        ("what it does not promise", lambda: promises.limits(sources)),
        ("the whole guarantee", lambda: [*promises.trade_off(sources), *promises.deltas(sources)]),
        ("could a record be reconstructed?", lambda: promises.reconstruction(sources)),
    )
    parts = (
        ("the guarantee", lambda: promises.lead(sources)),
        *(() if promises.is_stamped(sources) else promised),
        ("how well it works", lambda: _accuracy(sources)),
        ("how it was made", lambda: method_facts.method(sources)),
        ("how to make another", lambda: _again(sources)),
    )  # fmt: skip
    return [Section(_headed(prefix, heading), recorded(make)) for heading, make in parts]


def _headed(prefix: str, heading: str) -> str:
    return prefix + heading if prefix else heading[0].upper() + heading[1:]


def _again(sources: Sources) -> list[Block]:
    note = (
        "By the same recipe, with noise of its own: the weights differ, the guarantee does not. "
        "Trained on the same data it is a further release, and both add up."
    )
    return [
        *recorded(lambda: method_facts.reproduction(sources)), Paragraph(note, "note"),
        *recorded(lambda: method_facts.software(sources)),
    ]  # fmt: skip


def _accuracy(sources: Sources) -> list[Block]:
    test = sources.fact(f"{RECORD}#/facts/test_set")
    if not sources.has(_ACCURACY):
        if test.value == "public":
            sources.fact(_ACCURACY)  # it should be there
        return [Paragraph(("No accuracy may be told in public. Test set: ", test, "."))]
    fact = sources.fact(_ACCURACY, per_cent_text)
    text = Paragraph(("Right on ", fact, " of its test set (", test, ")."))
    return [text, *recorded(lambda: _learning_curve(sources, float(fact.value)))]


def _learning_curve(sources: Sources, final: float) -> list[Block]:
    points = sources.raw(_CURVE)
    with sources.reading(_CURVE):
        columns = [[float(point[name]) for point in points] for name in _COLUMNS]
    steps, accuracy, epsilon = columns
    figure = learning_curve_figure(
        [int(step) for step in steps], accuracy, epsilon, title="As training went on", final=final,
        tested_on="test set",
    )  # fmt: skip
    figure.set_size_inches(4.8, 3.5)
    alt = "Accuracy and epsilon spent after each part of the training"
    return [Picture(figure, alt, sources.full(_CURVE))]


def _overview(runs: Sequence[PublicRun]) -> Section:
    rows: list[Sequence[Cell]] = [_overview_row(run) for run in runs]
    headings = ("run", "epsilon", "delta", "protects", "accuracy on its test set")
    return Section("At a glance", [Table(headings, rows)])


def _overview_row(run: PublicRun) -> tuple[Cell, ...]:
    sources, at = run.sources, f"{RECORD}#/guarantee"
    if promises.promises_something(sources) is None:
        return run.name, "not on record", "", "", ""

    def cell(place: str, shown: Callable[[Any], str]) -> Cell:
        try:
            return sources.fact(place, shown)
        except NotOnRecord:
            return "not on record"

    epsilon = cell(f"{at}/epsilon", epsilon_text)
    if promises.is_stamped(sources):
        epsilon = NOT_PRIVATE
    return (
        run.name, epsilon, cell(f"{at}/delta", delta_text),
        cell(f"{at}/unit", lambda unit: f"one {unit}"),
        cell(_ACCURACY, per_cent_text) if sources.has(_ACCURACY) else "not told",
    )  # fmt: skip
