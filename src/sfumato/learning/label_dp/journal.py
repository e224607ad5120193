"""The journal of reports: each on disk before anything is learnt from it, none drawn twice.

Labels are read in pieces. For each piece, in this order:

1. a turn of the run (:mod:`sfumato.learning.journal`): "piece i of stage t is begun", on disk, and
   in the ledger where one pays;
2. its labels are read and randomised;
3. the reports, on disk. Only then are they returned.

A process that is killed in between leaves a piece that was begun and has no reports. Its coins may
have been seen by whoever killed it, so its labels count as told, are never randomised again, and
are lost to the training. One JSON object a line; a line that was torn says nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from sfumato.learning.charging import RunCharge
from sfumato.learning.journal import RunJournal

__all__ = ["LabelJournal"]

_Piece = tuple[int, int]
"""The number of the stage, and of the piece in it."""


@final
class LabelJournal:
    """Pieces that were begun, and their reports.

    Attributes:
        run: the run's journal, which this one is a part of.
        entry: the number of the charge, where it was made by the first version; None otherwise.
        charge: takes the turn of each piece.

    Args:
        path: of the file.
        facts: what the run is; a journal of another run is refused.
        private: whether the coins are.
    """

    def __init__(self, path: Path, facts: dict[str, Any], private: bool) -> None:
        self.begun: set[_Piece] = set()
        self.reports: dict[_Piece, list[Any]] = {}
        self.entry: int | None = None
        self.run = RunJournal(
            path,
            f"journal must not be in use, but another process writes {path}: end it first",
            {"facts": facts, "private": private},
        )  # two would each randomise the labels
        self.charge = RunCharge(None, "", "", "")
        self.charge.go_on(self.run)
        self.private = private and self.run.first.get("private", False)
        if self.run.first.get("facts") != facts:
            self.close()
            raise ValueError(
                f"{path} must hold reports of this run, but holds those of another: go on with "
                "the recipe, the inputs and the budget it began with"
            )
        for entry in self.run.others:
            self._take(entry)
        if not self.run.is_new:
            self.run.write({"private": private})

    def _take(self, entry: dict[str, Any] | None) -> None:
        if entry is None:
            return  # torn: its piece stands as begun
        if "private" in entry:
            self.private = self.private and entry["private"]
        elif "entry" in entry:
            self.entry = entry["entry"]
        elif "stage" in entry:
            piece = entry["stage"], entry["piece"]
            self.begun.add(piece)
            if "reports" in entry:
                self.reports[piece] = entry["reports"]

    def begin(self, stage: int, piece: int) -> bool:
        """Whether its labels may be read now: once, and never if they were begun before.

        Raises:
            WentOnElsewhere: if a copy of the run went on.
        """
        if (stage, piece) in self.begun:
            return False
        self.begun.add((stage, piece))
        self.charge.take(len(self.begun), {"stage": stage, "piece": piece})
        return True

    def finish(self, stage: int, piece: int, reports: list[Any]) -> None:
        """Its reports, on disk."""
        self.run.write({"stage": stage, "piece": piece, "reports": reports})
        self.reports[stage, piece] = reports

    def close(self) -> None:
        """Lets another process go on."""
        self.run.close()
