"""The publishable privacy card, made from public records alone.

What it takes has no door to what the curator knows: a :class:`PublicRun` reads ``record.json`` and
opens no other file of a run. Runs without a guarantee are left out, and it says so: whatever is
known of them was read from private data and not paid for. So are runs and answers with seeded
noise, which anyone can subtract. Of a run whose record does not say what it promises, or whose
guarantee does not follow from its event, nothing else is told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from sfumato.reports.erm_facts import (
    error_cell,
    errors,
    is_erm,
    result_heading,
    tells_numbers,
)
from sfumato.reports.facts import NotOnRecord, Sources, delta_text, per_cent_text
from sfumato.reports.federated_facts import is_federated
from sfumato.reports.label_facts import is_label_dp
from sfumato.reports.pate_facts import is_pate, published_cost
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
_COST = f"{RECORD}#/facts/data_dependent"
_TEST_SET, _PRIVATE = f"{RECORD}#/facts/test_set", f"{RECORD}#/private"
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
    promising = [run for run in runs if promises.promises_something(run.sources) is not False]
    kept = [run for run in promising if not _promises_for_nothing(run.sources)]
    sections = [_overview(kept)] if len(kept) > 1 else []
    notes = _notes(plain=len(promising) < len(runs), stamped=len(kept) < len(promising))
    if notes:
        sections.insert(0, Section("", notes))
    for run in kept:
        sections += card_sections(run.sources, f"{run.name}: " if len(kept) > 1 else "")
    sections += release_sections(ledgers, answers, public=True)
    whole = [one for one in answers if budgets.all_private(one)]
    marks = {name: mark for one in (*kept, *whole) for name, mark in one.marks.items()}
    return Document(title, "publishable", sections, marks)


def _promises_for_nothing(sources: Sources) -> bool:
    return promises.is_stamped(sources) and promises.promises_something(sources) is True


def _notes(*, plain: bool, stamped: bool) -> list[Block]:
    """What a reader must know before everything else: which runs were left out."""
    texts: list[str] = []
    if plain:
        texts.append(
            "Runs that promise nothing are left out: whatever is known of them is the curator's."
        )
    if stamped:
        texts.append(
            "Runs with seeded test coins are left out: anyone can subtract their noise, and what "
            "remains is the curator's."
        )
    return [Paragraph(text, "note") for text in texts]


def release_sections(
    ledgers: Sequence[Sources], answers: Sequence[Sources], *, public: bool
) -> list[Section]:
    """Budgets and statistics, where there are any; in public, no answers with seeded noise."""
    found: list[Section] = []
    if ledgers:
        found.append(Section("The budget", recorded(lambda: budgets.budgets(ledgers))))
    if answers:
        heading = "Statistics that were released"
        made = recorded(lambda: budgets.statistics(answers, public=public))
        found.append(Section(heading, made))
        promised = recorded(lambda: budgets.promised(answers))
        if promised:
            found.append(Section("What these statistics promise", promised))
    return found


def card_sections(sources: Sources, prefix: str = "") -> list[Section]:
    """Everything about one run, from its record."""
    if promises.promises_something(sources) is None:
        place = f"{RECORD}#/guarantee/epsilon" if sources.has(RECORD) else RECORD
        remedy = "Without it, nothing can be said of what the run promises, and nothing else is."
        return [Section(_headed(prefix, "the guarantee"), [Missing(sources.full(place), remedy)])]
    if not promises.is_sound(sources) or not _says_whether_private(sources):
        return [Section(_headed(prefix, "the guarantee"), recorded(lambda: promises.lead(sources)))]
    words = promises.wording(sources)
    promised = (
        (words.promised, lambda: promises.promises(sources)),
        ("what it does not promise", lambda: promises.limits(sources)),
        ("the whole guarantee", lambda: [*promises.trade_off(sources), *promises.deltas(sources)]),
        (words.rebuilt, lambda: promises.reconstruction(sources)),
    )
    if sources.has(_COST):
        promised = (
            *promised, ("what it cost for these data", lambda: published_cost(sources)),
        )  # fmt: skip
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
    test = sources.fact(_TEST_SET)
    if not _may_be_told(sources):
        what = "error" if tells_numbers(sources) else "accuracy"
        return [Paragraph((f"No {what} may be told in public. Test set: ", test, "."))]
    if tells_numbers(sources):
        return errors(sources, test)
    fact = sources.fact(_ACCURACY, per_cent_text)
    text = Paragraph(("Right on ", fact, " of its test set (", test, ")."))
    plain = is_pate(sources) or is_label_dp(sources) or is_erm(sources) or is_federated(sources)
    if plain:  # no learning curve
        return [text]
    return [text, *recorded(lambda: _learning_curve(sources, float(fact.value)))]


def _may_be_told(sources: Sources) -> bool:
    """Whether an accuracy is public: measured on public data, of a release that is private."""
    public = sources.has(_TEST_SET) and sources.raw(_TEST_SET) == "public"
    return public and _says_whether_private(sources) and not promises.is_stamped(sources)


def _says_whether_private(sources: Sources) -> bool:
    return sources.has(_PRIVATE) and isinstance(sources.raw(_PRIVATE), bool)


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
    results = result_heading([run.sources for run in runs])
    headings = ("run", "epsilon", "delta", "protects", results)
    return Section("At a glance", [Table(headings, rows)])


def _overview_row(run: PublicRun) -> tuple[Cell, ...]:
    sources, at = run.sources, f"{RECORD}#/guarantee"
    if not _says_whether_private(sources):
        return run.name, "not on record", "", "", ""
    epsilon = promises.claimed(sources)
    if isinstance(epsilon, str):  # why there is none
        return run.name, epsilon, "", "", ""

    def cell(place: str, shown: Callable[[Any], str]) -> Cell:
        try:
            return sources.fact(place, shown)
        except NotOnRecord:
            return "not on record"

    if not _may_be_told(sources):
        result: Cell = "not told"
    elif tells_numbers(sources):
        result = error_cell(sources, f"{RECORD}#/facts")
    else:
        result = cell(_ACCURACY, per_cent_text)
    return (
        run.name, epsilon, cell(f"{at}/delta", delta_text),
        cell(f"{at}/unit", lambda unit: f"one {unit}"), result,
    )  # fmt: skip
