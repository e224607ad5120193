"""What the operator sees while a run goes on, and nobody else ever.

Losses, the fraction clipped and the signal's strength are read from private data and not charged
for: they belong on the operator's screen. Nothing here writes to a record or returns what it was
told.

    >>> describe(Facts(120, 6000, 0.412, 1.27, 0.63, 0.8, 3.0))
    'loss 0.412  eps 1.27 of 3  clipped 63 %  signal/noise 0.8'
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column

__all__ = ["Facts", "Progress", "RichProgress", "Screen", "Silent", "choose_progress", "describe"]

_BETWEEN_FRAMES = 0.1  # seconds, on a terminal
_BETWEEN_LINES = 10.0  # elsewhere


@dataclass(frozen=True)
class Facts:
    """A step, to its operator. NaN or None where there is nothing to say: an empty lot.

    Attributes:
        step: how many steps are done.
        total: of how many.
        loss: mean over the lot.
        epsilon: spent so far.
        clipped: the fraction of gradients that were clipped.
        signal_to_noise: the length of the clipped sum over that of the noise; where noise is
            correlated, over that of independent noise with the plan's multiplier.
        planned_epsilon: what the whole run will have spent.
    """

    step: int
    total: int
    loss: float | None = None
    epsilon: float | None = None
    clipped: float | None = None
    signal_to_noise: float | None = None
    planned_epsilon: float | None = None


def describe(facts: Facts) -> str:
    """In one line."""
    parts = [f"loss {_short(facts.loss, 3)}", f"eps {_short(facts.epsilon, 3)}"]
    if facts.planned_epsilon is not None:
        parts[-1] += f" of {_short(facts.planned_epsilon, 3)}"
    percent = None if facts.clipped is None else 100 * facts.clipped
    shown = f"{percent:.0f} %" if percent is not None and math.isfinite(percent) else "-"
    parts += [f"clipped {shown}", f"signal/noise {_short(facts.signal_to_noise, 2)}"]
    return "  ".join(parts)


def _short(value: float | None, digits: int) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}g}"


class Progress(Protocol):
    """Whoever shows a run to its operator."""

    @property
    def wanted(self) -> bool:
        """Whether anything would be shown: if not, nothing need be computed for it."""
        ...

    def update(self, step: Facts) -> None:
        """A step was taken."""
        ...

    def close(self) -> None:
        """The run ended, or failed."""
        ...


@final
class Silent:
    """Shows nothing."""

    @property
    def wanted(self) -> bool:
        """False."""
        return False

    def update(self, step: Facts) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


@final
class Screen(Console):
    """A console on which a broken pipe is an error like others: rich itself would end the run."""

    def on_broken_pipe(self) -> None:
        """Raises ``BrokenPipeError``."""
        raise BrokenPipeError


@final
class RichProgress:
    """A bar on a terminal's standard error; elsewhere nothing, or a line now and then if forced.

    No thread draws it, and trouble with the screen never stops a run: the display ends instead.

    Args:
        forced: show lines also where there is no terminal (a notebook, a log).
        screen: where to; standard error by default.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        forced: bool = False,
        screen: Screen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Never rich's own way with notebooks, which needs a package of widgets and warns.
        self._screen = screen or Screen(stderr=True, force_jupyter=False)
        self._live = self._screen.is_terminal and not self._screen.is_dumb_terminal
        self._open = self._live or forced
        self._clock = clock
        self._bars: Bars | None = None
        self._first: tuple[int, float] | None = None
        self._last_shown = -math.inf
        self._unshown: str | None = None

    @property
    def wanted(self) -> bool:
        """Whether anything is shown."""
        return self._open

    def update(self, step: Facts) -> None:
        """Shows the step, or keeps it for the next frame."""
        if not self._open:
            return
        now = self._clock()
        if self._first is None:
            self._first = (step.step, now)
        self._unshown = f"{step.step}/{step.total}  {describe(step)}{self._pace(step, now)}"
        wait = _BETWEEN_FRAMES if self._live else _BETWEEN_LINES
        if now - self._last_shown >= wait or step.step >= step.total:
            self._last_shown = now
            self._guarded(lambda: self._show(step))

    def _pace(self, step: Facts, now: float) -> str:
        assert self._first is not None
        first, began = self._first
        if step.step <= first or now <= began:
            return ""
        rate = (step.step - first) / (now - began)
        left = round((step.total - step.step) / rate)
        clock = f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d}"
        return f"  {rate:.3g} lots/s  {clock} left"

    def _show(self, step: Facts) -> None:
        text, self._unshown = self._unshown or "", None
        if not self._live:
            self._screen.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        if self._bars is None:
            text_column = TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True)
            )
            self._streams = sys.stdout, sys.stderr
            self._bars = Bars(
                BarColumn(bar_width=20),
                text_column,
                console=self._screen,
                auto_refresh=False,
                redirect_stdout=sys.stdout.isatty(),  # what goes to a file must stay there
            )
            self._bars.start()
            self._bars.add_task("", total=step.total)
        task = self._bars.task_ids[0]
        self._bars.update(task, completed=step.step, total=step.total, description=text)
        self._bars.refresh()

    def close(self) -> None:
        """Leaves the last line on the screen. Closing twice does nothing more."""
        if self._open:
            self._guarded(self._finish)
        self._open = False

    def _finish(self) -> None:
        if self._bars is not None:
            if self._unshown is not None:
                self._bars.update(self._bars.task_ids[0], description=self._unshown)
            self._bars.stop()
        elif self._unshown is not None:
            self._screen.print(self._unshown, markup=False, highlight=False, soft_wrap=True)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, ValueError, RuntimeError):  # a closed pipe, a closed file
            self._open = False
            if self._bars is not None:  # which may have put itself in their place
                sys.stdout, sys.stderr = self._streams


def choose_progress(wanted: bool | Progress | None) -> Progress:
    """A display: True always, False never, None on a terminal, or whoever is given."""
    if wanted is None or wanted is True:
        return RichProgress(forced=bool(wanted))
    return Silent() if wanted is False else wanted
