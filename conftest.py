"""For tests and examples: which files are searched, and that torch begins each of them alike."""

import importlib.util
import sys

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/**/*_triton.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Torch's own generator begins each test alike, whichever tests ran before in its process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
