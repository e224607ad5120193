"""Parameters at zero, which would hide from a rehearsal what stands before them.

A last layer that begins at zero makes every loss the same and every gradient before it zero, and so
does an adapter whose second factor begins at zero. Compared, all of that agrees, whatever the model
does: a body that mixes examples would show only once the layer has moved, in a run that is paid
for. So while made-up rows are tried, such parameters hold made-up numbers.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Generator, Mapping

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.distributed.shards import local

__all__ = ["none_at_zero"]

_MOST = 0.5  # of made-up numbers, over the root of how many are summed with them


@contextlib.contextmanager
def none_at_zero(
    parameters: Mapping[str, Tensor], changed: Callable[[], object] = lambda: None
) -> Generator[None]:
    """For the time of the block, parameters that are all zero hold other numbers.

    They follow from the name, so that replicas agree. What is held in parts is filled part by part.

    Args:
        parameters: those that are trained, by name.
        changed: called whenever they have changed: whole copies of what is held in parts would not
            follow by themselves.
    """
    held = {name: local(parameter) for name, parameter in parameters.items()}
    zero = {name: p for name, p in held.items() if p.numel() and not bool(p.detach().any())}
    try:
        for name, p in zero.items():
            coins = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            summed = p[0].numel() if p.ndim else 1
            drawn = 2 * torch.rand(p.shape, generator=coins) - 1
            p.data.copy_(_MOST * summed**-0.5 * drawn)
        changed()
        yield
    finally:
        for p in zero.values():
            p.data.zero_()
        changed()
