"""Many processes on one ledger: ``python -m tests.ledger.processes MODE URL ...``.

Everything is loaded once and then forked, so that a child needs a millisecond, not a second. Tests
start this file with a fresh interpreter, because a test runner's threads do not survive forks.
"""

import json
import os
import signal
import sys
import time

from tests.storm.children import fork

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError, store

TENTH = LaplaceEvent(10.0)


def wait_for(children):
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert not any(codes), codes


# --- crash at a given point ---------------------------------------------------------------------


def crash_at(url, point):
    """One child that kills itself at a named point of its second release."""
    ledger = Ledger(url)
    ledger.create("census", Budget(1.0))

    def work():
        with ledger.spend("census", TENTH, key="first") as spending:
            spending.commit("first")
        _arm(point)
        with ledger.spend("census", TENTH, key="second") as spending:
            if point == "after the reservation":
                os.kill(os.getpid(), signal.SIGKILL)
            spending.commit("second")
        if point == "after the commit":
            os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(fork(work), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status


def die(url):
    """Releases once, and dies with its connection open: nothing is tidied up."""
    ledger = Ledger(url)
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", TENTH) as spending:
        spending.commit(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(point):
    """Dies inside the transaction: after the entry was inserted, before the totals were."""
    kind = {"in the reservation": "reserve", "in the commit": "commit"}.get(point)
    if kind is None:
        return
    real = store._cache

    def deadly(state):
        if (kind == "reserve") == (state.sequence == 4):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(state)

    store._cache = deadly


# --- concurrency --------------------------------------------------------------------------------


def race(url, processes):
    """All processes open a ledger that may not exist, make the dataset, and spend it to the end."""
    start_read, start_write = os.pipe()
    report_read, report_write = os.pipe()

    def work():
        os.close(start_write)
        os.read(start_read, 1)  # returns for all of them when the parent closes its end
        ledger = Ledger(url, timeout=60)
        ledger.create("census", Budget(2.0))
        accepted, refused = 0, 0
        while refused < 3:
            try:
                with ledger.spend("census", LaplaceEvent(100.0)) as spending:
                    spending.commit(os.getpid())
                accepted += 1
            except BudgetExceeded:
                refused += 1
        os.write(report_write, f"{accepted}\n".encode())

    children = [fork(work) for _ in range(int(processes))]
    os.close(start_read)
    os.close(start_write)
    wait_for(children)
    os.close(report_write)
    with os.fdopen(report_read) as report:
        print(json.dumps([int(line) for line in report]))


def watch(url, writers, readers):
    """Some spend all the time and others look all the time; none may be locked out."""
    ledger = Ledger(url)
    ledger.create("census", Budget(1000.0))
    end = time.monotonic() + 3

    def write():
        while time.monotonic() < end:
            with ledger.spend("census", TENTH) as spending:
                spending.commit(1)

    def read():
        looks = 0
        while time.monotonic() < end:
            ledger.status("census", declared=False)
            assert ledger.verify("census").ok
            looks += 1
        assert looks > 3

    children = [fork(write) for _ in range(int(writers))]
    wait_for(children + [fork(read) for _ in range(int(readers))])
    print(json.dumps(ledger.status("census", declared=False).releases))


def same_key(url, processes):
    """All processes ask with one key at once; each reports what it got."""
    ledger = Ledger(url)
    ledger.create("census", Budget(2.0))
    report_read, report_write = os.pipe()

    def work():
        try:
            with ledger.spend("census", TENTH, key="k") as spending:
                if not spending.repeated:
                    spending.commit(os.getpid())
            answer = str(spending.answer)
        except ValueError as error:
            answer = type(error).__name__
        os.write(report_write, f"{answer}\n".encode())

    wait_for([fork(work) for _ in range(int(processes))])
    os.close(report_write)
    with os.fdopen(report_read) as report:
        print(json.dumps(report.read().split()))


def columns(url, processes):
    """All processes open one table at once, each by a column of its own; each tells what it got."""
    ledger = Ledger(url)
    ledger.create("census", Budget(2.0))
    start_read, start_write = os.pipe()
    report_read, report_write = os.pipe()

    def work(column):
        os.close(start_write)
        os.read(start_read, 1)  # returns for all of them when the parent closes its end
        try:
            answer = ledger.open_table("census", column).unit_column
        except LedgerError:
            answer = "refused"
        os.write(report_write, f"{answer}\n".encode())

    children = [fork(lambda n=number: work(f"column_{n}")) for number in range(int(processes))]
    os.close(start_read)
    os.close(start_write)
    wait_for(children)
    os.close(report_write)
    with os.fdopen(report_read) as report:
        print(json.dumps(report.read().split()))


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    modes = {f.__name__: f for f in (crash_at, die, race, watch, same_key, columns)}
    modes[mode](*arguments)
