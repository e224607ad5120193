"""The folder of ``sfumato attack compare``: one comparison, whose parts are kept as they come.

====================  ==========================================================================
``comparison.json``   what is compared: all arguments, and a digest of the examples
``models/``           what is trained so far; not for release
``attacks.json``      the numbers, once there are any
``page.html``         the page
====================  ==========================================================================

All of it is the curator's, and readable by the owner alone.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.core.json_files import read_json

__all__ = ["comparison_in"]

_CLAIM, _LOCK = "comparison.json", ".lock"
_BEFORE_THE_CLAIM = {_LOCK, f".{_CLAIM}.new"}  # all that a kill can leave before it is written


@contextmanager
def comparison_in(folder: Path, asked: Mapping[str, Any]) -> Generator[Path]:
    """The folder, for this comparison alone as long as it is at work.

    Args:
        folder: new, empty, or one in which the same comparison was begun.
        asked: all that the result depends on, JSON-ready.

    Raises:
        ValueError: if the folder holds anything else, or another process is at work in it; then
            nothing is changed.
    """
    from sfumato.learning.durable import write_whole

    wanted = json.loads(json.dumps(dict(asked)))
    _check(folder, wanted)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"out must not be in use, but another process is at work in {folder}: wait for it, "
                "or give another folder"
            ) from None
        _check(folder, wanted)  # somebody else may have been quicker
        if not (folder / _CLAIM).exists():
            write_whole(folder / _CLAIM, (json.dumps(wanted, indent=2) + "\n").encode())
        yield folder
    finally:
        os.close(lock)


def _check(folder: Path, wanted: dict[str, Any]) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"out must be a folder, but {folder} is a file: give another name")
    claim = folder / _CLAIM
    if not claim.exists():
        if {path.name for path in folder.iterdir()} - _BEFORE_THE_CLAIM:
            raise ValueError(
                f"out must be a new or empty folder, or hold a comparison to go on with, but "
                f"{folder} holds other things: give another folder"
            )
        return
    there = read_json(claim)
    if there != wanted:
        raise ValueError(
            f"out must be new, or hold the same comparison, but the one in {folder} has "
            f"{_differences(there, wanted)}: give the same arguments to go on with it, or another "
            "folder"
        )


def _differences(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    """In which arguments they differ, as far as that can be said in a few words."""
    names = [name for name in wanted if there.get(name) != wanted[name]]
    plain = [name for name in names if not isinstance(wanted[name], (dict, list))]
    said = [f"{name} {there.get(name)} instead of {wanted[name]}" for name in plain]
    return " and ".join(said) or f"another {', '.join(names) or 'version'}"
