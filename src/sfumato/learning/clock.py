"""Work in pieces: a clock that says when to stop, for machines that are lent by the minute."""

from __future__ import annotations

import math
import time
from typing import final

from sfumato.core import validation

__all__ = ["Clock", "OutOfTime"]


class OutOfTime(RuntimeError):  # noqa: N818  # as StopIteration: nothing is wrong
    """The time that was given is over; what is done is on disk."""


@final
class Clock:
    """Says when a run should stop.

    Args:
        minutes: from now on, 0 or more; None for never.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self._ends = math.inf
        if minutes is not None:
            self._ends = time.monotonic() + 60 * validation.non_negative("minutes", minutes)

    @property
    def over(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._ends

    @property
    def minutes_left(self) -> float | None:
        """How many there are, 0 or above; None where it never ends."""
        return None if self._ends == math.inf else max(0.0, self._ends - time.monotonic()) / 60
