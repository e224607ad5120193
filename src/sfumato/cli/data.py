"""``sfumato data``: tables to try things on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Tables of real people to try things on.")


@app.command("list")
def list_tables(as_json: AsJson = False) -> None:
    """What there is.

    Example: sfumato data list
    """
    from sfumato.data import table_facts, table_names

    known = [table_facts(name) for name in table_names()]
    if as_json:
        print_json({"tables": [{"name": facts.name, "rows": facts.rows} for facts in known]})
        return
    table = plain_table("Tables")
    table.add_column("name")
    table.add_column("rows", justify="right")
    table.add_column("what")
    for facts in known:
        table.add_row(facts.name, f"{facts.rows:,}", facts.about)
    console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Which: see sfumato data list.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .parquet or .csv file; else the cache.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Writes a table to a file.

    Example: sfumato data get labsup --out mothers.parquet
    """
    from sfumato.data import table_path

    suffix = "parquet" if out is None else out.suffix.lstrip(".").lower()
    path = table_path(name, suffix)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, out)
        path = out
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        console().print(str(path), soft_wrap=True)
