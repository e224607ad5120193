"""A coordinator in a process of its own, as its operator sees it: who is here, rounds, the end.

On a terminal rounds are a table that grows. Without one they are lines: one for every tenth of the
rounds, and one whenever somebody drops out or is back.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, final

import typer

from sfumato.cli.federate_live import LiveRounds, line
from sfumato.cli.output import console

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation
    from sfumato.federated.flower.leading import Leading
    from sfumato.federated.watching import RoundFacts

__all__ = ["Milestones", "say", "shown_end", "told_result"]

_LOOK = 0.5  # seconds between two looks
_LONGEST = 300  # letters of what a process said last


def say(text: str) -> None:
    """One line, to the operator."""
    console(stderr=True).print(text, markup=False, soft_wrap=True)


@final
class Milestones:
    """Rounds in few lines.

    Args:
        everyone: how many participants are asked if all are there; 0 if coins decide that.
        say: prints a line.
    """

    def __init__(self, everyone: int, say: Callable[[str], None] = say) -> None:
        self._everyone, self._say = everyone, say
        self._missing: set[str] = set()
        self._asked, self._whole, self._used = everyone, True, True

    def __call__(self, facts: RoundFacts) -> None:
        """One round more."""
        self._tell_who(facts)
        tenth = facts.number * 10 // facts.rounds > (facts.number - 1) * 10 // facts.rounds
        if tenth or (self._used and not facts.used):
            self._say(line(facts))
        self._used = facts.used

    def _tell_who(self, facts: RoundFacts) -> None:
        found = {**facts.traffic.silent, **facts.refused}
        for name in sorted(found.keys() - self._missing):
            self._say(f"round {facts.number}: without {name} ({found[name]})")
        self._missing = set(found)
        if not self._everyone:
            return
        if facts.asked < self._asked:
            self._say(f"round {facts.number}: {facts.asked} of {self._everyone} are here")
        whole = facts.survivors >= self._everyone
        if whole and not self._whole:
            self._say(f"round {facts.number}: all {self._everyone} are here again")
        self._asked, self._whole = facts.asked, whole


def told_result(
    leading: Leading,
    federation: Federation,
    log: Path,
    least: int,
    sent: int,
    progress: bool | None,
) -> dict[str, Any]:
    """Tells how it goes, until it ends; what came of it.

    Args:
        leading: the coordinator's run.
        federation: that is served.
        log: of its rounds.
        least: how many participants it waits for.
        sent: rounds that earlier starts sent.
        progress: True for every round, False for nothing, None as suits the terminal.

    Raises:
        ValueError: if it failed for a reason that can be mended from outside.
        typer.Exit: if it failed otherwise, of which one line was said.
    """
    from sfumato.federated.watching import RoundLog

    heard, rounds = RoundLog(log), federation.rounds
    seen = len(heard.read())
    if progress is not False and sent:
        say(f"going on at round {sent + 1} of {rounds}")
    result = _waited(leading, least, progress is not False)
    few = progress is None and not sys.stderr.isatty()
    with LiveRounds(rounds, False if few else progress) as live:
        everyone = federation.participants if federation.participation == 1 else 0
        watch = Milestones(everyone) if few else live
        while True:
            done = result is not None
            for facts in heard.read(seen):
                watch(facts)
                seen += 1
            if done:
                return json.loads(result or b"")
            result = _looked(leading)


def _waited(leading: Leading, least: int, shown: bool) -> bytes | None:
    """Until participants are there; says how many are, whenever that changes."""
    last = None
    while not leading.began:
        present = leading.present
        if shown and present not in (None, last):
            last = present
            say(f"waiting: {present} of {least} are here")
        result = _looked(leading)
        if result is not None:
            return result
    if shown and last is not None:
        say(f"{least} are here: it begins")
    return None


def _looked(leading: Leading) -> bytes | None:
    """The result; None as long as there is none."""
    try:
        return leading.wait(_LOOK) or b"null"
    except TimeoutError:
        return None


@contextlib.contextmanager
def shown_end(sent: Callable[[], int], rounds: int, logs: Path) -> Iterator[None]:
    """Says in one line why a run ends early, and how it goes on.

    Args:
        sent: how many rounds were sent so far.
        rounds: how many there will be.
        logs: the folder in which the whole story is.
    """
    from sfumato.federated.flower.leading import LeadFailed

    old = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted: the same command goes on at round {sent() + 1} of {rounds}")
        raise
    except LeadFailed as error:
        if error.kind == "budget":
            raise ValueError(
                f"{error.said.rstrip('.')}. {sent()} of {rounds} rounds were sent and charged: "
                f"the same command goes on at round {sent() + 1} after the budget is raised"
            ) from None
        if error.kind == "value":
            raise ValueError(error.said) from None
        say(f"sfumato: the server's run failed ({error.said}): see {logs}/*.error")
        raise typer.Exit(1) from None
    except RuntimeError as error:
        said = " ".join(str(error).split())[:_LONGEST]
        say(f"sfumato: {said}: see {logs}/superlink.log; the same command goes on")
        raise typer.Exit(1) from None
    finally:
        signal.signal(signal.SIGTERM, old)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
