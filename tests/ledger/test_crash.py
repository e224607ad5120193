"""Killed at the worst moments; ``tests/storm`` kills at any."""

import os
import shutil
import signal

import pytest
from tests.storm.slices import run as program

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Ledger, LedgerError


def run(*arguments, code=0):
    return program("-m", "tests.ledger.processes", *arguments, code=code)


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
