"""The journal of reports: each on disk before anything is learnt from it, none drawn twice.

Labels are read in pieces. For each piece, in this order:

1. a line, on disk: "piece i of stage t is begun";
2. its labels are read and randomised;
3. the reports, on disk. Only then are they returned.

A process that is killed in between leaves a piece that was begun and has no reports. Its coins may
have been seen by whoever killed it, so its labels count as told, are never randomised again, and
are lost to the training. One JSON object a line; a line that was torn says nothing.

A copy of a journal knows nothing of what the other one goes on with. Where a ledger pays, each
piece is therefore one turn there, too: the first line names a number drawn for it, and before its
labels are read a :class:`Guard` brings this number to the ledger, and refuses if the ledger holds a
number that this journal does not. Without a ledger nobody can tell: copies are the owner's doing.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import Any, Protocol, final

from sfumato.learning.durable import sync_folder

__all__ = ["Guard", "LabelJournal"]

_Piece = tuple[int, int]
"""The number of the stage, and of the piece in it."""


class Guard(Protocol):
    """Who sees to it that no copy of the journal goes on beside it."""

    def check(self, turns: set[int]) -> None:
        """Raises if somebody has gone on who is not known here, by the numbers of the turns."""
        ...

    def take(self, turn: int, turns: set[int]) -> None:
        """Makes a turn known to everybody; raises if somebody else has gone on."""
        ...


@final
class LabelJournal:
    """Pieces that were begun, and their reports.

    Attributes:
        entry: the number of the charge in a ledger; None without one.
        turns: numbers that stand for what was begun under this charge.
        guard: asked before each piece; None without a ledger.

    Args:
        path: of the file.
        facts: what the run is; a journal of another run is refused.
        private: whether the coins are.
    """

    def __init__(self, path: Path, facts: dict[str, Any], private: bool) -> None:
        self.begun: set[_Piece] = set()
        self.reports: dict[_Piece, list[Any]] = {}
        self.name, self.private = secrets.token_hex(8), private
        self.entry: int | None = None
        self.turns: set[int] = set()
        self.guard: Guard | None = None
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
            sync_folder(path.parent)
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
        if "entry" in entry:
            self.entry = entry["entry"]
            return
        if "turn" in entry:
            self.turns.add(entry["turn"])
        if "stage" not in entry:
            return
        piece = entry["stage"], entry["piece"]
        self.begun.add(piece)
        if "reports" in entry:
            self.reports[piece] = entry["reports"]

    def begin(self, stage: int, piece: int) -> bool:
        """Whether its labels may be read now: once, and never if they were begun before."""
        if (stage, piece) in self.begun:
            return False
        begun = {"stage": stage, "piece": piece}
        if self.guard is None:
            self.begun.add((stage, piece))
            self._write(begun)
            return True
        self.guard.check(self.turns)
        self.begun.add((stage, piece))
        self.guard.take(self.new_turn(begun), self.turns)
        return True

    def charged(self, entry: int) -> None:
        """Which charge pays for it."""
        self.entry = entry
        self._write({"entry": entry})

    def new_turn(self, what: dict[str, Any]) -> int:
        """A number that stands for ``what``, on disk; a guess at it is hopeless."""
        turn = 1 + secrets.randbits(52)
        self.turns.add(turn)
        self._write(what | {"turn": turn})
        return turn

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
