"""Processes that ask until they are killed: ``python query_processes.py URL TABLE KILLS RELEASED``.

Everything is loaded once and then forked. A child opens the table itself: DuckDB's threads do not
survive a fork.
"""

import os
import random
import signal
import sys
import time

# Loaded before the forks, so that a child soon gets to asking.
import ibis.backends.duckdb.converter
import ibis.formats.pandas
import ibis.formats.pyarrow  # noqa: F401
import pyarrow.parquet  # noqa: F401

import sfumato as sf
import sfumato.queries.opening
from sfumato.ledger import Ledger


def ask_forever(ledger, table, released):
    """Asks until refused; an answer is shown once it was returned."""
    people = sf.protect(table, name="people", unit="person", max_rows_per_unit=2, ledger=ledger)
    while True:
        try:
            answer = people.where("age > 50").count(epsilon=0.1)
        except sf.BudgetExceeded:
            return
        os.write(released, f"{answer.value} {answer.left!r}\n".encode())


def main(url, table, kills, path):
    random.seed(11)
    ledger = Ledger(url)
    ledger.create("people", sf.Budget(1000.0), unit="person")
    released = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    patience = 1.0  # grows where the machine is too busy for a child to get anywhere
    for _ in range(int(kills)):
        before = os.fstat(released).st_size
        child = os.fork()
        if child == 0:
            ask_forever(ledger, table, released)
            os._exit(0)
        time.sleep(patience * random.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        patience *= 1.3 if os.fstat(released).st_size == before else 0.8
        patience = min(max(patience, 1.0), 20.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
