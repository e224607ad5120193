"""A folder in which lines are typed, put back as it was after each line that changed it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.commands import said
from tests.cli.typed_lines import broken_law, furnish_badly

__all__ = ["AROUND", "Room"]

# Nothing is fetched: no address can be reached, and no program called that would reach one.
AROUND = {
    "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "PATH": "/none",
    "HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg",
}  # fmt: skip


class Room:
    """Plays lines in a copy of a furnished folder, which is the working folder."""

    def __init__(self, furnished: Path, path: Path) -> None:
        self.furnished, self.path = furnished, path
        shutil.copytree(furnished / "data", path.parent / "data")
        self._put_back()

    def broken(self, words: list[str]) -> str | None:
        """Which law the line breaks, if any, and what it said."""
        code, out, err = said(words)
        found = broken_law(words, code, out, err)
        if self._state() != self.before:
            if code and found is None and self._charges() != self.charged:
                found = "a failing line was charged"
            self._put_back()
        return None if found is None else f"{found}: {words!a} -> {code} {err[-500:]!a}"

    def _put_back(self) -> None:
        os.chdir(self.path.parent)
        shutil.rmtree(self.path, ignore_errors=True)
        kept = shutil.ignore_patterns("data")
        shutil.copytree(self.furnished, self.path, symlinks=True, ignore=kept)
        furnish_badly(self.path)
        os.chdir(self.path)
        self.before, self.charged = self._state(), self._charges()

    def _state(self) -> dict[str, tuple[int, int]]:
        facts = {each.name: each.stat(follow_symlinks=False) for each in os.scandir(self.path)}
        return {name: (fact.st_mtime_ns, fact.st_size) for name, fact in facts.items()}

    def _charges(self) -> int:
        with closing(sqlite3.connect(self.path / "privacy.db")) as ledger:
            query = "SELECT count(*) FROM ledger_entries WHERE kind = 'reserve'"
            return ledger.execute(query).fetchone()[0]
