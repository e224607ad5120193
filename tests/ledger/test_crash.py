"""Killed at any moment: what was shown is stored, what was reserved is charged, caps hold."""

import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Ledger, LedgerError
from sfumato.ledger.amounts import Vector

PROGRAM = Path(__file__).with_name("processes.py")


def run(*arguments, code=0):
    result = subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)], capture_output=True, text=True
    )
    assert result.returncode == code, result.stderr
    return result.stdout


def check(ledger, released):
    """The laws that must hold however the processes died; how many reservations were cut off."""
    shown = defaultdict(dict)
    for line in released.read_text().splitlines():
        name, sequence, answer = line.split()
        shown[name][int(sequence)] = int(answer)
    cut_off = 0
    for name in ledger.names():
        found = ledger.verify(name)
        assert found.ok, found.problems
        entries = ledger.history(name)
        committed = {e.data["reserve"]: e.data["answer"] for e in entries if e.kind == "commit"}
        for sequence, answer in shown[name].items():
            assert committed[sequence] == answer
        reserved = [e for e in entries if e.kind == "reserve"]
        charged = sum(Vector.from_list(e.data["charge"]).orders[0] for e in reserved)
        assert charged == len(reserved) * 10**11 <= 12 * 10**12
        status = ledger.status(name, declared=False)
        assert status.reading == charged / 10**12
        assert len(status.open) == len(reserved) - len(committed)
        cut_off += len(status.open)
    return cut_off, sum(map(len, shown.values()))


def test_killed_at_random_moments(url, tmp_path):
    released = tmp_path / "released"
    run("crash", url, 25, released)
    _, shown = check(Ledger(url), released)
    assert shown > 0


@pytest.mark.slow
def test_killed_six_hundred_times(url, tmp_path):
    released = tmp_path / "released"
    run("crash", url, 600, released)
    cut_off, shown = check(Ledger(url), released)
    assert cut_off > 0
    assert shown > 100


def test_what_was_committed_is_in_the_one_file(sqlite_url, tmp_path):
    """So that it can be moved or copied, also after a crash."""
    run("die", sqlite_url, code=-signal.SIGKILL)
    path = sqlite_url.removeprefix("sqlite:///")
    copied, moved = tmp_path / "copied.db", tmp_path / "moved.db"
    shutil.copy(path, copied)
    os.rename(path, moved)
    for place in (copied, moved):
        ledger = Ledger(place, create=False)
        assert ledger.status("census").reading == 0.1
        assert ledger.verify("census").ok
        ledger.close()


@pytest.mark.parametrize(
    ("point", "reserved", "answered"),
    [
        ("in the reservation", 1, 1),
        ("after the reservation", 2, 1),
        ("in the commit", 2, 1),
        ("after the commit", 2, 2),
    ],
)
def test_killed_at_the_worst_moments(url, point, reserved, answered):
    run("crash_at", url, point)
    ledger = Ledger(url)
    kinds = [entry.kind for entry in ledger.history("census")]
    assert (kinds.count("reserve"), kinds.count("commit")) == (reserved, answered)
    status = ledger.status("census")
    assert status.reading == pytest.approx(0.1 * reserved)
    assert len(status.open) == reserved - answered
    assert ledger.verify("census").ok
    again = {"key": "second"}
    if answered == 2:
        assert ledger.spend("census", LaplaceEvent(10.0), **again).answer == "second"
    elif reserved == 2:
        with pytest.raises(LedgerError, match="was charged"):
            ledger.spend("census", LaplaceEvent(10.0), **again)
    else:
        with ledger.spend("census", LaplaceEvent(10.0), **again) as spending:
            spending.commit("second")
    ledger.close()
