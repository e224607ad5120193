"""Draws held at one value, so that a row comes out the same wherever it stands.

With the same secret coins a row in another place gets other numbers, and may come out changed for
that alone. Held at one value, every draw of every row is the same: what then changes with a row's
place, or with how many rows there are, is no matter of chance. Torch's draws are held as in a
model (:func:`~sfumato.learning.dp_sgd.stillness.held`), NumPy's and Python's by a state whose next
numbers are all the same (:mod:`~sfumato.learning.crafted_coins`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from torch.overrides import TorchFunctionMode

from sfumato.learning.crafted_coins import EVEN, KEY
from sfumato.learning.dp_sgd.other_coins import is_draw, same_coins
from sfumato.learning.dp_sgd.stillness import LEVELS, held
from sfumato.learning.secret_coins import ModelCoins

__all__ = ["Steady", "held_draws"]

_MOST = KEY - 24  # words of one value; a normal number may take some at once


class Steady(TorchFunctionMode):
    """Holds what torch draws.

    Attributes:
        holds: whether all that was drawn was held at one value.
    """

    def __init__(self, level: float) -> None:
        super().__init__()
        self._level, self.holds = level, True

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_draw(func, args, kwargs):
            return func(*args, **kwargs)
        out = held(func, args, kwargs, self._level)
        if out is NotImplemented:
            self.holds = False
            return func(*args, **kwargs)
        return out


@contextlib.contextmanager
def held_draws(level: float = LEVELS[0]) -> Generator[Steady]:
    """For the time of the block; afterwards as if nothing had been drawn.

    Args:
        level: what torch's uniform numbers are.
    """
    steady = Steady(level)
    with same_coins(0, EVEN), steady:
        yield steady
        counts = ModelCoins.drawn_since().values()
        steady.holds = steady.holds and all(n is not None and n <= _MOST for n in counts)
