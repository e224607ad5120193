"""A crowd before a federation that goes on: the benchmark of the door, with a smaller crowd."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "door.py"
FEW = ("--connections", "150", "--slow", "90", "--mib", "200", "--seconds", "12")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_a_crowd_makes_the_server_hold_little_and_rounds_go_on() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARK, *FEW], capture_output=True, text=True, timeout=540.0,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    table = [(row[0], int(row[1]), int(row[2]), row[5]) for row in rows]
    assert len(table) == 9  # after each crowd it waits until a round more was answered
    before = table[0][1]
    assert max(memory for _, memory, *_ in table) < before + 100  # half of one post
    assert max(threads for _, _, threads, _ in table) < 64
    after = [said for what, *_, said in table if what == "after them"]
    assert set(after) == {"somebody new is answered"}
    (slow,) = [row[-1] for row in table if row[0].endswith("slow ones")]
    assert "open" not in slow
