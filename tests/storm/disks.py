"""Kinds ``full disk`` and ``read-only disk``: writes fail at any place, and kills fall.

As root, on a small disk in memory that only this process and its children see, and that is gone
with them; otherwise file modes make a file read-only. In both ways a limit on the size of files,
set from outside at a moment, makes writes fail in the middle of an operation. What children tell
goes elsewhere, into small files.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.storm.children import told
from tests.storm.spenders import Spender, at_work_on, operate
from tests.storm.storm import Storm

from sfumato.ledger import LedgerError

__all__ = ["Disk", "full_disk", "read_only_disk"]

_SIGNS = ("is full", "could not be written", "cannot be written", "cannot be opened")
"""What an operator is told."""
_SIZE, _ROOM = 1536, 60_000  # of the disk in KiB; the most bytes that are left on a full one


def spend_on_bad_disk(url: str, dataset: str, told: str, seed: int, limit: int = 0) -> int:
    """A child's work: some operations, of which any may fail, in words that an operator knows."""
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    own = str(Path(told) / secrets.token_hex(8))
    for _ in range(3):
        with contextlib.suppress(LedgerError):
            return _tried(lambda: operate(Spender(url, dataset, own, seed, 0.0, _SIGNS, 0.5)))
    return 0


def _tried(work: Any) -> int:
    try:
        return work()
    except LedgerError as error:
        if not any(sign in str(error) for sign in _SIGNS):
            raise RuntimeError(f"no operator knows what this means: {error}") from error
        raise


class Disk:
    """A place that can be filled, and written to or not."""

    def __init__(self, storm: Storm) -> None:
        self._storm, self.folder = storm, storm.folder / "disk"
        self.folder.mkdir()
        self._ballast = self.folder / "ballast"
        self.mounted = os.geteuid() == 0 and self._mount()
        if self.mounted:
            storm.afterwards.callback(_quiet, "umount", "-l", str(self.folder))

    def _mount(self) -> bool:
        """In a name space of our own, which ends with us."""
        if ctypes.CDLL(None).unshare(0x20000):
            return False
        size = f"size={_SIZE}k"
        return _quiet("mount", "--make-rprivate", "/") and _quiet(
            "mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.folder)
        )

    def make_room(self) -> None:
        """All is well again."""
        self.allow()
        self._ballast.unlink(missing_ok=True)

    def fill(self) -> None:
        """Leaves little room, or none."""
        if not self.mounted:
            return
        self.make_room()
        with contextlib.suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 14))
        left = self._storm.random.choice((0, self._storm.random.randrange(_ROOM)))
        os.truncate(self._ballast, max(0, self._ballast.stat().st_size - left))

    def forbid(self) -> None:
        """No one may write, once no one has a file open for it."""
        for _ in range(300):
            if not self.mounted:
                for path in self.folder.iterdir():
                    path.chmod(0o400)
                return
            if _quiet("mount", "-o", "remount,ro", str(self.folder)):
                return
            time.sleep(0.0005)

    def allow(self) -> None:
        """The opposite."""
        if self.mounted:
            _quiet("mount", "-o", "remount,rw", str(self.folder))
            return
        for path in self.folder.iterdir():
            path.chmod(0o600)


def _quiet(*words: str) -> bool:
    return not subprocess.run(words, capture_output=True).returncode


def full_disk(storm: Storm) -> None:
    """Little room is left, or files may not grow."""
    disk = Disk(storm)
    _spend_on(storm, disk, disk.fill)


def read_only_disk(storm: Storm) -> None:
    """The disk turns read-only for a while, and for some in the middle of what they do."""
    disk = Disk(storm)

    def strike() -> None:
        if storm.random.random() < 0.5:
            disk.forbid()
            time.sleep(storm.random.uniform(0, 0.05))
        else:
            disk.allow()

    _spend_on(storm, disk, strike)


def _spend_on(storm: Storm, disk: Disk, strike: Any) -> None:
    folder = storm.folder / "told"
    folder.mkdir()
    place = disk.folder / "privacy.db"

    def meanwhile() -> None:
        if storm.random.random() < 0.3:
            strike()

    numbers = itertools.count()

    def limit() -> int:
        if next(numbers) % 3:
            return 0
        size = place.stat().st_size if place.exists() else 0
        return size + storm.random.choice((1, storm.random.randrange(30_000)))

    at_work_on(
        storm, f"sqlite:///{place}", folder, work=spend_on_bad_disk, together=2,
        before=disk.make_room, meanwhile=meanwhile, limit=limit,
    )  # fmt: skip
    storm.tally.others += sum(line["did"] == "trouble" for line in told(folder))
