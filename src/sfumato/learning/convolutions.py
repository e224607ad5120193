"""How a GPU computes convolutions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

__all__ = ["convolutions_timed"]


@contextlib.contextmanager
def convolutions_timed() -> Iterator[None]:
    """Has cuDNN try its algorithms on each new shape and keep the fastest.

    For training in which the same shapes come again and again. Sums may be rounded otherwise from
    run to run, as they are on GPUs anyway.

    >>> with convolutions_timed():
    ...     torch.backends.cudnn.benchmark
    True
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
