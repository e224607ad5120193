"""Reading CSV files of five million lines, before and after one line became one row.

    git worktree add --detach /tmp/before 14d6cdd~1
    python benchmarks/delimited.py --before /tmp/before/src [--rows 5000000] [--runs 5]

Before, DuckDB's own reader of CSV files gave the rows, and quotes crossed lines; for training it
was Python's. Now both read by ``sfumato.data.delimited``. Each time is of one process, which reads
one file, without the interpreter's start. Both versions take turns, and the least of their times
counts: whatever else the machine does makes a time longer. CPU is the time of all threads together.

- *question*: ``open_source`` and an aggregate over three of four columns, one of them as numbers.
- *opening*: ``protect`` with a pandas frame of the file, two of whose columns are text; it takes
  the frame's fingerprint.
- *training*: ``load_own`` with two features and a label, of a tenth of the rows.

Files: ``numbers`` holds no quote, ``quoted`` a text in quotes on every line with a comma in it, and
``odd`` is ``numbers`` with a quote that stays open on each five-hundredth line, so that no block is
free of one (before, it took the lines after it: there were fewer rows to read), ``short`` with a
cell too few there.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TEXTS = ("numbers", "quoted", "odd", "short")
KINDS = {"question": (*TEXTS, "numbers.gz"), "opening": ("numbers",), "training": TEXTS}


def make(folder: Path, rows: int, name: str) -> None:
    """The files of so many rows."""
    comments = {"numbers": "fine", "quoted": '"well, fine"', "odd": "fine", "short": "fine"}
    odd = {"odd": ',"5 feet\n', "short": "\n"}
    for kind, comment in comments.items():
        with (folder / f"{kind}-{name}.csv").open("w") as file:
            file.write("person,age,weight,comment\n")
            for start in range(0, rows, 100_000):
                file.writelines(
                    f"p{i % 1_000_003},{i % 90},{40 + i % 700 / 10}"
                    + (odd[kind] if kind in odd and i % 500 == 0 else f",{comment}\n")
                    for i in range(start, min(start + 100_000, rows))
                )
    with (
        (folder / f"numbers-{name}.csv").open("rb") as plain,
        gzip.open(folder / f"numbers.gz-{name}.csv.gz", "wb", compresslevel=1) as packed,
    ):
        shutil.copyfileobj(plain, packed)


def question(path: str) -> Any:
    from sfumato.queries.sources import open_source

    table: Any = open_source(path, types={"age": "float64"}).table
    wanted = table.aggregate(
        rows=table.count(), ages=table.age.sum(), people=table.person.approx_nunique()
    )
    return [float(value) for value in wanted.execute().iloc[0]][:2]


def frame(path: str) -> Any:
    import pandas as pd

    return pd.read_csv(path)


def opening(found: Any) -> Any:
    import sfumato as sf

    with tempfile.TemporaryDirectory() as folder:
        budget, ledger = sf.Budget(1), f"sqlite:///{folder}/l.db"
        sf.protect(
            found, name="d", unit="person", max_rows_per_unit=9, budget=budget, ledger=ledger
        )


def training(path: str) -> Any:
    import sfumato as sf

    declared = sf.Features(
        columns=(sf.Column("age", lower=0, upper=90), sf.Column("weight", lower=40, upper=110)),
        label="comment",
        classes=("fine", "well, fine"),
    )
    return float(sf.load_own(path, declared).train.inputs.sum())


WORK = {"question": question, "opening": opening, "training": training}


def once(what: str, path: str) -> None:
    """One reading, in this process; prints its seconds and what was found."""
    import numpy  # noqa: F401
    import pyarrow.csv  # noqa: F401

    import sfumato.queries.opening
    import sfumato.queries.sources  # noqa: F401  # nothing is timed that is imported

    given = frame(path) if what == "opening" else path
    start, busy = time.perf_counter(), time.process_time()
    found = WORK[what](given)
    print(json.dumps([time.perf_counter() - start, time.process_time() - busy, found]))


def timed(source: Path, what: str, path: Path) -> tuple[float, float, Any]:
    told = subprocess.run(
        [sys.executable, __file__, "--once", what, str(path)],
        env=os.environ | {"PYTHONPATH": str(source.resolve())},
        check=True,
        capture_output=True,
        text=True,
    )
    return tuple(json.loads(told.stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--what", choices=WORK, action="append")
    parser.add_argument("--once", nargs=2)
    options = parser.parse_args()
    if options.once:
        once(*options.once)
        return
    after = Path(__file__).parents[1] / "src"
    print("| what | file | rows | before, s | after, s | ratio ", end="")
    print("| CPU before, s | after, s | ratio | the same found |\n|" + "---|" * 10)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, options.rows, "all")
        make(folder, options.rows // 10, "tenth")
        for what in options.what or WORK:
            part = "tenth" if what == "training" else "all"
            for kind in KINDS[what]:
                path = next(folder.glob(f"{kind}-{part}.csv*"))
                rows = options.rows // 10 if part == "tenth" else options.rows
                runs = [
                    (timed(options.before, what, path), timed(after, what, path))
                    for _ in range(options.runs)
                ]
                told = f"| {what} | {kind} | {rows:,} "
                for at in (0, 1):
                    was, now = (min(run[version][at] for run in runs) for version in (0, 1))
                    told += f"| {was:.2f} | {now:.2f} | {now / was:.2f} "
                same = "yes" if all(run[0][2] == run[1][2] for run in runs) else "no"
                print(told + f"| {same} |", flush=True)


if __name__ == "__main__":
    main()
