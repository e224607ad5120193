"""The ledger beside a bare INSERT, in one run: throughput and latency, 1 and 16 processes.

    python benchmarks/ledger.py [--seconds 2] [--rounds 5]

A release is two durable transactions (reserve, then commit the answer), so the yardstick is two
transactions of the bare driver on the same database with the same durability, each inserting one
row as wide as an entry into a table with the same keys and nothing else. A third yardstick adds
what any shared exact budget needs: locking and updating one row that all processes share.

Rounds alternate between them, and medians over the rounds are shown; ratios are taken within a
round, so that a machine that is busy with something else slows both sides.
"""

from __future__ import annotations

import argparse
import itertools
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
        self._connection.execute("PRAGMA journal_mode=TRUNCATE")
        self._connection.execute("PRAGMA synchronous=EXTRA")

    def prepare(self) -> None:
        """Makes the tables."""
        for statement in (TABLE.format("bare"), COUNTER, "INSERT INTO counter VALUES ('all', 0)"):
            self._connection.execute(statement)

    def insert(self, sequence: int, locked: bool) -> None:
        """One transaction."""
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
        """Makes the tables."""
        for statement in (TABLE.format("bare"), COUNTER, "INSERT INTO counter VALUES ('all', 0)"):
            self._connection.execute(statement)
        self._connection.commit()

    def insert(self, sequence: int, locked: bool) -> None:
        """One transaction."""
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
    """Calls until the time is over, writes its latencies into a pipe, and ends the process."""
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


def table_rows(
    database: str,
    processes: int,
    calls: dict[str, Callable[[int], Callable[[], None]]],
    seconds: float,
    rounds: int,
) -> Iterator[str]:
    """Rounds in which each kind of call is measured in turn, as lines of a table."""
    rates: dict[str, list[float]] = {what: [] for what in calls}
    latencies: dict[str, list[float]] = {what: [] for what in calls}
    for _ in range(rounds):
        for what, make in calls.items():
            found = measure(make, processes, seconds)
            rates[what].append(len(found) / seconds)
            latencies[what] += found
    yardsticks = list(calls)[:2]
    for what in calls:
        cuts = statistics.quantiles(latencies[what], n=100)
        cells = [database, str(processes), what, f"{statistics.median(rates[what]):,.0f}"]
        cells += [f"{cuts[49] * 1e3:.2f}", f"{cuts[98] * 1e3:.1f}"]
        for yardstick in yardsticks:
            pairs = zip(rates[what], rates[yardstick], strict=True)
            ratio = statistics.median(2 * ours / bare for ours, bare in pairs)
            cells.append("" if what in yardsticks else f"{ratio:.2f}")
        yield f"| {' | '.join(cells)} |"


def databases(folder: Path) -> Iterator[tuple[str, str, Callable[[], SqliteBare | PostgresqlBare]]]:
    """Each database: its name, a ledger's address in it, and a bare connection beside it."""
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
    connect: Callable[[], SqliteBare | PostgresqlBare], locked: bool
) -> Callable[[int], Callable[[], None]]:
    """Bare transactions, which also update a row that all share if ``locked``."""

    def make(_: int) -> Callable[[], None]:
        bare, counter = connect(), itertools.count(time.monotonic_ns())
        return lambda: bare.insert(next(counter), locked)

    return make


def ledger_calls(url: str, shared: bool) -> Callable[[int], Callable[[], None]]:
    """Releases, all from one dataset or each process from its own."""

    def make(number: int) -> Callable[[], None]:
        ledger, name = Ledger(url, timeout=120), "shared" if shared else f"own {number}"
        ledger.create(name, Budget(1e5, 1e-6))

        def call() -> None:
            with ledger.spend(name, EVENT, label="bench") as spending:
                spending.commit(41.5)

        return call

    return make


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
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
            calls = {
                "bare INSERT": bare_calls(connect, False),
                "INSERT and a shared row": bare_calls(connect, True),
                "release, one dataset": ledger_calls(url, True),
            }
            if processes > 1:
                calls["release, a dataset each"] = ledger_calls(url, False)
            for row in table_rows(database, processes, calls, chosen.seconds, chosen.rounds):
                print(row, flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
