"""A journal of started steps.

Before a lot is read its step goes into the journal, and to the disk. So whatever happens afterwards
(kill -9, power loss), it is known which lots may have been read, and their cost counts.

Every entry is a line of 16 bytes, which no disk splits between two sectors. A torn or damaged entry
counts as a step started.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import final

from sfumato.learning.durable import sync_file, sync_folder, write_all

__all__ = ["Journal"]

_SLOT = 16  # fifteen digits and a line's end


@final
class Journal:
    """An append-only file of started steps; one holder at a time appends.

    Args:
        path: of the journal; its lock is beside it. Nothing is created before the first entry.
    """

    def __init__(self, path: Path) -> None:
        self._file = self._lock = -1
        self._path = path
        self._started = self._read()

    @property
    def started(self) -> int:
        """How many steps may have been started; see :func:`_count`."""
        return self._started

    def append(self, step: int) -> None:
        """Durable when it returns."""
        self.open()
        write_all(self._file, _slot(step))
        sync_file(self._file)
        self._started = max(self._started, step) + 1

    def take_back(self) -> None:
        """Drops the last entry: of a step that was refused before it read or sent anything.

        Killed in the middle of it, the entry stays, and a step counts that never was.
        """
        self.open()
        os.ftruncate(self._file, max(0, os.fstat(self._file).st_size - _SLOT))
        sync_file(self._file)
        self._started = self._read()

    def open(self) -> None:
        """Makes this journal the one that appends, until it is closed or the process ends.

        Raises:
            ValueError: if another one is, in this process or in another.
        """
        if self._file >= 0:
            return
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ValueError(
                f"folder must not be in use, but another trainer is at work in "
                f"{self._path.parent}: end its loop, or give this run a folder of its own"
            ) from None
        self._lock = lock
        self._started = max(self._started, self._read())
        self._file = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        write_all(self._file, b"?" * (-size % _SLOT))  # so that a torn entry stays one entry
        sync_file(self._file)
        sync_folder(self._path.parent)

    def at_least(self, started: int) -> None:
        """Takes somebody's word that so many steps were started."""
        if started > self._started:
            self.append(started - 1)

    def close(self) -> None:
        """Lets another process append."""
        if self._file >= 0:
            os.close(self._file)
            os.close(self._lock)
            self._file = self._lock = -1

    def __del__(self) -> None:
        self.close()

    def _read(self) -> int:
        return _count(self._path.read_bytes()) if self._path.exists() else 0


def _slot(step: int) -> bytes:
    return b"%015d\n" % step


def _count(data: bytes) -> int:
    """How many steps may have been started, by a journal's bytes.

    At least the number of entries, and at least one more than the furthest step among them: a step
    that was repeated counts again, and so does one that was skipped.
    """
    started = 0
    for at in range(0, len(data), _SLOT):
        slot = data[at : at + _SLOT]
        whole = len(slot) == _SLOT and slot[:-1].isdigit() and slot.endswith(b"\n")
        started = max(started, int(slot) if whole else 0) + 1
    return started
