"""``sfumato report``: records to a page that people can read."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json, working
from sfumato.core.json_files import read_json

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
    _check_edition(edition)
    _check_out(out, paths)
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
        runs: their folders, by name.
        answers: the released statistics.
        ledgers: the budgets.
    """

    runs: dict[str, Path]
    answers: tuple[Sources, ...]
    ledgers: tuple[Sources, ...]


def gather(paths: Sequence[Path], ledger: str | None, datasets: Sequence[str]) -> Gathered:
    """Sorts out what the paths are.

    Raises:
        ValueError: for a path that is neither a run nor an answer, or is given twice.
    """
    runs: list[Path] = []
    files: list[Path] = []
    for path in paths:
        if _is_run(path):
            runs.append(path)
        elif path.is_dir():
            found = sorted(path.glob("*.json"))
            if not found:
                raise ValueError(
                    f"{path} must be one run's folder or hold answers (*.json), but is neither"
                )
            files += found
        else:
            files.append(path)
    named = _named(runs)
    answers = [_answer(path, name) for name, path in _named(files).items()]
    return Gathered(named, tuple(answers), tuple(_budgets(ledger, datasets)))


def _named(paths: Sequence[Path]) -> dict[str, Path]:
    """Names of their own: the last part of each path, or as many parts as tell all apart."""
    whole = [path.resolve() for path in paths]
    for path in whole:
        if whole.count(path) > 1:
            raise ValueError(f"{path} must be given once, but is twice")
    most = max((len(path.parts) for path in whole), default=1)
    for parts in range(1, most + 1):
        names = ["/".join(path.parts[-parts:]) for path in whole]
        if len(set(names)) == len(names):
            return dict(zip(names, paths, strict=True))
    raise AssertionError("different paths have different names")


def _is_run(path: Path) -> bool:
    if not path.exists():
        raise ValueError(f"{path} must be a run's folder or an answer, but is not there")
    return path.is_dir() and any(
        (path / name).exists() for name in ("record.json", "curator", "model.safetensors")
    )


def _answer(path: Path, name: str) -> Sources:
    """The released statistics in a file: one, or several that were asked together.

    Raises:
        ValueError: if it is nothing that was released.
    """
    from sfumato.reports.card import fingerprint
    from sfumato.reports.facts import Sources

    found: Any = read_json(path)
    several: Any = found.get("answers") if isinstance(found, dict) else None
    for one in several if isinstance(several, list) and several else [found]:
        released = isinstance(one, dict) and {"query", "rows"} <= one.keys()
        if not released or one.get("channel") == "curator":
            raise ValueError(f"{path} must be an answer of sfumato query --json, but is not")
    return Sources({name: found}, marks={name: fingerprint(path)})


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

    _check_edition(edition)
    named = {} if title is None else {"title": title}
    more = found.ledgers, found.answers
    runs = found.runs.items()
    if edition == "publishable":
        ended = any((path / "record.json").is_file() for _, path in runs)
        if runs and not ended and not found.answers and not found.ledgers:
            raise ValueError(
                f"{', '.join(found.runs)} must have ended, but there is no record.json: until then "
                "all that is known is the curator's (--edition curator). Go on with a run that was "
                "cut off by sfumato train resume"
            )
        return privacy_card([PublicRun.read(path, name) for name, path in runs], *more, **named)
    return curator_report([CuratorRun.read(path, name) for name, path in runs], *more, **named)


def _check_edition(edition: str) -> None:
    if edition not in _EDITIONS:
        raise ValueError(f"edition must be one of {', '.join(_EDITIONS)}, got {edition!r}")


def _check_out(out: Path, paths: Sequence[Path]) -> None:
    """A report never takes the place of a record."""
    if out.name == "record.json" or out.resolve() in {path.resolve() for path in paths}:
        raise ValueError(f"a report must have a file of its own, but {out} is a record")


def _missing(document: Document) -> list[str]:
    from sfumato.reports.documents import Missing

    blocks = [block for section in document.sections for block in section.blocks]
    return sorted({block.place for block in blocks if isinstance(block, Missing)})
