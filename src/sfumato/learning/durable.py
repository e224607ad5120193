"""What a crash of the machine must not undo."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

__all__ = [
    "JsonLines",
    "create",
    "parsed_lines",
    "replace_durably",
    "sync_file",
    "sync_folder",
    "write_all",
    "write_whole",
]


def sync_file(file: int) -> None:
    """Returns when the disk itself has it."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:  # macOS, where fsync stops at the disk's cache
        fcntl.fcntl(file, full)
    else:
        os.fdatasync(file)


def sync_folder(folder: Path) -> None:
    """Returns when the names of the files in ``folder`` are on disk.

    To sync a new file is not enough: after a power loss it may be whole, and have no name.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def create(path: Path, data: bytes = b"") -> int:
    """A new or emptied file for the owner alone, open for writing."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.fchmod(file, 0o600)
    write_all(file, data)
    return file


def replace_durably(file: int, unfinished: Path, target: Path) -> None:
    """Gives a finished file its name: after a crash it is there as a whole, or not at all.

    Args:
        file: the open file; closed on return.
        unfinished: its name up to now.
        target: its name from now on, in the same folder.
    """
    try:
        sync_file(file)
    finally:
        os.close(file)
    os.replace(unfinished, target)
    sync_folder(target.parent)


def write_whole(path: Path, data: bytes, public: bool = False) -> None:
    """Writes a file, for the owner alone unless it is public; no reader ever sees a part of it."""
    unfinished = path.with_name(f".{path.name}.new")
    file = create(unfinished, data)
    if public:
        unfinished.chmod(0o644)
    replace_durably(file, unfinished, path)


def write_all(file: int, data: bytes) -> None:
    """Writes until nothing is left."""
    while data:
        data = data[os.write(file, data) :]


@final
class JsonLines:
    """JSON objects, one a line, each on disk before anything goes on; one process at a time.

    Attributes:
        entries: what the file held when it was opened; None for a line that was torn by a crash. A
            file that was cut off in its first line holds nothing.

    Args:
        path: of the file.
        in_use: what to say if another process has it open.

    Raises:
        ValueError: in these words.
    """

    def __init__(self, path: Path, in_use: str) -> None:
        self._path, self._broken, self._torn = path.absolute(), False, False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(in_use) from None
        held = path.read_bytes() if self._in_place() else None
        if held is None:  # replaced between opening and locking it: the lock is on the old one
            raise ValueError(in_use)
        self.entries: list[dict[str, Any] | None] = []
        self._new = b"\n" not in held
        if self._new:
            os.ftruncate(self._file, 0)
        else:
            self.entries = parsed_lines(held)
            self._torn = not held.endswith(b"\n")

    def write(self, entry: dict[str, Any]) -> None:
        """Appends it, and returns when it is on disk.

        Raises:
            OSError: if it cannot be written, now and ever after: the file may end in half a line.
                So if another file has its place: a second process could hold that one.
        """
        if self._broken:
            raise OSError("the journal could not be written, and takes no more: begin anew by it")
        if not self._in_place():
            raise OSError(
                f"{self._path} was deleted, moved or replaced while a process was at work by it, "
                "which ends now: put it back and go on by it, or begin a new run"
            )
        self._broken = True  # until all of it is on disk
        data = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if self._torn:
            data, self._torn = b"\n" + data, False  # a torn line stays a line of its own
        while data:
            data = data[os.write(self._file, data) :]
        sync_file(self._file)
        if self._new:
            sync_folder(self._path.parent)
            self._new = False
        self._broken = False

    def _in_place(self) -> bool:
        """Whether the file that is open, and locked, still has its name."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Lets another process go on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()


def parsed_lines(data: bytes) -> list[dict[str, Any] | None]:
    """What a file of :class:`JsonLines` holds; None for each object that a torn line may hold."""
    lines = data.split(b"\n") if b"\n" in data else []
    return [entry for line in lines if line for entry in _parsed(line)]


def _parsed(line: bytes) -> Sequence[dict[str, Any] | None]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return [found]
    return [None] * max(1, line.count(b"{"))
