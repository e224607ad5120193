"""Whether kernels can be made on this machine."""

from __future__ import annotations

import functools
import importlib.util

__all__ = ["triton_is_here"]


@functools.cache
def triton_is_here() -> bool:
    """Whether Triton is installed; it comes with torch for NVIDIA GPUs on Linux."""
    return importlib.util.find_spec("triton") is not None
