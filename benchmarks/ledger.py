"""The ledger beside a bare INSERT, in one run: throughput and latency, 1 and 16 processes.

    python benchmarks/ledger.py [--seconds 4]

A release is two durable transactions (reserve, then commit the answer), so the yardstick is two
transactions of the bare driver on the same database with the same durability, each inserting one
row as wide as an entry into a table with the same keys and nothing else. A third yardstick adds
what any shared exact budget needs: locking and updating one row that all processes share.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import statistics
import struct
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, Ledger

TABLE = (
    "CREATE TABLE {0} (dataset VARCHAR(200), sequence BIGINT, kind VARCHAR(16), mark VARCHAR(300), "
    "payload TEXT, previous VARCHAR(64), hash VARCHAR(64), PRIMARY KEY (dataset, sequence), "
    "UNIQUE (dataset, mark))"
)
COUNTER = "CREATE TABLE counter (name VARCHAR(20) PRIMARY KEY, spent BIGINT)"
PAYLOAD, HASH = "x" * 420, "0" * 64
EVENT = LaplaceEvent(1000.0)


class SqliteBare:
    """The driver alone, with the ledger's settings."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=120, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    def prepare(self) -> None:
        for statement in (TABLE.format("bare"), COUNTER, "INSERT INTO counter VALUES ('all', 0)"):
            self._connection.execute(statement)

    def insert(self, sequence: int, locked: bool) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        if locked:
            run("SELECT spent FROM counter WHERE name = 'all'").fetchone()
        row = (str(os.getpid()), sequence, "reserve", None, PAYLOAD, HASH, HASH)
        run("INSERT INTO bare VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if locked:
            run("UPDATE counter SET spent = spent + 1 WHERE name = 'all'")
        run("COMMIT")


class PostgresqlBare:
    """The same with psycopg, whose repeated statements are prepared on the server."""

    def __init__(self, uri: str) -> None:
        import psycopg

        self._connection = psycopg.connect(uri)

    def prepare(self) -> None:
        for statement in (TABLE.format("bare"), COUNTER, "INSERT INTO counter VALUES ('all', 0)"):
            self._connection.execute(statement)
        self._connection.commit()

    def insert(self, sequence: int, locked: bool) -> None:
        run = self._connection.execute
        if locked:
            run("SELECT spent FROM counter WHERE name = 'all' FOR UPDATE").fetchone()
        row = (str(os.getpid()), sequence, "reserve", None, PAYLOAD, HASH, HASH)
        run("INSERT INTO bare VALUES (%s, %s, %s, %s, %s, %s, %s)", row)
        if locked:
            run("UPDATE counter SET spent = spent + 1 WHERE name = 'all'")
        self._connection.commit()


def measure(
    make: Callable[[int], Callable[[], None]], processes: int, seconds: float
) -> list[float]:
    """Latencies of all calls that ``processes`` forks make in ``seconds``, in seconds."""
    begin = time.monotonic() + 0.3 + 0.05 * processes
    pipes = []
    for number in range(processes):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            _child(make, number, begin, seconds, write)
        os.close(write)
        pipes.append(read)
    found: list[float] = []
    for read in pipes:
        with os.fdopen(read, "rb") as file:
            data = file.read()
        found += struct.unpack(f"{len(data) // 8}d", data)
    for _ in pipes:
        os.wait()
    return found


def _child(
    make: Callable[[int], Callable[[], None]],
    number: int,
    begin: float,
    seconds: float,
    write: int,
) -> None:
    call = make(number)
    for _ in range(3):
        call()
    time.sleep(max(0.0, begin - time.monotonic()))
    latencies = []
    while time.monotonic() < begin + seconds:
        start = time.perf_counter()
        call()
        latencies.append(time.perf_counter() - start)
    with os.fdopen(write, "wb") as file:
        file.write(struct.pack(f"{len(latencies)}d", *latencies))
    os._exit(0)


def cells(latencies: list[float], seconds: float) -> tuple[float, str]:
    """Rate, and rate with median and 99th percentile as text."""
    rate = len(latencies) / seconds
    cuts = statistics.quantiles(latencies, n=100)
    return rate, f"{rate:,.0f} | {cuts[49] * 1e3:.2f} | {cuts[98] * 1e3:.1f}"


def databases(folder: Path) -> Iterator[tuple[str, str, Callable[[], SqliteBare | PostgresqlBare]]]:
    path = folder / "ledger.db"
    yield "SQLite", f"sqlite:///{path}", lambda: SqliteBare(folder / "bare.db")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        server = pgserver.get_server(folder / "pg", cleanup_mode="stop")
    uri = server.get_uri()
    yield "PostgreSQL", uri, lambda: PostgresqlBare(uri)
    server.cleanup()


def bare_calls(
    connect: Callable[[], SqliteBare | PostgresqlBare], locked: bool, start: int
) -> Callable[[int], Callable[[], None]]:
    def make(_: int) -> Callable[[], None]:
        bare, counter = connect(), iter(range(start, 10**9))
        return lambda: bare.insert(next(counter), locked)

    return make


def ledger_calls(url: str, shared: bool) -> Callable[[int], Callable[[], None]]:
    def make(number: int) -> Callable[[], None]:
        ledger, name = Ledger(url, timeout=120), "shared" if shared else f"own {number}"
        ledger.create(name, Budget(1e5, 1e-6))

        def call() -> None:
            with ledger.spend(name, EVENT, label="bench") as spending:
                spending.commit(41.5)

        return call

    return make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    seconds = parser.parse_args().seconds
    folder = Path(tempfile.mkdtemp(prefix="bench"))
    print(
        "| database | processes | what | per second | p50 ms | p99 ms | of two bare transactions "
        "| of two that share a row |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for database, url, connect in databases(folder):
        connect().prepare()
        Ledger(url).create("shared", Budget(1e5, 1e-6))
        for processes in (1, 16):
            rows = [
                ("bare INSERT", bare_calls(connect, False, 0)),
                ("INSERT and a shared row", bare_calls(connect, True, 10**8)),
                ("release, one dataset", ledger_calls(url, True)),
            ]
            if processes > 1:
                rows.append(("release, a dataset each", ledger_calls(url, False)))
            rates: list[float] = []
            for what, make in rows:
                rate, text = cells(measure(make, processes, seconds), seconds)
                rates.append(rate)
                ratios = ["", ""] if len(rates) < 3 else [f"{2 * rate / r:.2f}" for r in rates[:2]]
                print(f"| {database} | {processes} | {what} | {text} | {' | '.join(ratios)} |")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
