"""What all ways of training share: how a run is launched, and what is said before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import console, plain_table
from sfumato.cli.train_options import device_called

if TYPE_CHECKING:
    from sfumato.core.records import Record
    from sfumato.learning.runs import RunFolder

__all__ = ["Launch", "accuracy_of", "clock", "error_rows", "print_facts", "print_finished"]


@dataclass(frozen=True)
class Launch:
    """How a resumable run is started, for the first time or again.

    Attributes:
        out: its folder.
        request: what is kept in the folder to go on by: source, ledger and settings.
        ledger: whom to charge; the folder keeps its address without a password.
        device: as on the command line.
        progress: whether to show it; None if there is a terminal.
        as_json: whether one JSON object is all that is said.
        resume: whether the folder is there already.
    """

    out: Path
    request: dict[str, Any]
    ledger: str | None
    device: str
    progress: bool | None
    as_json: bool
    resume: bool = False

    def arguments(self) -> dict[str, Any]:
        """For a training function."""
        from sfumato.learning.recipes.observing import Shown

        return {
            "out": self.out,
            "resume": self.resume,
            "ledger": self.ledger,
            "device": device_called(self.device),
            "observer": Shown(False if self.as_json else self.progress),
            "request": self.request,
            **self.request["settings"],
        }


def clock(seconds: float) -> str:
    """As people say it.

    >>> clock(3.21), clock(59.96), clock(105)
    ('3.2 s', '1 min 0 s', '1 min 45 s')
    """
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"


def accuracy_of(public: float | None, folder: RunFolder) -> tuple[float | None, bool]:
    """What is on record, or else what is the curator's own; and whether it is the former."""
    if public is not None:
        return public, True
    return folder.read_curator("results.json").get("accuracy"), False


def error_rows(errors: Mapping[str, Any], public: bool) -> list[tuple[str, str]]:
    """How far predicted numbers are from those of test rows; none without such rows.

    Args:
        errors: as records hold them.
        public: whether the test rows are.
    """
    from sfumato.reports.facts import amount_text

    if not errors:
        return []
    eyes = "" if public else " (on private rows: for your eyes only)"
    share, off = errors["r_squared"], amount_text(errors["root_mean_squared_error"])
    explained = "" if share is None else f", R squared {share:.3f}"
    return [
        ("test error", f"{off}{explained}{eyes}"),
        ("mean absolute", f"{amount_text(errors['mean_absolute_error'])}{eyes}"),
        ("always the middle", f"{amount_text(errors['error_of_the_middle'])}{eyes}"),
    ]


def print_facts(title: str, rows: Iterable[tuple[str, str]]) -> None:
    """A name and a fact a row."""
    table = plain_table(title)
    table.add_column("", no_wrap=True)
    table.add_column("")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_finished(
    record: Record,
    folder: RunFolder,
    accuracy: float | None,
    public: bool,
    seconds: float,
    rows: Iterable[tuple[str, str]],
) -> None:
    """The guarantee, the accuracy and where all of it is, with the method's own rows between.

    Args:
        record: the public one.
        folder: the run's.
        accuracy: on the rows that were kept to test on, if there were any.
        public: whether those are.
        seconds: since the command began.
        rows: what else there is to say.
    """
    told = [("guarantee", str(record.guarantee))]
    if accuracy is not None:
        eyes = "" if public else " (on private rows: for your eyes only)"
        told.append(("test accuracy", f"{100 * accuracy:.2f} %{eyes}"))
    places = [
        ("public", f"{folder.record_file}, {folder.model_file.name}"),
        ("for you alone", str(folder.curator)),
    ]
    print_facts(f"Trained in {clock(seconds)}", [*told, *rows, *places])
