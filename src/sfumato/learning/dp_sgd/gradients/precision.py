"""Full float32: no shortcuts in norms and sums, whatever the user allows in the model.

TF32 and "medium" matrix products keep 11 or 8 bits of each factor. A norm formed with them may be
off by more than clipping allows for, so they are switched off while norms and sums are formed, and
back on for the model. What the user allows is remembered meanwhile: kernels that shorten their
factors themselves, once for norms and sums alike, may do so where the model may.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["full_precision", "tf32_allowed"]

_before: list[tuple[bool, bool]] = []  # what was allowed outside of the blocks that are open


def _flags() -> tuple[bool, bool]:
    """Whether TF32 is allowed: in matrix products, in convolutions."""
    products = torch.get_float32_matmul_precision() != "highest"
    return products, torch.cuda.is_available() and torch.backends.cudnn.allow_tf32


def tf32_allowed(convolution: bool) -> bool:
    """Whether the user allows TF32 for such products in the model."""
    return (_before[0] if _before else _flags())[int(convolution)]


@contextlib.contextmanager
def full_precision() -> Generator[None]:
    """Switches reduced-precision products off for the time of the block."""
    products = torch.get_float32_matmul_precision()
    _, convolutions = flags = _flags()
    _before.append(flags)
    try:
        torch.set_float32_matmul_precision("highest")
        if convolutions:
            torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        _before.pop()
        torch.set_float32_matmul_precision(products)
        if convolutions:
            torch.backends.cudnn.allow_tf32 = True
