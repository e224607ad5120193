"""``sfumato report``: records to a page that people can read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json, working

if TYPE_CHECKING:
    from sfumato.reports.documents import Document
    from sfumato.reports.facts import Sources

__all__ = ["Gathered", "gather", "make_report", "report"]

_EDITIONS = ("publishable", "curator")


def report(
    paths: Annotated[
        list[Path], typer.Argument(help="Run folders; answers of sfumato query --json, or folders.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A file that ends in .html, .md or .json.")
    ] = Path("report.html"),
    edition: Annotated[
        str, typer.Option(help="publishable: a card for everybody; curator: for you alone.")
    ] = "publishable",
    ledger: Annotated[str | None, typer.Option(help="Also show budgets of this ledger.")] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(help="Of this dataset; all of them if left out.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The heading.")] = None,
    view: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Writes a report of one run or several, from their records alone.

    The publishable edition opens a run's record.json and no other file of it. What is not on
    record is not in the report, which says so instead.

    Examples:
    sfumato report runs/a -o card.html

    sfumato report runs/plain runs/a runs/b --edition curator -o report.html

    sfumato report runs/a answers/ --ledger privacy.db --dataset patients -o card.md
    """
    from sfumato.reports.writing import check_format, write_document

    check_format(out)
    with working("reading the records"):
        found = gather(paths, ledger, dataset or ())
        document = make_report(found, edition, title)
        write_document(document, out)
    missing = _missing(document)
    if as_json:
        print_json({"report": str(out), "edition": edition, "missing": missing})
    else:
        screen = console()
        screen.print(f"{edition} edition written to {out}", markup=False)
        for place in missing:
            screen.print(f"  not on record: {place}", markup=False)
    if view:
        typer.launch(str(out))


@dataclass(frozen=True)
class Gathered:
    """What a report is made from.

    Attributes:
        runs: their folders.
        answers: the released statistics.
        ledgers: the budgets.
    """

    runs: tuple[Path, ...]
    answers: tuple[Sources, ...]
    ledgers: tuple[Sources, ...]


def gather(paths: Sequence[Path], ledger: str | None, datasets: Sequence[str]) -> Gathered:
    """Sorts out what the paths are.

    Raises:
        ValueError: for a path that is neither a run nor an answer.
    """
    runs: list[Path] = []
    answers: list[Sources] = []
    for path in paths:
        if _is_run(path):
            runs.append(path)
        elif path.is_dir():
            files = sorted(path.glob("*.json"))
            if not files:
                raise ValueError(f"{path} must hold a run or answers (*.json), but holds neither")
            answers += [_answer(file) for file in files]
        else:
            answers.append(_answer(path))
    return Gathered(tuple(runs), tuple(answers), tuple(_budgets(ledger, datasets)))


def _is_run(path: Path) -> bool:
    if not path.exists():
        raise ValueError(f"{path} must be a run's folder or an answer, but is not there")
    return path.is_dir() and any(
        (path / name).exists() for name in ("record.json", "curator", "model.safetensors")
    )


def _answer(path: Path) -> Sources:
    from sfumato.reports.budgets import ANSWER
    from sfumato.reports.facts import Sources

    try:
        found: Any = json.loads(path.read_text())
    except ValueError:
        found = None
    if not isinstance(found, dict) or "query" not in found:
        raise ValueError(f"{path} must be an answer of sfumato query --json, but is not")
    return Sources({ANSWER: found}, path.stem)


def _budgets(url: str | None, datasets: Sequence[str]) -> list[Sources]:
    from sfumato.reports.budgets import STATUS
    from sfumato.reports.facts import Sources

    if url is None:
        if datasets:
            raise ValueError("--dataset says of what in a ledger: give --ledger, too")
        return []
    from sfumato.ledger import Ledger

    with contextlib.closing(Ledger(url, create=False)) as book:
        names = datasets or book.names()
        return [
            Sources({STATUS: book.status(name, declared=False).to_dict()}, f"ledger/{name}")
            for name in names
        ]


def make_report(found: Gathered, edition: str, title: str | None = None) -> Document:
    """The document of one edition.

    Raises:
        ValueError: for an edition that there is not.
    """
    from sfumato.reports.card import PublicRun, privacy_card
    from sfumato.reports.curator import CuratorRun, curator_report

    if edition not in _EDITIONS:
        raise ValueError(f"edition must be one of {', '.join(_EDITIONS)}, got {edition!r}")
    named = {} if title is None else {"title": title}
    more = found.ledgers, found.answers
    if edition == "publishable":
        return privacy_card([PublicRun.read(path) for path in found.runs], *more, **named)
    return curator_report([CuratorRun.read(path) for path in found.runs], *more, **named)


def _missing(document: Document) -> list[str]:
    from sfumato.reports.documents import Missing

    blocks = [block for section in document.sections for block in section.blocks]
    return sorted({block.place for block in blocks if isinstance(block, Missing)})
