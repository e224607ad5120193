"""The journal of reports: each on disk before anything is learnt from it, none drawn twice.

Labels are read in pieces. For each piece, in this order:

1. a line, on disk: "piece i of stage t is begun";
2. its labels are read and randomised;
3. the reports, on disk. Only then are they returned.

A process that is killed in between leaves a piece that was begun and has no reports. Its coins may
have been seen by whoever killed it, so its labels count as told, are never randomised again, and
are lost to the training. One JSON object a line; a line that was torn says nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any, final

__all__ = ["LabelJournal"]

_Piece = tuple[int, int]
"""The number of the stage, and of the piece in it."""


@final
class LabelJournal:
    """Pieces that were begun, and their reports.

    Args:
        path: of the file.
        facts: what the run is; a journal of another run is refused.
        private: whether the coins are.
    """

    def __init__(self, path: Path, facts: dict[str, Any], private: bool) -> None:
        self.begun: set[_Piece] = set()
        self.reports: dict[_Piece, list[Any]] = {}
        self.name, self.private = secrets.token_hex(8), private
        self._broken = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
        self._lock(path)
        self._open(path, facts)

    def _lock(self, path: Path) -> None:
        """One process at a time: two would each randomise the labels."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                f"journal must not be in use, but another process writes {path}: end it first"
            ) from None

    def _open(self, path: Path, facts: dict[str, Any]) -> None:
        held = path.read_bytes()
        if b"\n" not in held:  # new, or cut off in its first line, before any label was read
            os.ftruncate(self._file, 0)
            self._write({"facts": facts, "name": self.name, "private": self.private})
            return
        lines = [_parsed(line) for line in held.splitlines()]
        first = lines[0]
        if first is None or first.get("facts") != facts:
            raise ValueError(
                f"{path} must hold reports of this run, but holds those of another: go on with "
                "the recipe, the inputs and the budget it began with"
            )
        self.name, self.private = first["name"], self.private and first["private"]
        for entry in lines[1:]:
            self._take(entry)
        if not held.endswith(b"\n"):
            os.write(self._file, b"\n")  # a torn line stays a line of its own
        self._write({"private": self.private})

    def _take(self, entry: dict[str, Any] | None) -> None:
        if entry is None:
            return  # torn: its piece stands as begun
        if "private" in entry:
            self.private = self.private and entry["private"]
            return
        piece = entry["stage"], entry["piece"]
        self.begun.add(piece)
        if "reports" in entry:
            self.reports[piece] = entry["reports"]

    def begin(self, stage: int, piece: int) -> bool:
        """Whether its labels may be read now: once, and never if they were begun before."""
        if (stage, piece) in self.begun:
            return False
        self.begun.add((stage, piece))
        self._write({"stage": stage, "piece": piece})
        return True

    def finish(self, stage: int, piece: int, reports: list[Any]) -> None:
        """Its reports, on disk."""
        self._write({"stage": stage, "piece": piece, "reports": reports})
        self.reports[stage, piece] = reports

    def _write(self, entry: dict[str, Any]) -> None:
        if self._broken:
            raise OSError("the journal could not be written, and takes no more: begin anew by it")
        self._broken = True  # until all of it is on disk
        data = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        os.fdatasync(self._file)
        self._broken = False

    def close(self) -> None:
        """Lets another process go on."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
