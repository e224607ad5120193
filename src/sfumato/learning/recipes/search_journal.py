"""What a search keeps for whoever goes on with it: its secret draws, and its turns.

The number of runs and the candidates that they drew are kept in ``curator/`` and used again after a
crash. They are no noise keys: they were drawn before a row was read, so they tell nothing about the
data; and the runs that they stand for draw their own coins. Not to keep them would be the mistake:
the price of a search is for *one* draw of the number of runs, and who may draw again until it is
small, or large, has another law.

A run of the search takes a turn before it is begun (:mod:`sfumato.learning.journal`), and when it
ended, before its score is read, the ledger is asked whether a copy of the search went on meanwhile;
then the run is thrown away. So of a search and all its copies no run counts twice.

How many runs there were is a secret, and a ledger has more readers than ``curator/``. So before the
search ends it takes the turns of runs that there were not, too: the number of turns is that of
:attr:`Trials.nearly_most <sfumato.accounting.Trials.nearly_most>`, whatever was drawn. (Of runs
beyond that, one search in a million has some, no turn is taken.) The times of turns tell how many
runs there were, as all time does.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from sfumato.core.randomness import Coins
from sfumato.learning.charging import RunCharge
from sfumato.learning.journal import RunJournal
from sfumato.learning.recipes.search import Search

__all__ = ["SearchJournal"]


@final
class SearchJournal:
    """The draws and turns of one search, each on disk before it is used; one process at a time.

    Attributes:
        run: the search's journal, which this one is a part of.
        private: whether all coins so far were.

    Args:
        path: of the file.
        coins: of this process.
        key: of the search, and of no other: by it the ledger knows its charge and its turns.

    Raises:
        ValueError: if another process is at work on the search.
    """

    def __init__(self, path: Path, coins: Coins, key: str | None = None) -> None:
        self._coins = coins
        self.run = RunJournal(
            path,
            f"the search in {path.parent.parent} must not be in use, but another process is at "
            "work on it: wait for its end",
            {"private": coins.private},
            run=key,
        )
        entries = [self.run.first, *self.run.others]
        known = [entry for entry in entries if entry is not None]  # others are torn
        self.private = coins.private and all(entry.get("private", True) for entry in known)
        drawn: list[list[int]] = [entry["drawn"] for entry in known if "drawn" in entry]
        self._drawn = drawn[0] if drawn else None
        self._turns = {entry["run"] for entry in known if "run" in entry}
        if not self.run.is_new:
            self.run.write({"private": coins.private})

    @property
    def begun(self) -> bool:
        """Whether the search was drawn, and so may have read rows."""
        return self._drawn is not None

    def draws(self, search: Search) -> list[int]:
        """The place of each run's candidate: drawn once, and the same ever after."""
        if self._drawn is None:
            drawn = search.draw(self._coins)
            self.run.write({"drawn": drawn})
            self._drawn = drawn
        return list(self._drawn)

    def begin(self, number: int, search: Search, charge: RunCharge) -> None:
        """Before a run is trained.

        Raises:
            WentOnElsewhere: if a copy of the search went on.
        """
        if number < search.trials.nearly_most:
            charge.take(number + 1, {"run": number})
            self._turns.add(number)

    def end(self, search: Search, charge: RunCharge) -> None:
        """After the last run: the turns of those that there were not."""
        if charge.ledger is None or charge.ended is not None:
            return
        for number in range(search.trials.nearly_most):
            if number not in self._turns:
                self.begin(number, search, charge)

    def close(self) -> None:
        """Lets another process go on."""
        self.run.close()
