"""``sfumato data``: tables and images to try things on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Tables of real people, and images, to try things on.")


@app.command("list")
def list_data(as_json: AsJson = False) -> None:
    """What there is, and what of it is in the cache; fetches nothing.

    Example: sfumato data list
    """
    from sfumato.data import (
        cache_folder,
        image_facts,
        image_names,
        table_facts,
        table_names,
    )

    tables = [table_facts(name) for name in table_names()]
    images = [image_facts(name) for name in image_names()]
    if as_json:
        described = [
            {"name": facts.name, "rows": facts.rows, "about": facts.about}
            | {"citation": facts.citation, "to_learn": _to_learn(facts.name)}
            for facts in tables
        ]
        print_json(
            {
                "tables": described,
                "images": [_image_record(facts.name) for facts in images],
                "folder": str(cache_folder()),
            }
        )
        return
    table = plain_table("Tables")
    table.add_column("name", no_wrap=True)
    table.add_column("rows", justify="right")
    table.add_column("what")
    table.add_column("to learn (sfumato train)")
    for facts in tables:
        about = f"{facts.about} {facts.citation}."
        table.add_row(facts.name, f"{facts.rows:,}", about, _to_learn(facts.name))
    console().print(table)
    table = plain_table(f"Images, kept in {cache_folder()}")
    table.add_column("name", no_wrap=True)
    for heading in ("train", "test", "size", "fetches", "MB"):
        table.add_column(heading, justify="right")
    table.add_column("cached")
    table.add_column("what")
    for facts in images:
        record = _image_record(facts.name)
        table.add_row(
            facts.name,
            f"{facts.train:,}",
            f"{facts.test:,}",
            "x".join(map(str, facts.shape)),
            f"{facts.download_bytes / 1e6:.0f} MB" if facts.download_bytes else "",
            f"{facts.bytes / 1e6:.3g}",
            "yes" if record["cached"] else "no",
            f"{facts.about} {facts.citation}. Licence: {facts.license}.",
        )
    console().print(table)


def _to_learn(name: str) -> str:
    """What ``sfumato train`` learns from a table; nothing from some."""
    from sfumato.data import task_facts, task_names

    return task_facts(name).about if name in task_names() else ""


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="Which: see sfumato data list.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="A .parquet or .csv file for a table, .npz for images; else the cache.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetches a data set into the cache, or writes it to a file.

    Example: sfumato data get labsup --out mothers.parquet

    Example: sfumato data get mnist
    """
    from sfumato.data import image_names, table_names

    if name in image_names():
        path = _get_images(name, out)
    elif name in table_names():
        path = _get_table(name, out)
    else:
        known = ", ".join((*table_names(), *image_names()))
        raise ValueError(f"data set must be one of {known}, got {name!r}")
    if as_json:
        record = _image_record(name) if name in image_names() else {"name": name}
        print_json(record | {"path": str(path)})
    else:
        console().print(str(path), soft_wrap=True, markup=False)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(help="A file of delimited text, also packed (.gz).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .parquet file to write; else beside FILE."),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option("--delimiter", help="Between cells; else a comma, a tab for .tsv."),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", help="Such as latin-1; else by the file's mark, or UTF-8."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Makes a Parquet file of delimited text of any kind, strictly.

    Where a CSV file is asked or learned from, one line is one row, and a line break ends a row also
    in quotes. A file whose cells hold line breaks, or which has semicolons, UTF-16 or Latin-1,
    becomes a Parquet file first. Here quotes hold line breaks together. Whatever can be read in two
    ways is an error with its line: a quote that is not closed or stands inside a cell, a row with
    more or fewer cells than the first line names, bytes of another encoding.

    Every column is text and an empty cell is missing, as in a CSV file (--type age=float64). The
    errors and the number of rows are for the curator, who looks at what came out.

    Example: sfumato data convert notes.csv --out notes.parquet

    Example: sfumato data convert visits.csv --delimiter ";" --encoding latin-1
    """
    from sfumato.data.conversion import convert as made_of

    between = "\t" if delimiter == r"\t" else delimiter
    done = made_of(file, out, delimiter=between, encoding=encoding)
    if as_json:
        print_json(
            {
                "path": str(done.path),
                "columns": list(done.columns),
                "rows": done.rows,
                "rows_with_line_breaks": done.broken,
            }
        )
        return
    told = f"{done.rows:,} rows of {len(done.columns)} columns, {done.broken:,} with line breaks"
    console().print(f"{done.path}\n{told} (for the curator)", soft_wrap=True, markup=False)


def _get_table(name: str, out: Path | None) -> Path:
    from sfumato.data import table_path

    path = table_path(name, "parquet" if out is None else out.suffix.lstrip(".").lower())
    if out is None:
        return path
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.part")
    shutil.copyfile(path, part)
    return part.replace(out)


def _get_images(name: str, out: Path | None) -> Path:
    from sfumato.data import fetch_images, load_images, save_images

    if out is None:
        return fetch_images(name)
    if out.suffix.lower() != ".npz":  # before anything is fetched
        raise ValueError(f"--out must end in .npz for images, got {str(out)!r}")
    return save_images(load_images(name), out)


def _image_record(name: str) -> dict[str, Any]:
    from sfumato.data import image_facts, images_folder, images_present

    facts = image_facts(name)
    return {
        "name": facts.name,
        "about": facts.about,
        "train": facts.train,
        "test": facts.test,
        "shape": list(facts.shape),
        "classes": list(facts.classes),
        "cached": images_present(name),
        "bytes": facts.bytes,
        "download_bytes": facts.download_bytes,
        "path": str(images_folder(name)),
        "source": facts.source,
        "license": facts.license,
        "citation": facts.citation,
    }
