"""What every mechanism is: its own frozen configuration, and the event it amounts to.

A mechanism knows its event, its guarantee and its error before it sees a value. Public facts
(scale, sensitivity, bounds) are fields; the private value is an argument of ``release``.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import Coins
from sfumato.core.records import Release

__all__ = ["AdditiveMechanism", "Mechanism"]


class Mechanism(Protocol):
    """Anything that turns a private value into a release."""

    @property
    def event(self) -> Event:
        """What one release amounts to for accounting."""
        ...

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """What one release promises, at ``delta`` where the mechanism needs one."""
        ...

    def release(self, value: Any, /, *, coins: Coins = ...) -> Release:
        """One release of ``value`` with fresh noise."""
        ...


class AdditiveMechanism(Mechanism, Protocol):
    """A mechanism that adds independent noise to each number."""

    @property
    def standard_deviation(self) -> float:
        """Of the noise on each number."""
        ...

    @property
    def expected_error(self) -> float:
        """E |noise| on each number."""
        ...

    def half_width(self, confidence: float = 0.95, simultaneous: bool = False) -> float:
        """The noise on a number (or, if ``simultaneous``, on all of them) stays within this."""
        ...

    def perturb(
        self, values: ArrayLike, *, coins: Coins = ...
    ) -> NDArray[np.float64] | NDArray[np.int64]:
        """``values`` of any shape plus fresh noise: the bulk form of ``release``."""
        ...
