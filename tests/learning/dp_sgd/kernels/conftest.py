"""What tests of kernels share: Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def interpreted():
    """Runs the function ``check_kernel`` of a file on the CPU, its kernels by interpretation."""

    def run(file):
        code = f"import runpy; runpy.run_path({file!r})['check_kernel']('cpu')"
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=False, env=environment, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    return run
