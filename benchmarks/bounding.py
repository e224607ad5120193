"""How long bounding 5 million rows in DuckDB takes, before a change and after it.

    git worktree add --detach /tmp/before COMMIT
    python benchmarks/bounding.py --before /tmp/before/src [--rows 5000000] [--runs 3]

Each version makes the tables in a process of its own, two threads; versions take turns, the least
of the runs counts. Five columns (unit, group, number, text, date) made up from a hash, so that no
unit is special; of each unit R rows are kept. *Equal rows* has units and one of ten groups alone:
most rows of a unit occur more than once. The time is that of ``bound_rows``: the unit's rows put in
order, and the first R of them materialised.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings

CASES = {
    "20 rows a unit, 3 kept": (20, 3, "unit, grp, value, txt, day"),
    "20 rows a unit, 10 kept": (20, 10, "unit, grp, value, txt, day"),
    "100 rows a unit, 5 kept": (100, 5, "unit, grp, value, txt, day"),
    "5 rows a unit, 2 kept": (5, 2, "unit, grp, value, txt, day"),
    "units are text, 20 rows, 3 kept": (20, 3, "'patient ' || unit AS unit, grp, value, txt, day"),
    "equal rows, 20 a unit, 3 kept": (20, 3, "unit, grp % 10 AS grp"),
}
COLUMNS = """(hash(i) % {units})::BIGINT AS unit, (hash(i + 7) % 100)::INT AS grp,
    (hash(3 * i + 1) % 100000) / 1000.0 AS value, 'visit ' || (hash(i + 3) % 10000) AS txt,
    DATE '2020-01-01' + (hash(i + 5) % 1000)::INT AS day"""


def measured(case: str, rows: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor, in this process."""
    import ibis

    from sfumato.queries import bounding
    from sfumato.queries.sources import open_source

    warnings.simplefilter("ignore")
    each, kept, columns = CASES[case]
    backend = ibis.duckdb.connect()
    backend.con.execute("SET threads = 2")
    made = f"SELECT {COLUMNS.format(units=rows // each)} FROM range({rows}) AS t(i)"
    backend.con.execute(f"CREATE TABLE visits AS SELECT {columns} FROM ({made})")
    table = open_source(backend.table("visits")).table
    bounding.bound_rows(table.limit(1000), "unit", kept, 1)  # what is imported when first needed
    clock, used = time.perf_counter(), _processor()
    bounding.bound_rows(table, "unit", kept, 1)
    return time.perf_counter() - clock, _processor() - used


def _processor() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def elsewhere(source: str, case: str, rows: int) -> tuple[float, float]:
    """The same with the package in ``source``."""
    command = [sys.executable, __file__, "--case", case, "--rows", str(rows)]
    environment = os.environ | {"PYTHONPATH": source}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    clock, used = json.loads(done.stdout)
    return clock, used


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", help="the folder src of another version")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--case", help="measure this one in this process")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measured(options.case, options.rows)))
        return
    if not options.before:
        parser.error("--before is needed")
    here = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
    print("| table | before, s | after, s | ratio | CPU before, s | after, s | ratio |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        turns = [
            (elsewhere(options.before, case, options.rows), elsewhere(here, case, options.rows))
            for _ in range(options.runs)
        ]
        cells = [case]
        for which in (0, 1):
            before, after = (min(turn[version][which] for turn in turns) for version in (0, 1))
            cells += [f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
