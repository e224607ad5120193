"""Worlds of several processes, for tests that look at what each rank found."""

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = Path(__file__).parents[4]


def load_benchmark(name):
    """A script of the folder of benchmarks as a module."""
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _run_world(folder, count, *names, timeout=300):
    """Every rank's findings by scenario, in the order of ranks."""
    command = [sys.executable, str(HERE / "world.py"), str(folder), str(count), *names]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=timeout, check=False
    )
    found = [
        pickle.loads(path.read_bytes())
        for rank in range(count)
        if (path := folder / f"rank-{rank}").exists()
    ]
    for each in found:
        for name, result in each.items():
            if isinstance(result, dict) and "failed" in result:
                raise AssertionError(f"{name}: {result['failed']}")
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(found) == count
    return found


@pytest.fixture(scope="session")
def run_world():
    """Runs scenarios of ``scenarios.py``: ``run_world(folder, count, *names)``."""
    return _run_world
