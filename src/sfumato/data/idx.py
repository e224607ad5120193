"""The idx format of MNIST's files: a header with the sizes, then the bytes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["idx_bytes", "idx_header", "read_idx"]

_UNSIGNED_BYTES = 0x08


def idx_header(shape: tuple[int, ...]) -> bytes:
    """Two zeros, the type, the number of dimensions, and each size in four bytes, highest first.

    >>> idx_header((60_000, 28, 28)).hex(" ", 4)
    '00000803 0000ea60 0000001c 0000001c'
    """
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes((0, 0, _UNSIGNED_BYTES, len(shape))) + sizes


def idx_bytes(values: NDArray[np.uint8]) -> bytes:
    """An array of bytes as an idx file."""
    return idx_header(values.shape) + values.tobytes()


def read_idx(content: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The array in an idx file of unsigned bytes, as a view of the file's bytes.

    Raises:
        ValueError: if it is not such a file, or is too short or too long.
    """
    head = content[:4].tobytes()
    if len(head) < 4 or head[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or head[3] == 0:
        raise ValueError(f"an idx file of bytes must begin with 00 00 08, got {head.hex(' ')!r}")
    start = 4 + 4 * head[3]
    sizes = content[4:start].tobytes()
    if len(sizes) < start - 4:
        raise ValueError("an idx file must hold its sizes, got a shorter one")
    shape = tuple(int.from_bytes(sizes[at : at + 4], "big") for at in range(0, len(sizes), 4))
    # Python's own product: NumPy's would overflow on sizes that no file can have.
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"an idx file of shape {shape} must hold {math.prod(shape)} values, "
            f"got {len(content) - start}"
        )
    if len(shape) > 64:
        raise ValueError(f"an idx file must have at most 64 dimensions, got {len(shape)}")
    return content[start:].reshape(shape)
