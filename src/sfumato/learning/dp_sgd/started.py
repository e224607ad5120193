"""Which steps of a run may have been started, by the journal in its folder.

Before a lot is read its step counts, on disk. Without a ledger each step is a turn of the run's
journal (:mod:`sfumato.learning.journal`). With one a turn is a block of a 128th of the run's
steps, or of one step in short runs, for the ledger to hold a hundred entries or so of a run and not
one for each step. A loop that is left gives back the rest of its block, by another turn. A process
that is killed cannot: the block counts as taken, less than 1 % of the run.

Folders of the first version have a line of 16 bytes for each started step (``started.journal``),
and a number of resumptions (``resumed``). They are still read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import final

from sfumato.learning.charging import RunCharge
from sfumato.learning.journal import RunJournal, lots_taken
from sfumato.ledger import LedgerError

__all__ = ["StartedSteps", "counted_slots"]

_JOURNAL, _OLD_JOURNAL, _OLD_TURNS = "journal.jsonl", "started.journal", "resumed"
_SLOT = 16  # fifteen digits and a line's end, in old journals
_BLOCKS = 128


@final
class StartedSteps:
    """The journal of one folder; one holder at a time writes.

    Args:
        folder: nothing is created in it before :meth:`open`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._told = folder, 0
        self._journal: RunJournal | None = None
        self._charge: RunCharge | None = None
        self._steps, self._block = 0, 1
        self._started = self._read()

    @property
    def started(self) -> int:
        """How many steps may have been started.

        At least the number of calls of :meth:`note`, each repetition counted, and at least one more
        than the furthest step that it was called with.
        """
        return max(self._told, self._started)

    @property
    def journal(self) -> RunJournal:
        """The run's, which is open."""
        self.open()
        assert self._journal is not None
        return self._journal

    def open(self, old_entry: int | None = None) -> None:
        """Makes this the one that writes, until it is closed or the process ends.

        Args:
            old_entry: the charge of a run in a folder of the first version, by which its copies
                have one name.

        Raises:
            ValueError: if another one is, in this process or in another.
        """
        if self._journal is not None:
            return
        path = self._folder / _JOURNAL
        named = None if old_entry is None or path.exists() else f"reservation {old_entry}"
        self._journal = RunJournal(
            path,
            f"folder must not be in use, but another trainer is at work in {self._folder}: end its "
            "loop, or give this run a folder of its own",
            run=named,
        )
        old = self._folder / _OLD_TURNS
        if old.exists():
            self._journal.old_turns.update(range(1, int(old.read_text()) + 1))
        self._started = max(self._started, self._read(), self._journal.lots)

    def charge_to(self, charge: RunCharge, steps: int) -> None:
        """From now on the ledger takes blocks of the run's ``steps`` in, too."""
        self._charge, self._steps = charge, steps
        self._block = 1 if charge.ledger is None else -(-steps // _BLOCKS)

    def at_least(self, started: int) -> None:
        """Takes somebody's word that so many steps were started."""
        self._told = max(self._told, started)

    def note(self, step: int) -> None:
        """Durable, and accepted by the ledger if there is one, when it returns."""
        journal = self.journal
        needed = max(self.started, step) + 1
        if needed > journal.lots:
            self._take(max(needed, min(-(-needed // self._block) * self._block, self._steps)))
        self._started = needed

    def _take(self, lots: int) -> None:
        if self._charge is None:
            self.journal.take(lots, lambda turn: None)
        else:
            self._charge.take(lots)

    def close(self) -> None:
        """Gives back what is left of a block, and lets another process write."""
        if self._journal is None:
            return
        if self._charge is not None and self._started < self._journal.lots:
            with contextlib.suppress(LedgerError, OSError, RuntimeError):  # or it counts as taken
                self._take(self._started)
        self._journal.close()
        self._journal = None

    def _read(self) -> int:
        old = self._folder / _OLD_JOURNAL
        return max(counted_slots(old), lots_taken(self._folder / _JOURNAL))


def counted_slots(path: Path) -> int:
    """How many steps may have been started, by a journal of the first version; 0 if there is none.

    At least the number of entries, and at least one more than the furthest step among them: a step
    that was repeated counts again, and so does one that was skipped. A torn or damaged entry counts
    as a step started.
    """
    data = path.read_bytes() if path.exists() else b""
    started = 0
    for at in range(0, len(data), _SLOT):
        slot = data[at : at + _SLOT]
        whole = len(slot) == _SLOT and slot[:-1].isdigit() and slot.endswith(b"\n")
        started = max(started, int(slot) if whole else 0) + 1
    return started
