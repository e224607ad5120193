"""Randomness inside a model, held still while it is checked.

Dropout and the like would make two passes differ. Where chance decides who is mixed with whom, one
constant would hide it: so uniform numbers, normal numbers, coins and whole numbers take several
levels. A draw that does not come from the secret coins is refused here, and what is drawn once for
a whole batch is noted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sfumato.learning.dp_sgd.gradients.uses import function_name
from sfumato.learning.dp_sgd.other_coins import Draws, is_draw, refuse_other_coins

__all__ = ["LEVELS", "HoldStill", "held"]

LEVELS = (0.5, 1e-4, 1 - 1e-4)
_UNIFORM = {"rand", "rand_like", "uniform_"}
_COIN = {"bernoulli", "bernoulli_"}
_NORMAL = {"randn", "randn_like", "normal", "normal_"}
_STILL = {"randint_like": 0, "random_": 0, "exponential_": 1.0}


class HoldStill:
    """Randomness inside a model, replaced by constants.

    Attributes:
        coarse: whether a function ran in mixed precision.
        level: what uniform numbers are.
        by_row: uniform numbers of the batch's rows, instead of a level; None for a level.
        drew: whether anything was drawn.
        draws: notes for whom something is drawn, in a batch of a telling size.
    """

    def __init__(self, model: nn.Module) -> None:
        self._devices = {p.device.type for p in model.parameters()}
        self.coarse = False
        self.level = LEVELS[0]
        self.by_row: Tensor | None = None
        self.drew = False
        self.draws: Draws | None = None

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the tape calls instead of ``func``, or NotImplemented."""
        self.coarse = self.coarse or any(map(torch.is_autocast_enabled, self._devices))
        if not is_draw(func, args, kwargs):
            return NotImplemented
        refuse_other_coins(func, kwargs)
        self.drew = True
        out = held(func, args, kwargs, self.level)
        if self.by_row is not None and isinstance(out, Tensor):
            out = _along_rows(function_name(func), out, self.by_row)
        if self.draws is not None:
            out = func(*args, **kwargs) if out is NotImplemented else out
            self.draws.note(func, out)
        return out


def held(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], level: float) -> Any:
    """What a draw gives when uniform numbers are at a level; NotImplemented if it is not known."""
    name = function_name(func)
    if "dropout" in name and args and isinstance(args[0], Tensor):
        return args[0]
    if name == "scaled_dot_product_attention":
        if len(args) > 4:
            args = (*args[:4], 0.0, *args[5:])
        else:
            kwargs = {**kwargs, "dropout_p": 0.0}
        return func(*args, **kwargs)
    if name in _UNIFORM:
        drawn = func(*args, **kwargs)
        return drawn.fill_(_below_one(level, drawn.dtype))
    if name in _COIN:
        return func(*args, **kwargs).fill_(float(level < 0.75))
    if name in _NORMAL:
        normal = 0.3 if level == LEVELS[0] else 6 * level - 3
        return func(*args, **kwargs).fill_(normal)
    if name == "randint":
        return func(*args, **kwargs).fill_(_whole(args, kwargs, level))
    if name in _STILL:
        return func(*args, **kwargs).fill_(_STILL[name])
    return NotImplemented


def _along_rows(name: str, out: Tensor, values: Tensor) -> Tensor:
    """Another number for each row, if the draw has a number for each."""
    if out.shape[:1] != values.shape:
        return out
    column = values.to(out.device).reshape(-1, *[1] * (out.ndim - 1))
    if name in _UNIFORM:
        return out.copy_(column.expand_as(out))
    if name in _COIN:
        return out.copy_((column < 0.5).expand_as(out))
    if name in _NORMAL:
        return out.copy_((2 * column - 1).expand_as(out))
    return out


def _below_one(level: float, dtype: torch.dtype) -> float:
    """As far as a type can tell it from 1, which no uniform number is."""
    return min(level, 1 - torch.finfo(dtype).eps) if dtype.is_floating_point else level


def _whole(args: tuple[Any, ...], kwargs: dict[str, Any], level: float) -> int:
    """A whole number of the range that was asked for, by the level."""
    ends = [n for n in args[:2] if isinstance(n, int)]
    low = kwargs.get("low", ends[0] if len(ends) > 1 else 0)
    high = kwargs.get("high", ends[-1] if ends else 1)
    return low + int(level * (high - low))
