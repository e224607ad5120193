"""Rounds as they go by, on the operator's screen: who was asked, who answered, who did not and why.

Nothing of this is for anybody else: who took part is no public fact.
"""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Self, final

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from sfumato.cli.output import console, plain_table

if TYPE_CHECKING:
    from rich.table import Table

    from sfumato.federated.watching import RoundFacts

__all__ = ["LiveRounds", "bytes_shown", "line"]

_KEPT = 12  # rounds on the screen
_NAMED = 3  # participants that are named in one line


@final
class LiveRounds:
    """A table of the last rounds that grows; lines where there is no terminal.

    Args:
        rounds: how many there will be.
        wanted: whether to show anything; None if there is a terminal.
    """

    def __init__(self, rounds: int, wanted: bool | None = None) -> None:
        self._terminal = sys.stderr.isatty()
        self._wanted = self._terminal if wanted is None else wanted
        self._rounds = rounds
        self._last: deque[RoundFacts] = deque(maxlen=_KEPT)
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
        )
        self._task = self._bar.add_task("", total=rounds)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._wanted and self._terminal:
            self._live = Live(self._shown(), console=console(stderr=True), refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def __call__(self, facts: RoundFacts) -> None:
        """One round more."""
        self._last.append(facts)
        self._bar.update(self._task, completed=facts.number)
        if self._live is not None:
            self._live.update(self._shown())
        elif self._wanted:
            console(stderr=True).print(line(facts), markup=False, soft_wrap=True)

    def _shown(self) -> Group:
        return Group(self._table(), self._bar.get_renderable())

    def _table(self) -> Table:
        table = plain_table("Rounds")
        for name in ("round", "asked", "in the sum", "accuracy", "clip", "bytes", "seconds"):
            table.add_column(name, justify="right")
        table.add_column("not in it")
        for facts in self._last:
            table.add_row(*_cells(facts), Text(_missing(facts), overflow="fold"))
        return table


def line(facts: RoundFacts) -> str:
    """One round in one line, for logs."""
    accuracy = "" if facts.accuracy is None else f", accuracy {facts.accuracy:.2%}"
    unused = "" if facts.used else ", not used: too few"
    missing = _missing(facts)
    return (
        f"round {facts.number} of {facts.rounds}: {facts.survivors} of {facts.asked}{accuracy}, "
        f"{facts.seconds:.1f} s{unused}{'; ' if missing else ''}{missing}"
    )


def bytes_shown(count: int) -> str:
    """As people say it.

    >>> bytes_shown(512), bytes_shown(2_500_000)
    ('512 B', '2.5 MB')
    """
    size, units = float(count), ["B", "kB", "MB", "GB"]
    while size >= 1000 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def _cells(facts: RoundFacts) -> tuple[str, ...]:
    return (
        str(facts.number),
        str(facts.asked),
        f"{facts.survivors}" + ("" if facts.used else " (too few)"),
        "" if facts.accuracy is None else f"{facts.accuracy:.2%}",
        f"{facts.clip:.3g}",
        bytes_shown(facts.traffic.sent + facts.traffic.received),
        f"{facts.seconds:.1f}",
    )


def _missing(facts: RoundFacts) -> str:
    found = [f"{name} refused ({why})" for name, why in facts.refused.items()]
    found += [f"{name} silent ({why})" for name, why in facts.traffic.silent.items()]
    more = len(found) - _NAMED
    return "; ".join(found[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
