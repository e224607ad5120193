"""Where copies of data sets are kept: ~/.cache/sfumato, or the folder named by SFUMATO_DATA."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["cache_folder", "write_once"]


def cache_folder() -> Path:
    """The folder of cached data sets; not made until something is written into it."""
    named = os.environ.get("SFUMATO_DATA", "").strip()
    return Path(named).expanduser() if named else Path.home() / ".cache" / "sfumato"


def write_once(path: Path, write: Callable[[Path], object]) -> Path:
    """``path``, written by ``write`` if it is not there yet.

    It is written beside its place and then renamed, so that neither a killed process nor two at
    once leave half a file behind.
    """
    if path.exists():
        return path
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
