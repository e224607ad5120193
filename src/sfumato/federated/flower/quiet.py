"""The environment in which Flower and Ray talk to nobody but us, and log little.

>>> QUIET["FLWR_TELEMETRY_ENABLED"], QUIET["RAY_USAGE_STATS_ENABLED"]
('0', '0')
>>> environment("/srv/ward")["FLWR_HOME"]
'/srv/ward'
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

__all__ = ["QUIET", "environment", "hushed", "unchanged_environment", "without_warnings"]

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_enable_metrics_collection": "0",
}
"""Names and values set before Flower is imported, and handed to every process that is started."""


def environment(home: str | Path) -> dict[str, str]:
    """The environment of a process of Flower's.

    This process's own, made quiet, with Flower's files in a folder of the caller's and this
    Python's programs found first.

    Args:
        home: what Flower calls FLWR_HOME.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    # Where modules are found here, they are found there: a test's participants, a notebook's.
    modules = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    quiet = {**QUIET, "FLWR_HOME": str(home), "PATH": path, "PYTHONPATH": modules}
    return {**os.environ, **quiet}


@contextlib.contextmanager
def unchanged_environment() -> Iterator[None]:
    """Puts back whatever is done to the environment inside: Ray's backend lengthens PYTHONPATH."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def hushed(level: int = logging.ERROR) -> Iterator[None]:
    """Flower's and Ray's loggers say only what is at least this grave."""
    loggers = [logging.getLogger(name) for name in ("flwr", "ray")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.setLevel(old)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """For a library's start-up alone: what it says there is not about our use of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
