"""Processes that query are killed at any moment: every answer seen is in the ledger, and paid."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from sfumato.ledger import Ledger

PROGRAM = Path(__file__).with_name("query_processes.py")


def kill_and_check(url, tmp_path, kills):
    table, released = tmp_path / "people.parquet", tmp_path / "released"
    pd.DataFrame({"person": [i // 3 for i in range(3000)], "age": range(3000)}).to_parquet(table)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), url, str(table), str(kills), str(released)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    ledger = Ledger(url)
    assert ledger.verify("people").ok
    entries = ledger.history("people")
    stored = Counter(
        (cell["value"], repr(answer["left"]))
        for entry in entries
        if entry.kind == "commit"
        for answer in entry.data["answer"]
        for cell in answer["rows"]
    )
    seen = Counter(tuple(line.split()) for line in released.read_text().splitlines())
    for (value, left), times in seen.items():
        assert stored[(int(value), left)] >= times
    kinds = Counter(entry.kind for entry in entries)
    assert kinds["commit"] + kinds["failed"] <= kinds["reserve"]
    status = ledger.status("people", declared=False)
    assert status.reading == pytest.approx(0.1 * kinds["reserve"])
    ledger.close()
    return sum(seen.values()), kinds


BOTH = pytest.mark.parametrize(
    "url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)  # the ledger's own tests kill it in PostgreSQL, too


@BOTH
def test_killed_while_asking(url, tmp_path):
    seen, kinds = kill_and_check(url, tmp_path, 25)
    assert seen > 0
    assert kinds["reserve"] >= seen


@pytest.mark.slow
def test_killed_three_hundred_times_while_asking(url, tmp_path):
    seen, kinds = kill_and_check(url, tmp_path, 300)
    assert seen > 100
    assert kinds["reserve"] > kinds["commit"]  # some were cut off, and stay charged
