"""The journal of a run that may be gone on with: what was done, each line on disk first.

Everything that resumes keeps one: training, searches, private answers, labels, federations. Work is
done in *lots* (the rows of one step, a candidate's training, a vote, a piece of labels, a round).
Before lots are read the run takes a turn for them (:mod:`sfumato.ledger.turns`):

1. the turn is written into the journal, and is on disk: its number, a token drawn for it, and how
   many of the run's lots count as taken from now on;
2. where a ledger pays, the ledger takes it in, within the run's reservation or together with the
   charge of this turn;
3. the lots are read.

The law: **what the ledger has accepted and what the folder says must agree before a row is read.**
A folder agrees if the last turn that it holds is the last one that the ledger holds, by its token
and by the lots that it counts.
A copy of a folder that went on elsewhere, or an older state of it, does not agree, is refused, and
is refused whenever it tries again.

What follows. Lots are read under turns that the ledger holds, and each of those is one process's
(the proof is there). A turn goes on from the lots that the turn before counts as taken, whether
they were read or not. So all copies of a run together read no lot twice, and not more lots than
were charged for, whoever copies a folder, and when; a process that is still at work is stopped at
its next turn once a copy has gone on.

After a crash the folder itself goes on. A turn that is in the journal counts as taken even if the
ledger does not hold it: a crash costs lots, never privacy. Only where the ledger said that the
budget has no room is the turn taken back.

Without a ledger nobody remembers but the folder. One process at a time has it (a lock on the
file), and what it began is not begun again. A copy of the folder cannot be told from the folder:
copies are the owner's doing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, final

from sfumato.learning.durable import JsonLines, parsed_lines
from sfumato.ledger import BudgetExceeded, Ledger, LedgerError, Turn
from sfumato.ledger.turns import went_on_elsewhere

__all__ = ["Kept", "RunJournal", "lots_taken"]

_T = TypeVar("_T")
_Lines = list[dict[str, Any] | None]
_UNKNOWN = "unknown"


class Kept(Protocol):
    """Where lines are, such as :class:`~sfumato.learning.durable.JsonLines`."""

    entries: _Lines

    def write(self, entry: dict[str, Any]) -> None:
        """Appends it, and returns when it is on disk."""
        ...

    def close(self) -> None:
        """Lets another process go on."""
        ...


@final
class RunJournal:
    """JSON objects, one a line, each on disk before anything goes on; one process at a time.

    Attributes:
        first: the first line: the run's name, and what its owner noted of it.
        run: the run's name, which copies share.
        others: what the other lines held when it was opened; None for a line torn by a crash.
        old_turns: turns that were counted only, as the first version did; none in newer journals.

    Args:
        kept: the file, or its lines where they are elsewhere; None keeps nothing, for runs that
            nobody goes on with.
        in_use: what to say if another process has the file open.
        first: what to note of a new run.
        run: its name; one is drawn by default.

    Raises:
        ValueError: if it is in use.
    """

    def __init__(
        self,
        kept: Path | Kept | None,
        in_use: str = "",
        first: Mapping[str, Any] | None = None,
        run: str | None = None,
    ) -> None:
        self._process = os.getpid()
        self._lines = JsonLines(kept, in_use) if isinstance(kept, Path) else kept
        lines: _Lines = [] if self._lines is None else self._lines.entries
        self.is_new = not lines
        self.first: dict[str, Any] = {"name": run or secrets.token_hex(8)} | dict(first or {})
        if self.is_new:
            self.write(self.first)
        else:
            self.first = lines[0] or {}
        told = self.first.get("name")
        self.run: str = run or (told if isinstance(told, str) and told else _UNKNOWN)
        self.others = lines[1:]
        self._chain = _Chain(self.run, lines)
        self._ledger: Ledger | None = None
        self._dataset, self._agreed, self._each = "", True, False

    @property
    def old_turns(self) -> set[int]:
        """Turns that were counted only."""
        return self._chain.counted

    @property
    def lots(self) -> int:
        """How many lots count as taken."""
        return self._chain.lots

    @property
    def number(self) -> int:
        """Of the last turn, 0 before the first."""
        return self._chain.number

    def write(self, entry: Mapping[str, Any]) -> None:
        """A line of the run's own; on disk when it returns."""
        if self._lines is not None:
            self._lines.write(dict(entry))

    def charge_to(self, ledger: Ledger, dataset: str, *, each: bool = False) -> None:
        """From now on turns are taken in this ledger, too.

        Args:
            ledger: which.
            dataset: whose budget in it.
            each: every turn is charged for itself. Such a run may go on in a ledger that holds
                nothing of it, where it is charged from then on.

        Raises:
            LedgerError: if the journal does not say which run it is.
        """
        if self.run == _UNKNOWN:
            raise LedgerError(
                "the first line of the run's journal is damaged, so that it cannot be told which "
                "run it is: restore it from a copy, or begin a new run with a charge of its own"
            )
        self._ledger, self._dataset, self._agreed = ledger, dataset, False
        self._each = each

    def agree(self, *, again: bool = False) -> None:
        """Sees that the folder and the ledger say the same.

        Args:
            again: look now, although they did before.

        Raises:
            WentOnElsewhere: if the ledger holds a turn of this run that the folder does not hold.
            LedgerError: if the ledger counts other lots for the last turn, or lacks turns.
        """
        if self._ledger is None or (self._agreed and not again):
            return
        if self._each and self._ledger.turn(self._dataset, self.run, 1) is None:
            self._chain.restart()
        if self._chain.last is not None and self._held(self._chain.last) is None:
            self._chain.forget()  # cut off before the ledger had it
            before = self._chain.last
            if before is not None and self._held(before) is None:
                raise LedgerError(
                    f"the ledger does not hold turn {before.number} of this run for "
                    f"{self._dataset!r}: it is another ledger than the one the run was charged "
                    "to, or an older copy of it. Go on with the ledger that has it"
                )
        following = self._chain.number + 1
        if self._ledger.turn(self._dataset, self.run, following) is not None:
            raise went_on_elsewhere(self._dataset, self.run, following)
        self._agreed = True

    def _held(self, own: Turn) -> Turn | None:
        assert self._ledger is not None
        found = self._ledger.turn(self._dataset, self.run, own.number)
        if found is not None and found.token != own.token:
            raise went_on_elsewhere(self._dataset, self.run, own.number)
        if found is not None and found.lots != own.lots:
            raise LedgerError(
                f"turn {own.number} of run {self.run!r} of {self._dataset!r} counts {found.lots} "
                f"lots in the ledger and {own.lots} in the folder: its journal was changed. "
                "Restore it from a copy, or begin a new run with a charge of its own"
            )
        return found

    def require_old_turns(self, reservation: int) -> None:
        """Sees that a folder of the first version holds every turn that its ledger counted.

        Raises:
            LedgerError: if it does not.
        """
        if self._ledger is None:
            return
        entries = (e for e in self._ledger.history(self._dataset) if e.kind == "resume")
        held = (e.data for e in entries if e.data["reserve"] == reservation)
        counted = {data["turn"] for data in held if "run" not in data}
        if counted != self.old_turns:
            raise LedgerError(
                f"reservation {reservation} of {self._dataset!r} went on elsewhere: this folder is "
                "a copy of its run, or an older state of it. Go on there, or begin a new run with "
                "a charge of its own"
            )

    def take(
        self,
        lots: int,
        accept: Callable[[Turn], _T],
        what: Mapping[str, Any] | None = None,
    ) -> _T:
        """Takes the next turn; only afterwards may its lots be read.

        Args:
            lots: how many count as taken from now on.
            accept: has the ledger take the turn in, and gives what comes of it.
            what: what the run notes in the same line.

        Raises:
            BudgetExceeded: if the ledger has no room; then the turn is taken back.
            WentOnElsewhere: if the turn is another one's, now and ever after.
        """
        self.require_own_process()
        self.agree()
        turn = Turn.drawn(self.run, self._chain.last, lots)
        if self._ledger is None:  # nobody asks for the token
            turn = replace(turn, token="-")
        line = {"turn": [turn.number, turn.token], "lots": lots}
        self.write(line | dict(what or {}))
        self._chain.add(turn)
        self._agreed = self._ledger is None  # until the ledger said so
        try:
            found = accept(turn)
        except BudgetExceeded:
            self.write({"withdrawn": turn.number})
            self._chain.withdraw()
            self._agreed = True
            raise
        self._chain.accepted()
        self._agreed = True
        return found

    def require_own_process(self) -> None:
        """Raises in a forked process, which would go on beside its parent."""
        if os.getpid() != self._process:
            raise RuntimeError("a forked process would go on beside its parent: make another one")

    def close(self) -> None:
        """Lets another process go on."""
        if self._lines is not None:
            self._lines.close()


def lots_taken(path: Path) -> int:
    """How many lots count as taken by a journal that perhaps another process has open."""
    lines = parsed_lines(path.read_bytes()) if path.exists() else []
    return _Chain("run", lines).lots


def _is_sound(line: dict[str, Any]) -> bool:
    """Whether a turn in it is one that was written; a damaged one counts as a torn line does."""
    turn = line.get("turn")
    if "turn" not in line:
        return "lots" not in line
    if type(turn) is int:
        return True
    if not isinstance(turn, list) or [type(part) for part in turn] != [int, str]:
        return False
    return type(line.get("lots")) is int and line["lots"] >= 0


@final
class _Chain:
    """The turns that a journal holds, without those that were taken back."""

    def __init__(self, run: str, lines: _Lines) -> None:
        self.counted: set[int] = set()
        self._turns: list[Turn] = []
        self._least = 0
        torn = 0
        for line in lines:
            if line is None or not _is_sound(line):
                torn += 1  # may have been a turn; whatever follows counts it
            elif "withdrawn" in line:
                if self.number == line["withdrawn"]:
                    self._turns.pop()
            elif isinstance(line.get("turn"), int):
                self.counted.add(line["turn"])
            elif "turn" in line:
                number, token = line["turn"]
                self._take(run, number, token, line["lots"])
                torn = 0
        if torn:
            self._least = self.lots + torn

    def _take(self, run: str, number: int, token: str, lots: int) -> None:
        while self._turns and self._turns[-1].number >= number:
            self._turns.pop()  # the ledger never held it
        after = self._turns[-1].token if self._turns else ""
        self._turns.append(Turn(run, number, token, after, lots))

    @property
    def last(self) -> Turn | None:
        return self._turns[-1] if self._turns else None

    @property
    def number(self) -> int:
        return self._turns[-1].number if self._turns else 0

    @property
    def lots(self) -> int:
        return max(self._least, self._turns[-1].lots if self._turns else 0)

    def add(self, turn: Turn) -> None:
        self._turns.append(turn)

    def accepted(self) -> None:
        """The ledger holds the last one: it says how many lots count."""
        self._least = 0

    def withdraw(self) -> None:
        self._turns.pop()

    def restart(self) -> None:
        """In another ledger; all lots count."""
        self._least = self.lots
        self._turns.clear()

    def forget(self) -> None:
        """The ledger does not hold the last one; its lots count."""
        self._least = max(self._least, self._turns.pop().lots)
