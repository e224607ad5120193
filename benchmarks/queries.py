"""Bounded group-by over 20 million rows in DuckDB, beside the plain queries on the same data.

    python benchmarks/queries.py [--rows 20000000] [--units 1000000] [--groups 100] [--runs 3]

Three columns (unit, group, value) in one Parquet file, made up from a hash, so that no unit is
special and the average unit has 20 rows. At most 3 rows and 2 groups of a unit count.

- *plain group-by*: ``SELECT grp, count(*), sum(value) GROUP BY grp``.
- *plain GROUP BY unit, grp*: what any bounding has to do at the least; its result is counted.
- *bounded, first question*: ``protect`` has been called; a count and a sum by group are asked in
  one request: pricing, ledger, bounding, materialising, aggregating and noise.
- *bounded, further question*: one more count by group over the materialised table.

Each line is the median of several runs, each with a fresh DuckDB connection on two threads.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from sfumato.ledger import Budget
from sfumato.queries import Count, Sum, protect

GROUPS = 100


def make(path: Path, rows: int, units: int, groups: int) -> None:
    duckdb.connect().execute(
        f"""COPY (SELECT (hash(i) % {units})::BIGINT AS unit, (hash(i + 7) % {groups})::INT AS grp,
                  (hash(3 * i + 1) % 100000) / 1000.0 AS value
                  FROM range({rows}) t(i)) TO '{path}'"""
    )


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def plain(path: Path, query: str) -> float:
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    return timed(lambda: connection.execute(query.format(path=path)).fetchall())


def bounded(path: Path, groups: int, folder: Path) -> tuple[float, float, float]:
    ledger = f"sqlite:///{folder}/{time.monotonic_ns()}.db"
    opened: list[object] = []
    opening = timed(
        lambda: opened.append(
            protect(
                str(path),
                unit="unit",
                max_rows_per_unit=3,
                max_groups_per_unit=2,
                budget=Budget(10),
                ledger=ledger,
                domains={"grp": range(groups)},
            )
        )
    )
    table = opened[0]
    table._table.get_backend().con.execute("SET threads = 2")  # type: ignore[attr-defined]
    by = table.group_by("grp")  # type: ignore[attr-defined]
    both = [by.query(Count(epsilon=0.5)), by.query(Sum("value", 0, 100, epsilon=0.5))]
    first = timed(lambda: table.ask(*both))  # type: ignore[attr-defined]
    further = timed(lambda: by.count(epsilon=0.5))
    return opening, first, further


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--units", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "table.parquet"
        make(path, options.rows, options.units, options.groups)
        by_group = "SELECT grp, count(*), sum(value) FROM '{path}' GROUP BY grp"
        by_unit = (
            "SELECT count(*) FROM (SELECT unit, grp, count(*), sum(value) FROM '{path}' "
            "GROUP BY unit, grp)"
        )
        runs = [
            (plain(path, by_group), plain(path, by_unit), *bounded(path, options.groups, folder))
            for _ in range(options.runs)
        ]
    group, unit, opening, first, further = (
        statistics.median(column) for column in zip(*runs, strict=False)
    )
    print(f"{options.rows:,} rows, {options.units:,} units, {options.groups} groups\n")
    print("| | seconds | ratio |\n|---|---|---|")
    print(f"| plain group-by | {group:.2f} | 1 |")
    print(f"| bounded, further question | {further:.2f} | {further / group:.2f} |")
    print(f"| plain GROUP BY unit, grp | {unit:.2f} | 1 |")
    print(f"| bounded, first question | {first:.2f} | {first / unit:.2f} |")
    print(f"| (opening: fingerprint of the file) | {opening:.2f} | |")


if __name__ == "__main__":
    main()
