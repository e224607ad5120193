"""Where copies of data sets are kept: ~/.cache/sfumato, or the folder named by SFUMATO_DATA."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DataUnavailable", "cache_folder", "exclusive", "write_once", "write_whole"]


class DataUnavailable(OSError):  # noqa: N818 - the name users read
    """No source of a data set answered with the right files."""


def cache_folder() -> Path:
    """The folder of cached data sets; not made until something is written into it."""
    named = os.environ.get("SFUMATO_DATA", "").strip()
    return Path(named).expanduser() if named else Path.home() / ".cache" / "sfumato"


def write_once(path: Path, write: Callable[[Path], object]) -> Path:
    """``path``, written by ``write`` if it is not there yet."""
    return path if path.exists() else write_whole(path, write)


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """``path``, written by ``write`` in place of what may be there.

    It is written beside its place and then renamed, so that neither a killed process nor two at
    once leave half a file behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    unfinished = Path(name)
    try:
        write(unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Holds the lock file ``path``; waits for another process that does.

    The system lets go of it when a process ends, however it ends.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OSError(
            f"the folder for data sets must be one that can be written to, got {path.parent} "
            f"({error.strerror}): name another in SFUMATO_DATA"
        ) from error
    try:
        _lock(handle)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        while True:
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                return
            except OSError:
                time.sleep(0.1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
