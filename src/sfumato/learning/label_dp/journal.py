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

import secrets
from pathlib import Path
from typing import Any, Protocol, final

from sfumato.learning.durable import JsonLines

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
        self._lines = JsonLines(
            path, f"journal must not be in use, but another process writes {path}: end it first"
        )  # two would each randomise the labels
        self._open(path, facts)

    def _open(self, path: Path, facts: dict[str, Any]) -> None:
        if not self._lines.entries:
            self._lines.write({"facts": facts, "name": self.name, "private": self.private})
            return
        first, *others = self._lines.entries
        if first is None or first.get("facts") != facts:
            raise ValueError(
                f"{path} must hold reports of this run, but holds those of another: go on with "
                "the recipe, the inputs and the budget it began with"
            )
        self.name, self.private = first["name"], self.private and first["private"]
        for entry in others:
            self._take(entry)
        self._lines.write({"private": self.private})

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
            self._lines.write(begun)
            return True
        self.guard.check(self.turns)
        self.begun.add((stage, piece))
        self.guard.take(self.new_turn(begun), self.turns)
        return True

    def charged(self, entry: int) -> None:
        """Which charge pays for it."""
        self.entry = entry
        self._lines.write({"entry": entry})

    def new_turn(self, what: dict[str, Any]) -> int:
        """A number that stands for ``what``, on disk; a guess at it is hopeless."""
        turn = 1 + secrets.randbits(52)
        self.turns.add(turn)
        self._lines.write(what | {"turn": turn})
        return turn

    def finish(self, stage: int, piece: int, reports: list[Any]) -> None:
        """Its reports, on disk."""
        self._lines.write({"stage": stage, "piece": piece, "reports": reports})
        self.reports[stage, piece] = reports

    def close(self) -> None:
        """Lets another process go on."""
        self._lines.close()
