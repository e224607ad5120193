"""One storm: children at work, deaths drawn from a seed, and what was found of it.

A death is drawn uniformly over the time that the work takes, or over the system calls that it
makes. How long that is shows by itself: whoever ends before her death makes the window smaller,
whoever is hit makes it larger, until one in five ends.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.storm.children import AT_CALL, CALLS, TROUBLE, Child, begin, told

__all__ = ["LAWS", "Storm", "Tally"]

LAWS = ("overspent", "lost", "wrong", "double")
_STUCK = 180.0  # seconds after which nobody waits any more
_LOOK = 3e-4
_LARGER, _SMALLER = 1.1, 0.7
_FIRST = (0.5, 500.0)  # windows of seconds, and of calls, before anything is known


@dataclass
class Tally:
    """What a storm did and found.

    Attributes:
        kills: how many hit a child at work.
        late: children that came to their end before their death.
        how: the kills by how children were made: forks, at calls, fresh processes.
        others: servers that were killed, and failures that processes met on a bad disk.
        broken: findings in words, by law.
    """

    kills: int = 0
    late: int = 0
    how: dict[str, int] = field(default_factory=dict)
    others: int = 0
    broken: dict[str, list[str]] = field(default_factory=lambda: {law: [] for law in LAWS})

    def find(self, law: str, what: str) -> None:
        """Notes a finding."""
        self.broken[law].append(what)

    @property
    def found(self) -> int:
        """How many findings."""
        return sum(map(len, self.broken.values()))


class Storm:
    """A piece of a storm.

    Args:
        seed: of all that is chosen.
        kills: how many there are to be.
        folder: for whatever it makes.
        fresh: the share of fresh processes.
        calls: the share of those killed at a system call.
    """

    def __init__(
        self, seed: int, kills: int, folder: Path, fresh: float = 0.02, calls: float = 0.3
    ) -> None:
        self.random, self.folder, self.kills = random.Random(seed), folder, kills
        self.tally = Tally()
        self._shares = (fresh, calls if CALLS else 0.0)
        self._windows: dict[tuple[str, str], float] = {}
        self._running: list[tuple[Child, float, str]] = []
        self._problems = folder / "problems"
        self.afterwards = ExitStack()  # what is to be undone before the folder goes

    @property
    def over(self) -> bool:
        """Whether there were as many kills as there are to be."""
        return self.tally.kills >= self.kills

    def find(self, law: str, what: str) -> None:
        """Notes a finding."""
        self.tally.find(law, what)

    # --- one child ------------------------------------------------------------------------------

    def strike(self, work: Callable[..., Any], **spec: Any) -> int:
        """Runs a work in one child that may be killed; its exit code, below zero if it was."""
        self.start(work, **spec)
        (_, code), *_ = self.wait()
        return code

    def spare(self, work: Callable[..., Any], **spec: Any) -> int:
        """Runs a work in a child that is not killed; its exit code."""
        child = begin(work, spec, self._problems, "fork")
        return self._until_end(child)

    def _until_end(self, child: Child) -> int:
        end = time.monotonic() + _STUCK
        while (code := child.ended()) is None:
            if time.monotonic() > end:
                child.kill()
                self.find("wrong", f"a process never came to its end: {child.spec}")
                return TROUBLE
            time.sleep(_LOOK)
        return code

    # --- several at once ------------------------------------------------------------------------

    def start(self, work: Callable[..., Any], **spec: Any) -> Child:
        """Starts a child with a death of its own."""
        how = self._how()
        window = self._windows.setdefault((work.__name__, how), _FIRST[how == "call"])
        death = self.random.uniform(0, window)
        child = begin(work, spec, self._problems, how, 1 + int(death))
        child.facts["kind"] = work.__name__
        self._running.append((child, death if how != "call" else _STUCK, how))
        child.facts["began"] = time.monotonic()
        return child

    def _how(self) -> str:
        fresh, calls = self._shares
        drawn = self.random.random()
        if self.over:
            return "fork"
        return "fresh" if drawn < fresh else "call" if drawn < fresh + calls else "fork"

    @property
    def at_work(self) -> int:
        """How many are."""
        return len(self._running)

    def wait(self) -> list[tuple[Child, int]]:
        """Kills whose time has come; returns as soon as there are some that ended, or died."""
        while self._running:
            if ended := self.look():
                return ended
            time.sleep(_LOOK)
        return []

    def look(self) -> list[tuple[Child, int]]:
        """Kills whose time has come; who ended since, or died."""
        return [pair for pair in map(self._looked_at, list(self._running)) if pair]

    def _looked_at(self, running: tuple[Child, float, str]) -> tuple[Child, int] | None:
        child, death, how = running
        code = child.ended()
        if code is None:
            if not child.has_begun():
                child.facts["began"] = time.monotonic()
                return None
            waited = time.monotonic() - child.facts["began"]
            if waited < (_STUCK if self.over else death):
                return None
            code = child.kill()
            if waited >= _STUCK:
                self.find("wrong", f"a process never came to its end: {child.spec}")
                code = TROUBLE
        self._running.remove(running)
        hit = code in (-9, AT_CALL)
        window = (child.facts["kind"], how)
        self._windows[window] = max(self._windows[window] * (_LARGER if hit else _SMALLER), 2e-3)
        self.tally.kills += hit
        self.tally.late += not hit
        if hit:
            self.tally.how[how] = self.tally.how.get(how, 0) + 1
        return child, -9 if hit else code

    def end_all(self) -> None:
        """Waits for all, who may still be killed."""
        while self._running:
            self.wait()

    # --- what they told -------------------------------------------------------------------------

    def note_problems(self) -> None:
        """What children should not have run into is a finding."""
        for line in told(self._problems):
            self.find("wrong", f"a process ended with {line['problem']}: {line['where'][-600:]}")
        self._problems.unlink(missing_ok=True)

    @contextmanager
    def expecting(self, what: str) -> Iterator[None]:
        """What must not fail in the parent is a finding where it does."""
        try:
            yield
        except Exception as error:
            self.find("wrong", f"{what}: {type(error).__name__}: {error}")
