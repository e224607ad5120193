"""Whether a row comes out of an augment or a collate the same wherever it stands.

A loss is tried with one row less, and with its rows in other places. So is what comes before it: a
sign by the number of rows, noise levels that are spread out over a batch, every other row turned.
One row more or less would change what all others get. What is drawn is held at one value meanwhile
(:mod:`~sfumato.learning.dp_sgd.held_draws`); where it cannot be held, nothing is compared.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.held_draws import held_draws
from sfumato.learning.dp_sgd.stillness import LEVELS

__all__ = ["refuse_places"]

Make = Callable[[list[int]], list[Tensor]]
_ROUNDING = 1e-4
_MANY = 16


def refuse_places(who: str, make: Make, rows: int, *, ragged: bool = False) -> None:
    """Raises if a row comes out changed in another place, or with one row less.

    Args:
        who: makes it.
        make: what it makes of these made-up rows, in this order.
        rows: of the largest batch that is tried.
        ragged: whether rows may be as long as the longest of their batch, which others try.

    Raises:
        TrainingError: naming the remedy.
    """
    whole = list(range(rows))
    for level in LEVELS if rows <= _MANY else LEVELS[:1]:
        usual, holds = _held(make, whole, level)
        for order in (whole[:-1], [whole[-1], *whole[:-1]]):
            found, again = _held(make, order, level)
            if not (holds and again) or len(usual) != len(found):
                continue
            for one, two in zip(usual, found, strict=True):
                if one.shape[:1] != (rows,) or two.shape[:1] != (len(order),):
                    continue  # no part with rows; others refuse it
                if one.shape[1:] != two.shape[1:] and ragged:
                    continue
                if not _alike(one[order], two):
                    raise TrainingError(
                        f"{who} makes something else of a row when it stands in another place, or "
                        "when one row less comes with it (noise levels spread out over the batch, "
                        "a sign by the number of rows, every other row): one row more would change "
                        "what all others get. Let it change each row by itself, by a draw of its "
                        "own"
                    )


def _held(make: Make, order: list[int], level: float) -> tuple[list[Tensor], bool]:
    with held_draws(level) as steady:
        made = make(order)
    return made, steady.holds


def _alike(one: Tensor, two: Tensor) -> bool:
    """But for rounding: libraries add up in another order for other numbers of rows."""
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return torch.equal(one, two)
    finite = one[one.isfinite()].abs()
    room = _ROUNDING * float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(one, two, rtol=_ROUNDING, atol=room, equal_nan=True)
