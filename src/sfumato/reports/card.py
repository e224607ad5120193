"""The publishable privacy card, made from public records alone.

What it takes has no door to what the curator knows: a :class:`PublicRun` reads ``record.json`` and
opens no other file of a run. Runs without a guarantee are left out, and it says so: whatever is
known of them was read from private data and not paid for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.reports import budgets, method_facts, promises
from sfumato.reports.documents import Block, Cell, Document, Paragraph, Picture, Section, recorded
from sfumato.reports.documents import Table as Rows
from sfumato.reports.facts import Sources, epsilon_text, per_cent_text
from sfumato.reports.training_figures import learning_curve_figure

__all__ = ["PublicRun", "card_sections", "privacy_card"]

RECORD = promises.RECORD
_ACCURACY, _CURVE = f"{RECORD}#/facts/accuracy", f"{RECORD}#/facts/curve"


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
        """From a run's folder, of which only ``record.json`` is opened."""
        path = Path(folder)
        known = name or path.resolve().name
        sources = Sources.read(path, (RECORD,), known)
        return cls(known, sources, fingerprints(path, sources.names, known))

    @property
    def promises_something(self) -> bool:
        """Whether there is a guarantee."""
        place = f"{RECORD}#/guarantee/epsilon"
        return self.sources.has(place) and not math.isinf(float(self.sources.raw(place)))


def fingerprints(folder: Path, names: Sequence[str], origin: str) -> dict[str, str]:
    """SHA-256 of each file, by its name behind ``origin``."""
    return {
        f"{origin}/{name}": hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]
        for name in names
    }


def privacy_card(
    runs: Sequence[PublicRun],
    ledgers: Sequence[Sources] = (),
    answers: Sequence[Sources] = (),
    title: str = "Privacy card",
) -> Document:
    """The card of one run or several, with the budgets and statistics of the same data."""
    kept = [run for run in runs if run.promises_something or not run.sources.has(RECORD)]
    sections = [_overview(kept)] if len(kept) > 1 else []
    if len(kept) < len(runs):
        text = "Runs that promise nothing are left out: whatever is known of them is the curator's."
        sections.insert(0, Section("", [Paragraph(text, "note")]))
    for run in kept:
        sections += card_sections(run.sources, f"{run.name}: " if len(kept) > 1 else "")
    sections += release_sections(ledgers, answers)
    marks = {name: mark for run in kept for name, mark in run.marks.items()}
    return Document(title, "publishable", sections, marks)


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
    if not sources.has(RECORD):
        remedy = "Without it, nothing can be said of what the run promises."
        return [Section(f"{prefix}the guarantee", recorded(lambda: sources.raw(RECORD), remedy))]
    parts = (
        ("the guarantee", lambda: promises.lead(sources)),
        ("what it promises to somebody in the data", lambda: promises.promises(sources)),
        ("what it does not promise", lambda: promises.limits(sources)),
        ("the whole guarantee", lambda: [*promises.trade_off(sources), *promises.deltas(sources)]),
        ("could a record be reconstructed?", lambda: promises.reconstruction(sources)),
        ("how well it works", lambda: _accuracy(sources)),
        ("how it was made", lambda: method_facts.method(sources)),
        ("how to make another", lambda: _again(sources)),
    )  # fmt: skip
    return [Section(_headed(prefix, heading), recorded(make)) for heading, make in parts]


def _headed(prefix: str, heading: str) -> str:
    return prefix + heading if prefix else heading[0].upper() + heading[1:]


def _again(sources: Sources) -> list[Block]:
    note = "By the same recipe, with noise of its own: its weights differ, its guarantee does not."
    return [
        *method_facts.reproduction(sources), Paragraph(note, "note"),
        *method_facts.software(sources),
    ]  # fmt: skip


def _accuracy(sources: Sources) -> list[Block]:
    if not sources.has(_ACCURACY):
        test = sources.fact(f"{RECORD}#/facts/test_set")
        return [Paragraph(("No accuracy may be told in public. Test set: ", test, "."))]
    fact = sources.fact(_ACCURACY, per_cent_text)
    blocks: list[Block] = [Paragraph(("Right on ", fact, " of a public test set."))]
    if sources.has(_CURVE):
        points = sources.raw(_CURVE)
        columns = ([point[name] for point in points] for name in ("step", "accuracy", "epsilon"))
        figure = learning_curve_figure(*columns, title="As training went on", final=fact.value)
        figure.set_size_inches(5.6, 3.8)
        alt = "Accuracy and epsilon spent after each part of the training"
        blocks.append(Picture(figure, alt, f"{sources.origin}/{_CURVE}"))
    return blocks


def _overview(runs: Sequence[PublicRun]) -> Section:
    rows: list[Sequence[Cell]] = [_overview_row(run) for run in runs]
    return Section("At a glance", [Rows(("run", "epsilon", "delta", "unit", "accuracy"), rows)])


def _overview_row(run: PublicRun) -> tuple[Cell, ...]:
    sources, at = run.sources, f"{RECORD}#/guarantee"
    if not sources.has(at):
        return run.name, "not on record", "", "", ""
    return (
        run.name, sources.fact(f"{at}/epsilon", epsilon_text),
        sources.fact(f"{at}/delta", lambda delta: f"{delta:.3g}"), sources.fact(f"{at}/unit"),
        sources.fact(_ACCURACY, per_cent_text) if sources.has(_ACCURACY) else "",
    )  # fmt: skip
