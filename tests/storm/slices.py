"""For tests: pieces of storms in fresh interpreters, as a runner's threads do not survive forks."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.storm.storm import LAWS

__all__ = ["check", "run", "storms"]

_ROOT = Path(__file__).parents[2]


def run(*words, code=0):
    """What Python printed, called with these words."""
    done = subprocess.run(
        [sys.executable, *map(str, words)], capture_output=True, text=True, cwd=_ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def storms(kinds, kills, folder, *more):
    """A piece of each, and the lines that it left in a log."""
    log = folder / "log"
    command = ["-m", "tests.storm.run", "--kinds", ",".join(kinds), "--kills", kills, "--pieces", 1]
    run(*command, "--seed", 20, "--log", log, "--findings", folder / "findings", *more)
    return {line["kind"]: line for line in map(json.loads, log.read_text().splitlines())}


def check(line, kills):
    """So many kills hit, and no law was broken."""
    assert line["kills"] == sum(line["how"].values()) >= kills
    assert not any(line[law] for law in LAWS)
    if line["kind"].endswith("disk"):
        assert line["others"] > 0  # failures that processes met
