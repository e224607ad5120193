"""A participant's memory of what she has answered: no stage of a session is answered twice.

    >>> log = MemoryLog()
    >>> log.admit(b"session", "unmask"), log.admit(b"session", "unmask")
    (True, False)

A state that is written between messages could be put back by whoever stores it, and asked again
with another list of survivors. The log is what forbids it: it only grows.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Protocol, final

__all__ = ["FolderLog", "MemoryLog", "StageLog"]


class StageLog(Protocol):
    """What was answered before."""

    def admit(self, session: bytes, stage: str) -> bool:
        """Whether this is the first time; it is the last one, too."""
        ...


@final
class MemoryLog:
    """In this process: enough where the participant lives as long as the run."""

    def __init__(self) -> None:
        self._seen: set[tuple[bytes, str]] = set()

    def admit(self, session: bytes, stage: str) -> bool:
        """True once for each session and stage."""
        new = (session, stage) not in self._seen
        self._seen.add((session, stage))
        return new


@final
class FolderLog:
    """One empty file for each session and stage: for processes that start anew for each message.

    Creating a file that must not exist is atomic, so two processes cannot both be first. It is
    written through to the disk before the answer leaves.

    Args:
        folder: made if it is missing; the participant's own.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def admit(self, session: bytes, stage: str) -> bool:
        """True once for each session and stage, over all processes."""
        name = hashlib.sha256(
            len(session).to_bytes(8, "big") + session + stage.encode()
        ).hexdigest()
        try:
            made = os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return False
        os.close(made)
        above = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(above)
        finally:
            os.close(above)
        return True
