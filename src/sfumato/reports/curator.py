"""The curator's edition: the card, and everything that was measured with private data.

It is written for its reader's eyes alone. What it shows was never charged to a budget.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.core.guarantee import round_up
from sfumato.core.records import NOT_PRIVATE
from sfumato.reports import findings, pate_findings
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
from sfumato.reports.drawing import as_label
from sfumato.reports.erm_facts import error_cell, result_heading, tells_numbers
from sfumato.reports.facts import (
    Fact,
    NotOnRecord,
    Sources,
    at_least_text,
    per_cent_text,
)
from sfumato.reports.federated_facts import attacked_together, is_federated
from sfumato.reports.pate_facts import is_pate
from sfumato.reports.promises import (
    claimed,
    is_sound,
    is_stamped,
    promises_something,
    protects_labels_alone,
)
from sfumato.reports.training_figures import accuracy_by_epsilon_figure

__all__ = ["CuratorRun", "curator_report"]

_RESULTS = pate_findings.RESULTS
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


def curator_report(
    runs: Sequence[CuratorRun],
    ledgers: Sequence[Sources] = (),
    answers: Sequence[Sources] = (),
    title: str = "What an attacker could learn",
) -> Document:
    """Several runs side by side, and the card of each."""
    named = {run.name: run.sources for run in runs}
    alone = {name: one for name, one in named.items() if not is_federated(one)}
    of_classes = {name: one for name, one in alone.items() if not tells_numbers(one)}
    parts = [
        ("At a glance", lambda: _overview(runs)),
        ("What privacy costs", lambda: _accuracies(runs)),
    ]
    if of_classes or not runs:  # attacks are made for classes
        parts += [
            ("Who was trained on?", lambda: findings.memberships(of_classes)),
            ("The most exposed", lambda: findings.most_exposed(of_classes)),
            ("What does a class look like?", lambda: findings.inversions(of_classes)),
        ]
    if alone or not runs:
        parts.append(("Is the promise kept?", lambda: findings.audits(alone)))
    if len(alone) < len(named):
        parts.append(("Inside the protocol", attacked_together))
    sections = [Section(heading, recorded(make)) for heading, make in parts]
    taught = {name: sources for name, sources in named.items() if is_pate(sources)}
    if taught:
        agreed = recorded(lambda: pate_findings.agreements(taught))
        sections.append(Section("Did the teachers agree?", agreed))
    sections += release_sections(ledgers, answers, public=False)
    many = len(runs) > 1
    for run in runs:
        if promises_something(run.sources) is not False:
            sections += card_sections(run.sources, f"{run.name}: " if many else "")
    marks = {name: mark for one in (*runs, *answers) for name, mark in one.marks.items()}
    return Document(title, "curator", sections, marks)


def _overview(runs: Sequence[CuratorRun]) -> list[Block]:
    rows: list[Sequence[Cell]] = [_overview_row(run.name, run.sources) for run in runs]
    headings = (
        "run", "epsilon claimed", result_heading([run.sources for run in runs]),
        "strongest attack", "its AUC (limits)",
        "members found at one false alarm in a hundred (limits)",
        "audited, epsilon at least",
    )  # fmt: skip
    note = (
        "The strongest attack is that which surely finds the most members at one false alarm in "
        "a hundred; accusing at random finds one in a hundred. AUC: how often a member scores "
        "above somebody who is none; half of the time is guessing."
    )
    stamped = [
        Paragraph((run.name, ": ", NOT_PRIVATE), "warning")
        for run in runs
        if is_stamped(run.sources) and promises_something(run.sources) is not False
    ]
    return [*stamped, Table(headings, rows), Paragraph(note, "note")]


def _overview_row(name: str, sources: Sources) -> tuple[Cell, ...]:
    def cell(place: str, shown: Callable[[Any], str] | None = None) -> Cell:
        try:
            return sources.fact(place, shown)
        except NotOnRecord:
            return "not on record"

    attack: tuple[Cell, ...] = ("not on record", "", "")
    if sources.has(findings.MEMBERSHIP):
        try:
            at = findings.best_attack(sources)
            attack = (
                cell(f"{at}/attack"), findings.with_limits(sources, f"{at}/auc"),
                findings.power(sources, at, limits=True),
            )  # fmt: skip
        except NotOnRecord:
            pass
    if tells_numbers(sources):
        attack = ("none is made for numbers", "", "")
        result = error_cell(sources, f"{RECORD}#/facts", f"{_RESULTS}#")
    else:
        result = _accuracy(sources)
    if promises_something(sources) is False:
        return (name, "none", result, *attack, "nothing is claimed")
    audited = cell(f"{findings.AUDIT}#/epsilon_at_least", at_least_text)
    return (name, claimed(sources), result, *attack, audited)


def _accuracy(sources: Sources) -> Cell:
    """Of the final model, from the public record or the curator's results."""
    places = [f"{RECORD}#/facts/accuracy", f"{_RESULTS}#/accuracy"]
    curve = sources.raw(f"{_RESULTS}#/curve") if sources.has(f"{_RESULTS}#/curve") else None
    if isinstance(curve, list) and curve:
        places.append(f"{_RESULTS}#/curve/{len(curve) - 1}/accuracy")  # pyright: ignore[reportUnknownArgumentType]
    for place in places:
        if sources.has(place):
            try:
                return sources.fact(place, per_cent_text)
            except NotOnRecord:
                continue
    return "not on record"


def _accuracies(runs: Sequence[CuratorRun]) -> list[Block]:
    """Accuracy against epsilon, over the runs that have one."""
    if runs and all(tells_numbers(run.sources) for run in runs):
        return [Paragraph("Errors of numbers are at a glance, and not drawn.", "note")]
    known = [
        (run.name, run.sources, accuracy)
        for run in runs
        if not tells_numbers(run.sources) and isinstance(accuracy := _accuracy(run.sources), Fact)
    ]
    series: dict[str, list[tuple[float, float, float | None]]] = {}
    plain: dict[str, float] = {}
    for name, sources, accuracy in known:
        of, value = _network(sources, name), float(accuracy.value)
        if promises_something(sources) and is_sound(sources):
            epsilon = round_up(float(sources.raw(_EPSILON)), 3)
            series.setdefault(of, []).append((epsilon, value, None))
        elif promises_something(sources) is False:
            plain[of] = max(value, plain.get(of, 0.0))
    if not series:
        return [Paragraph("No run with a guarantee has an accuracy on record.", "note")]
    if len(known) == 1:
        return [Paragraph("One run alone shows no cost: add one without privacy.", "note")]
    if len({_data(sources) for _, sources, _ in known}) > 1:
        return [Paragraph("Runs on different data are not compared here.", "note")]
    baselines = {as_label(of): value for of, value in plain.items() if of in series}
    figure = accuracy_by_epsilon_figure(
        {as_label(name): points for name, points in series.items()},
        title="Accuracy at each epsilon",
        baselines=baselines,
    )
    figure.set_size_inches(4.8, 3.5)
    figure.axes[0].set_ylabel("accuracy, test set")
    alt = "Accuracy on the test set against the epsilon claimed, one point a run"
    blocks: list[Block] = [
        Picture(figure, alt, ", ".join(accuracy.source for *_, accuracy in known))
    ]
    alone = [of for of in series if of not in plain]
    if alone:  # another kind of model without privacy would tell of the model, not of privacy
        text = (
            f"What privacy costs is not known for {', '.join(alone)}: no run without privacy "
            "trains the same kind of model. Add one with the same model and features."
        )
        blocks.append(Paragraph(text, "note"))
    return blocks


def _network(sources: Sources, name: str) -> str:
    """What was trained: runs of the same kind are one line."""
    student = f"{RECORD}#/parameters/recipe/student/kind"
    if is_pate(sources) and sources.has(student):
        return f"teachers, and {sources.raw(student)}"
    if protects_labels_alone(sources):  # another epsilon: never on a line with those of records
        return f"{name}, labels alone"
    parts = [f"{RECORD}#/parameters/recipe/{part}" for part in ("model", "features/kind")]
    if not all(sources.has(place) for place in parts):
        return name
    model, features = (str(sources.raw(place)) for place in parts)
    return model if features == "none" else f"{model} on {features}"


def _data(sources: Sources) -> str:
    """What a run was trained on: the name, and how many of the first rows."""
    parts = [f"{RECORD}#/facts/data/{name}" for name in ("name", "rows")]
    return json.dumps([sources.raw(place) if sources.has(place) else None for place in parts])
