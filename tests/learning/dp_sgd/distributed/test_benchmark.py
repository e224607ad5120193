"""The benchmark of ranks, small, as torchrun starts it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--no-compile"], ["--ways", "replicated, compiled"]])
def test_two_ranks_on_processors_train_as_one_process_does(options):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        str(ROOT / "benchmarks" / "distributed.py"), "--tiny", *options,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [
        line for line in done.stdout.splitlines() if line.startswith(("| one", "| rep", "| sh"))
    ]
    assert len(rows) == (3 if "--no-compile" in options else 1)
    for row in rows:
        off = float(row.split("|")[2])
        assert off < 1e-4
