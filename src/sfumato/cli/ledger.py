"""``sfumato ledger``: budgets that last."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group

from sfumato.cli.event_files import read_events
from sfumato.cli.options import AsJson, Plot, Unit
from sfumato.cli.output import console, number, plain_table, print_json, working
from sfumato.core.json_files import read_text

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.ledger import Budget, Entry, Ledger, Preview, Status

app = typer.Typer(
    no_args_is_help=True, help="Privacy budgets that last: open, look at, and verify them."
)

Url = Annotated[
    str,
    typer.Option(
        envvar="SFUMATO_LEDGER",
        help="Where the ledger is: a file, sqlite:///FILE or postgresql://USER@HOST/NAME.",
    ),
]
Name = Annotated[str, typer.Argument(help="The dataset's name.")]
Analyst = Annotated[str, typer.Option(help="As this analyst, whose caps also apply.")]
Epsilon = Annotated[float, typer.Option(help="The cap on epsilon.")]
Delta = Annotated[float, typer.Option(help="Its delta; 0 admits pure releases alone.")]
OpaqueDelta = Annotated[
    float | None,
    typer.Option(help="Part of delta for (epsilon, delta) releases and plans. Default: half."),
]
DEFAULT_URL = "sqlite:///privacy.db"


@app.command()
def create(
    name: Name,
    epsilon: Epsilon,
    delta: Delta = 0.0,
    unit: Unit = "record",
    neighbours: Annotated[
        str, typer.Option(help="add-remove, replace-one or zero-out.")
    ] = "add-remove",
    opaque_delta: OpaqueDelta = None,
    description: Annotated[str, typer.Option(help="For readers.")] = "",
    closed: Annotated[bool, typer.Option("--closed", help="Only for analysts with a cap.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Open a budget for a dataset. Done again with the same terms, it changes nothing.

    Example: sfumato ledger create census --epsilon 3 --delta 1e-6 --unit person
    """
    from sfumato.ledger import Budget

    with _open(url, create=True) as ledger:
        ledger.create(
            name,
            Budget(epsilon, delta, opaque_delta),
            unit=unit,
            neighbours=neighbours,
            description=description,
            closed=closed,
        )
        status = ledger.status(name, declared=False)
    if as_json:
        print_json(status.to_dict())
        return
    console().print(f"{name}: {status.guarantee}")


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="A dataset's name; all by default.")] = None,
    analyst: Analyst = "",
    plot: Plot = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Where budgets stand: cap, reading, and what is left.

    Example: sfumato ledger show census --plot burndown.png
    """
    if plot is not None and name is None:
        raise ValueError("--plot draws one dataset: name it, as in 'ledger show census --plot ...'")
    with _open(url) as ledger, working("Accounting"):
        if name is None:
            found = [ledger.status(each, analyst, declared=False) for each in ledger.names()]
        else:
            found = [ledger.status(name, analyst)]
            if plot is not None:
                _plot(ledger, name, plot)
    drawn = {"plot": str(plot)} if plot else {}
    if as_json:
        data = [status.to_dict() for status in found]
        print_json({"datasets": data} if name is None else data[0] | drawn)
        return
    console().print(_overview(found) if name is None else _details(found[0]))
    if plot is not None:
        console().print(f"Plot written to {plot}")


@app.command()
def history(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Every entry of a dataset, oldest first, with the reading after it.

    Example: sfumato ledger history census
    """
    with _open(url) as ledger:
        entries, terms = ledger.history(name), ledger.terms(name)
        readings = {one.sequence: one.reading for one in ledger.readings(name)}
    if as_json:
        listed = [entry.to_dict() for entry in entries]
        print_json({"dataset": name, **terms.guarantee.to_dict(), "entries": listed})
        return
    table = plain_table(f"{name}: {terms.guarantee}")
    for heading in ("entry", "time (UTC)", "kind", "analyst", "what", "reading"):
        table.add_column(heading, justify="right" if heading in ("entry", "reading") else "left")
    for entry in entries:
        what = _what(entry)
        reading = number(readings.get(entry.sequence))
        when = entry.at[:19].replace("T", " ")
        table.add_row(
            str(entry.sequence), when, entry.kind, entry.data.get("analyst") or "", what, reading
        )
    console().print(table)


@app.command()
def verify(
    name: Name,
    head: Annotated[
        str | None, typer.Option(help="A head kept elsewhere: its file, or its hash.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Recompute a dataset from its entries; exit code 1 if anything is wrong.

    Example: sfumato ledger verify census --head census.head
    """
    kept = None if head is None else _kept(head)
    with _open(url) as ledger:
        found = ledger.verify(name, kept)
    if as_json:
        print_json(found.to_dict())
    else:
        against = ", and the kept head is among them" if kept else ""
        if found.ok:
            console().print(f"{name}: {found.entries} entries are as they were written{against}")
        for problem in found.problems:
            console().print(f"{name}: {problem}", markup=False)
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def head(
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it into this file.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """The hash of the last entry, to keep where the ledger's administrator cannot write.

    Example: sfumato ledger head census -o census.head
    """
    with _open(url) as ledger:
        found = ledger.head(name)
    if output is not None:
        output.write_text(f"{found}\n", encoding="utf-8")
    if as_json:
        print_json(found.to_dict())
        return
    console().print(f"entry {found.sequence}: {found.hash}")
    if output is not None:
        console().print(f"Head written to {output}")


@app.command()
def grant(
    name: Name,
    analyst: Annotated[str, typer.Argument(help="Whose cap.")],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    opaque_delta: OpaqueDelta = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Give an analyst a cap of their own; a new one replaces the old and keeps what was spent.

    Example: sfumato ledger grant census ann --epsilon 1 --delta 1e-7
    """
    from sfumato.ledger import Budget

    with _open(url) as ledger:
        ledger.grant(name, analyst, Budget(epsilon, delta, opaque_delta))
        status = ledger.status(name, analyst, declared=False)
    if as_json:
        print_json(status.to_dict())
        return
    console().print(f"{analyst} may spend epsilon {epsilon:g}, delta {delta:g} of {name}")


@app.command("add-table")
def add_table(
    name: Name,
    table: Annotated[str, typer.Argument(help="What the table is called in the dataset.")],
    unit: Annotated[
        str | None, typer.Option(help="The column that tells whose a row is in this table.")
    ] = None,
    each_row: Annotated[
        bool, typer.Option("--each-row", help="Each row is a unit: there is no such column.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Add a table to a dataset whose units are the same people, told apart by its own column.

    The first table is taken from the first question. A value of the column must name the person
    that it names in the other tables: nothing can check that. Before anything was charged, the
    command also corrects a column.

    Example: sfumato ledger add-table hospital visits --unit patient_id
    """
    if (unit is None) != each_row:
        raise ValueError("give either --unit COLUMN, or --each-row where every row is a unit")
    with _open(url) as ledger:
        added = ledger.add_table(name, table, unit)
        status = ledger.status(name, declared=False)
    if as_json:
        print_json(status.to_dict())
        return
    console().print(f"{name}: table {added.name}, {_units(added.unit_column)}", markup=False)


@app.command()
def preview(
    name: Name,
    path: Annotated[Path, typer.Argument(help="A JSON file: one event, or a list of them.")],
    analyst: Analyst = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """What events would cost, and whether they would pass. Nothing is spent.

    The file is one that 'sfumato account events' reads.

    Example: sfumato ledger preview census events.json
    """
    events = read_events(path)
    with _open(url) as ledger:
        found = ledger.preview(name, events, analyst=analyst)
    if as_json:
        print_json(found.to_dict())
        return
    console().print(_preview_table(found))
    verdict = "all of them pass" if found.passes else "not all of them pass"
    console().print(
        f"Together they would read epsilon {number(found.reading)} of {_cap(found.terms.budget)}: "
        f"{verdict}. Nothing was spent."
    )


# --- helpers ------------------------------------------------------------------------------------


@contextmanager
def _open(url: str, create: bool = False) -> Generator[Ledger]:
    from sfumato.ledger import Ledger

    ledger = Ledger(url, create=create)
    try:
        yield ledger
    finally:
        ledger.close()


def _kept(head: str) -> str:
    """The content of a file, or a hash."""
    path = Path(head)
    if path.is_file():
        return read_text(path).strip()
    if re.fullmatch("[0-9a-f]{64}", head):
        return head
    raise ValueError(f"--head must be a file, or a hash of 64 hexadecimal digits, got {head!r}")


def _cap(budget: Budget) -> str:
    return f"the cap {budget.epsilon:g}"


def _left(value: float) -> str:
    """Four digits, rounded down: what is shown as left is left."""
    from sfumato.ledger.status import shown_down

    return shown_down(value)


def _what(entry: Entry) -> str:
    data = entry.data
    if entry.kind == "resume" and "run" in data:
        return f"of entry {data['reserve']}: turn {data['turn']} of run {data['run']}"
    if entry.kind in ("commit", "failed", "refund", "resume"):
        return f"of entry {data['reserve']}"
    if entry.kind == "table":
        return f"{data['table']}: {_units(data['unit_column'])}"
    if entry.kind == "cap":
        return f"epsilon {data['budget']['epsilon']:g}"
    if entry.kind == "open":
        return data["description"]
    kind = f"{len(data['events'])} events" if entry.kind == "plan" else data["event"]["kind"]
    return f"{kind}: {data['label']}" if data["label"] else kind


def _units(column: str | None) -> str:
    return "each row is a unit" if column is None else f"units by column {column}"


def _overview(found: list[Status]) -> Table:
    table = plain_table("Budgets")
    for heading in ("dataset", "protects", "cap", "delta", "reading", "left", "releases"):
        table.add_column(heading, justify="left" if heading in ("dataset", "protects") else "right")
    for status in found:
        terms = status.terms
        table.add_row(
            status.dataset,
            terms.neighbours.describe(terms.unit),
            f"{terms.budget.epsilon:g}",
            f"{terms.budget.delta:g}",
            number(status.reading),
            _left(_curators(status)),
            f"{status.releases:,}",
        )
    return table


def _curators(status: Status) -> float:
    """What is left: in a closed dataset, where no one in particular may spend, the dataset's."""
    return status.left if status.analyst or not status.terms.closed else status.own.left


def _details(status: Status) -> Group:
    table = plain_table(f"{status.dataset}: {status.guarantee}")
    for heading in ("limit", "cap", "reading", "left"):
        table.add_column(heading, justify="left" if heading == "limit" else "right")
    for one in (status.own, *status.caps):
        if one.active:
            reading = number(one.reading)
            table.add_row(one.name, f"{one.budget.epsilon:g}", reading, _left(one.left))
    return Group(table, *_notes(status))


def _notes(status: Status) -> list[str]:
    lines = [
        "The guarantee is the cap; a reading is an odometer's. Left: for pure releases.",
        f"{status.releases:,} releases, {status.entries:,} entries; delta {status.opaque_left:.4g} "
        "left for opaque releases.",
    ]
    if status.tables:
        listed = "; ".join(f"{one.name} ({_units(one.unit_column)})" for one in status.tables)
        lines.append(f"Tables: {listed}.")
    if status.declared is not None:
        epsilon = number(status.declared.epsilon)
        lines.append(f"If all of it had been declared in advance: epsilon {epsilon}.")
    for cap in status.caps:
        if cap.active and cap.reserved_before:
            lines.append(f"{cap.name[0].upper()}{cap.name[1:]}: {cap.before}.")
    if status.open:
        numbers = ", ".join(str(one.sequence) for one in status.open)
        lines.append(f"Reserved without an answer, and charged: entries {numbers}.")
    return lines


def _preview_table(found: Preview) -> Table:
    table = plain_table(f"{found.terms.dataset}: what would it cost?")
    for heading in ("event", "cost", "passes", "reading then", "left then"):
        table.add_column(heading, justify="left" if heading in ("event", "passes") else "right")
    for one in found.events:
        passes = "yes" if one.passes else "no"
        table.add_row(
            one.event.kind, number(one.cost), passes, number(one.reading), _left(one.left)
        )
    return table


def _plot(ledger: Ledger, name: str, path: Path) -> None:
    from sfumato.plots import plot
    from sfumato.reports.style import save

    save(plot(ledger, dataset=name), path)
