"""Full float32: no shortcuts in norms and sums, whatever the user allows in the model.

TF32 and "medium" matrix products keep 11 or 8 bits of each factor. A norm formed with them may be
off by more than clipping allows for, so they are switched off while norms and sums are formed, and
back on for the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch

__all__ = ["full_precision"]


@contextlib.contextmanager
def full_precision() -> Generator[None]:
    """Switches reduced-precision products off for the time of the block."""
    products = torch.get_float32_matmul_precision()
    convolutions = torch.cuda.is_available() and torch.backends.cudnn.allow_tf32
    if products == "highest" and not convolutions:
        yield
        return
    try:
        torch.set_float32_matmul_precision("highest")
        if convolutions:
            torch.backends.cudnn.allow_tf32 = False
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        if convolutions:
            torch.backends.cudnn.allow_tf32 = True
