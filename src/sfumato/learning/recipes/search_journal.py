"""What a search keeps for whoever goes on with it: its secret draws, its turns, its charge.

The number of runs and the candidates that they drew are kept in ``curator/`` and used again after a
crash. They are no noise keys: they were drawn before a row was read, so they tell nothing about the
data; and the runs that they stand for draw their own coins. Not to keep them would be the mistake:
the price of a search is for *one* draw of the number of runs, and who may draw again until it is
small, or large, has another law.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from sfumato.core.events import Event
from sfumato.core.randomness import Coins
from sfumato.learning.durable import JsonLines
from sfumato.learning.recipes.search import Search
from sfumato.ledger import Ledger
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.spending import Spending

__all__ = ["SearchCharge", "SearchJournal"]


@final
class SearchJournal:
    """The draws and turns of one search, each on disk before it is used; one process at a time.

    Attributes:
        private: whether all coins so far were.

    Args:
        path: of the file.
        coins: of this process.

    Raises:
        ValueError: if another process is at work on the search.
    """

    def __init__(self, path: Path, coins: Coins) -> None:
        self._coins = coins
        self._lines = JsonLines(
            path,
            f"the search in {path.parent.parent} must not be in use, but another process is at "
            "work on it: wait for its end",
        )
        known = [entry for entry in self._lines.entries if entry is not None]  # others are torn
        self.private = coins.private and all(entry.get("private", True) for entry in known)
        self._turns = sum("turn" in entry for entry in known)
        drawn: list[list[int]] = [entry["drawn"] for entry in known if "drawn" in entry]
        self._drawn = drawn[0] if drawn else None
        self._lines.write({"private": coins.private})

    @property
    def begun(self) -> bool:
        """Whether the search was drawn, and so may have read rows."""
        return self._drawn is not None

    def draws(self, search: Search) -> list[int]:
        """The place of each run's candidate: drawn once, and the same ever after."""
        if self._drawn is None:
            drawn = search.draw(self._coins)
            self._lines.write({"drawn": drawn})
            self._drawn = drawn
        return list(self._drawn)

    def next_turn(self) -> int:
        """Counts how often the search was taken up again: 1, 2, ...

        A copy of the folder would count the same numbers again; a ledger accepts each once.
        """
        self._turns += 1
        self._lines.write({"turn": self._turns})
        return self._turns

    def close(self) -> None:
        """Lets another process go on."""
        self._lines.close()


@final
class SearchCharge:
    """One search's place in a ledger, found again by the key that was drawn for it.

    Made before a row is read and left open until the search ends. A process killed right after the
    charge, before it wrote anything down, finds it by its key: the same search is charged once.

    Args:
        ledger: where to; None charges nobody.
        dataset: whose budget.
        analyst: in whose name.
        key: of the search, and of no other.
    """

    def __init__(self, ledger: Ledger | None, dataset: str, analyst: str, key: str) -> None:
        self._ledger, self._dataset, self._analyst, self._key = ledger, dataset, analyst, key
        self._spending: Spending | None = None

    def make(self, event: Event, journal: SearchJournal, request: Any, label: str) -> bool:
        """Charges the search, or takes up the charge that it made before it was cut off.

        Returns:
            Whether the charge has ended already: all runs were made, and none may be made again.

        Raises:
            BudgetExceeded: if it does not fit; nothing is spent.
            LedgerError: if the ledger is not the one that paid, or the search went on elsewhere.
        """
        if self._ledger is None:
            return False
        charged = self._reserved()
        if charged is None:
            if journal.begun:
                raise LedgerError(
                    f"the ledger holds no charge of this search for {self._dataset!r}: go on with "
                    "the ledger that it was charged to"
                )
            self._spending = self._ledger.spend(
                self._dataset, event, analyst=self._analyst, key=self._key, request=request,
                label=label,
            )  # fmt: skip
            return False
        if self._ended(charged.sequence):
            return True
        turn = journal.next_turn()
        self._spending = self._ledger.resume(self._dataset, charged.sequence, event, turn=turn)
        return False

    def finish(self, answer: Any) -> None:
        """Ends the charge; nothing may be released before."""
        if self._spending is not None:
            self._spending.commit(answer)
            self._spending = None

    def _reserved(self) -> Entry | None:
        for entry in self._entries("reserve"):
            if entry.data["key"] == self._key:
                return entry
        return None

    def _ended(self, number: int) -> bool:
        return any(entry.data["reserve"] == number for entry in self._entries("commit"))

    def _entries(self, kind: str) -> list[Entry]:
        assert self._ledger is not None
        return [entry for entry in self._ledger.history(self._dataset) if entry.kind == kind]
