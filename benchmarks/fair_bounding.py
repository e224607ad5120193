"""Is every row, and every group, of a unit kept as often as any other? On three engines.

    python benchmarks/fair_bounding.py [--units 8000] [--engines duckdb,flat,postgres,spark]

Eight tables of different structure: how many rows and groups a unit has, what they hold, what its
id looks like. Of each unit R rows are kept, or G groups. A fair choice keeps each of its n rows
with probability R/n, so that the number of kept rows with each label is known on average and in
spread: d'S⁺d, with d the difference from the average and S the sum over units of
R (n-R)/(n-1) (diag(p) - pp'), is about chi-square distributed. The table shows it over its degrees
of freedom, which is about 1 where the choice is fair, and the probability of as much or more.

``flat`` is DuckDB with its hash of several arguments as it is, which takes the last argument in by
an exclusive or.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import tempfile
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import ibis.expr.datatypes as dt
import numpy as np
import pyarrow as pa
from scipy.stats import chi2

from sfumato.queries import bounding
from sfumato.queries.engine import built_in, fetch
from sfumato.queries.sources import open_source

WARDS = ("Cardiology", "Surgery", "Oncology", "Paediatrics", "Emergency", "Geriatrics")
WARDS = (*WARDS, "Neurology", "Dermatology")
KEY = 2_718_281_828_459_045_235


@dataclass(frozen=True)
class Case:
    """A table of units, and what is kept of each: so many rows, or so many groups of columns."""

    name: str
    table: pa.Table
    rows: int
    groups: int = 0
    labels: tuple[str, ...] = ("label",)


def cases(units: int) -> list[Case]:
    """The eight tables."""
    draw = np.random.default_rng(34)
    ids = np.arange(units)
    far = [str(uuid.UUID(bytes=draw.bytes(16))) for _ in ids]
    first, powers = datetime.date(2026, 1, 1), [1, 2, 4, 8, 16, 32]
    wide = {f"column_{i}": [None if i % 2 else i] * 4 * units for i in range(12)}
    often = [(u, int(label)) for u in ids for label in _zipf(draw, 1 + u % 20, 10)]
    many = [(u, int(g) % 7, int(g) // 7) for u in ids for g in draw.choice(49, 10, replace=False)]
    visits = np.arange(8 * units)
    return [
        Case("six small numbers", _table(np.repeat(ids, 6), powers * units), 1),
        Case("8 wards, visits have numbers, groups",
             _table(np.repeat(ids, 8), WARDS * units, visit=visits), 8, 1),
        Case("8 wards, no visit numbers", _table(np.repeat(ids, 8), WARDS * units), 3),
        Case("12 months' dates, units 1000 apart",
             _table(np.repeat(ids * 1000, 12),
                    [first + datetime.timedelta(30 * i) for i in range(12)] * units), 3),
        Case("letters, units are UUIDs", _table(np.repeat(far, 4), list("abcd") * units), 2),
        Case("1 to 20 rows, skewed, often the same", _table(*zip(*often, strict=True)), 2),
        Case("7 x 7 groups of two columns, 10 a unit",
             _table(*zip(*[(u, a) for u, a, _ in many], strict=True),
                    month=[b for *_, b in many]), 10, 2, ("label", "month")),
        Case("three equal rows and one other, 12 more columns",
             _table(np.repeat(ids, 4), [0.0, 0.0, 0.0, 1.5] * units, **wide), 1),
    ]  # fmt: skip


def _zipf(draw: np.random.Generator, size: int, most: int) -> Any:
    weights = 1 / np.arange(1, most + 1)
    return draw.choice(most, size, p=weights / weights.sum())


def _table(units: Sequence[Any], labels: Sequence[Any], **more: Any) -> pa.Table:
    return pa.table({"label": list(labels), "unit": list(units)} | more)


def unfairness(case: Case, table: ibis.Table, key: int) -> tuple[float, int]:
    """The statistic, and its degrees of freedom."""
    bounded = bounding.bound_rows(table, "unit", case.rows, key)
    if case.groups:
        bounded = bounding.bound_groups(bounded, "unit", case.labels, case.groups, key)
    drawn = case.groups or case.rows
    held = _held(case.table.to_pylist(), case)
    kept = _held(fetch(bounded, "measuring"), case)
    places = {label: i for i, label in enumerate(sorted({x for h in held.values() for x in h}))}
    off, spread = np.zeros(len(places)), np.zeros((len(places), len(places)))
    for unit, counts in held.items():
        size = counts.total()
        taken = min(drawn, size)
        share = np.zeros(len(places))
        for label, count in counts.items():
            share[places[label]] = count / size
        off -= taken * share
        for label, count in kept[unit].items():
            off[places[label]] += count
        if taken < size:
            left = (size - taken) / (size - 1)
            spread += taken * left * (np.diag(share) - np.outer(share, share))
    freedom = int(np.linalg.matrix_rank(spread, tol=1e-9 * np.trace(spread), hermitian=True))
    return float(off @ np.linalg.pinv(spread, rcond=1e-9, hermitian=True) @ off), freedom


def _held(rows: Sequence[dict[str, Any]], case: Case) -> dict[Any, Counter[Any]]:
    """How often each unit holds each label; once each, where groups are kept."""
    found: dict[Any, Counter[Any]] = {}
    for row in rows:
        label = tuple(row[name] for name in case.labels)
        counts = found.setdefault(row["unit"], Counter())
        counts[label] = 1 if case.groups else counts[label] + 1
    return found


# --- engines --------------------------------------------------------------------------------------


@contextlib.contextmanager
def flat() -> Iterator[None]:
    """DuckDB's hash of several arguments as it is."""
    mixed = bounding._hash

    def once(table: ibis.Table, columns: Sequence[str], key: int) -> Any:
        return built_in("hash", dt.uint64, ibis.literal(key), *(table[c] for c in columns))

    bounding._hash = once
    try:
        yield
    finally:
        bounding._hash = mixed


class InDuckDB:
    """Tables in DuckDB."""

    def put(self, table: pa.Table) -> ibis.Table:
        """The table, opened."""
        return open_source(table, name="measured").table


class InPostgreSQL:
    """A server of its own."""

    def __init__(self) -> None:
        import pgserver

        self.url = pgserver.get_server(tempfile.mkdtemp(prefix="pg")).get_uri()
        self.number = 0

    def put(self, table: pa.Table) -> ibis.Table:
        """The table, copied and opened."""
        self.number += 1
        import psycopg

        columns = ", ".join(f"{f.name} {_postgres_type(f.type)}" for f in table.schema)
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE t{self.number} ({columns})")
            with cursor.copy(f"COPY t{self.number} FROM STDIN") as copy:
                for row in zip(*table.to_pydict().values(), strict=True):
                    copy.write_row(row)
        return open_source(self.url, table=f"t{self.number}").table


def _postgres_type(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        return "bigint"
    return {"double": "double precision", "string": "text", "date32[day]": "date"}[str(kind)]


class InSpark:
    """A session on this machine."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.master("local[2]")
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "localhost",
        }.items():
            session = session.config(name, value)
        self.session = session.getOrCreate()
        self.session.sparkContext.setLogLevel("OFF")
        self.connection = ibis.pyspark.connect(self.session)
        self.folder = tempfile.mkdtemp()

    def put(self, table: pa.Table) -> ibis.Table:
        """The table, written and opened."""
        import pyarrow.parquet as pq

        name = f"t{id(table)}"
        pq.write_table(table, f"{self.folder}/{name}.parquet")
        self.session.read.parquet(f"{self.folder}/{name}.parquet").createOrReplaceTempView(name)
        return open_source(self.connection.table(name), name=name).table


ENGINES: dict[str, Any] = {
    "duckdb": InDuckDB,
    "flat": InDuckDB,
    "postgres": InPostgreSQL,
    "spark": InSpark,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--units", type=int, default=8000)
    parser.add_argument("--engines", default="duckdb,flat,postgres,spark")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    names = options.engines.split(",")
    engines = {name: ENGINES[name]() for name in names}
    print("| table | freedom | " + " | ".join(names) + " |")
    print("|---|---:|" + "---:|" * len(names))
    for case in cases(options.units):
        shown = []
        for name, engine in engines.items():
            with flat() if name == "flat" else contextlib.nullcontext():
                off, freedom = unfairness(case, engine.put(case.table), KEY)
            shown.append(f"{off / freedom:.3g} ({chi2.sf(off, freedom):.2g})")
        print(f"| {case.name} | {freedom} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
