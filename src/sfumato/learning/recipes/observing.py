"""Whoever watches a run: bars on the operator's screen, and the curator's history.

Losses, the fraction clipped and the signal's strength are read from private data and not charged
for. An observer gets them; a record never does.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from sfumato.learning.dp_sgd.progress import Facts, Progress, choose_progress

__all__ = ["History", "Observer", "Point", "Shown"]


@dataclass(frozen=True)
class Point:
    """One point of a learning curve.

    Attributes:
        step: after so many steps.
        epsilon: spent by then.
        accuracy: on the test set, between 0 and 1.
    """

    step: int
    epsilon: float
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


class Observer(Protocol):
    """What a run tells its operator."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """So many rows of features are computed."""
        ...

    def evaluated(self, point: Point) -> None:
        """The model was tested."""
        ...

    def steps(self) -> Progress | bool:
        """Who shows the steps."""
        ...


@final
class Shown:
    """Bars on a terminal; nothing elsewhere unless it is wanted.

    Args:
        wanted: True always, False never, None on a terminal.
    """

    def __init__(self, wanted: bool | None = None) -> None:
        self._wanted = wanted
        self._bars: Bars | None = None

    def preparing(self, what: str, done: int, total: int) -> None:
        """A bar that disappears when all is done."""
        screen = Console(stderr=True)
        if self._wanted is False or not screen.is_terminal:
            return
        if self._bars is None:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=20))
            self._bars = Bars(
                *columns, MofNCompleteColumn(), TimeRemainingColumn(),
                console=screen, transient=True,
            )  # fmt: skip
            self._bars.start()
            self._bars.add_task(what, total=total)
        self._bars.update(self._bars.task_ids[0], completed=done, total=total)
        if done >= total:
            self._bars.stop()
            self._bars = None

    def evaluated(self, point: Point) -> None:
        """Nothing: the curve is in the run's folder."""

    def steps(self) -> Progress | bool:
        """The trainer's own bar."""
        return choose_progress(self._wanted)


@final
class History:
    """Keeps every step's facts for the curator, and passes them on to a display.

    Args:
        shown: the display.
        kept: whether there is a curator's folder to read them.
    """

    def __init__(self, shown: Progress | bool, kept: bool) -> None:
        self._kept = kept
        self._shown = choose_progress(shown) if isinstance(shown, bool) else shown
        self.facts: list[Facts] = []

    @property
    def wanted(self) -> bool:
        """Whether anybody reads them: to learn of each step, a GPU must be waited for."""
        return self._kept or self._shown.wanted

    def update(self, step: Facts) -> None:
        """Keeps and shows it."""
        if self._kept:
            self.facts.append(step)
        self._shown.update(step)

    def close(self) -> None:
        """Ends the display."""
        self._shown.close()

    def to_dict(self, most: int = 500) -> dict[str, list[float | None]]:
        """At most so many steps, evenly chosen; JSON-ready."""
        chosen = self.facts[:: max(1, -(-len(self.facts) // most))]
        names = ("step", "loss", "clipped", "signal_to_noise")
        return {name: [_plain(getattr(f, name)) for f in chosen] for name in names}


def _plain(value: float | None) -> float | None:
    # NaN: an empty lot; infinite: a row's loss, which must not stop the run either.
    return value if value is not None and math.isfinite(value) else None
