"""For tests and examples: which files are searched, and what holds before each of them."""

import gc
import importlib.util
import sys

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["src/**/*_triton.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is loaded and found stays to the end: the garbage collector need not walk over it.

    Else it does so again and again, which takes as long as finding the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure():
    """In the end all of it can go."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Torch's own generator begins each test alike, whichever tests ran before in its process."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
