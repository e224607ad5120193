"""Pictures in JSON: grey or coloured images as bytes in base 64, with their shape.

>>> import numpy as np
>>> packed = pack_pictures(np.array([[[0.0, 0.5], [1.0, 0.25]]]))
>>> packed["shape"], unpack_pictures(packed)[0, 0].round(2).tolist()
([1, 2, 2], [0.0, 0.5])
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["pack_pictures", "unpack_pictures"]


def pack_pictures(images: ArrayLike) -> dict[str, Any]:
    """Images with values in [0, 1], of any shape, to 256 levels; what is outside is cut."""
    values = np.nan_to_num(np.asarray(images, dtype=np.float64))
    levels = np.rint(255 * values.clip(0, 1)).astype(np.uint8)
    return {
        "shape": list(levels.shape),
        "pixels": base64.b64encode(levels.tobytes()).decode(),
    }


def unpack_pictures(packed: Mapping[str, Any]) -> NDArray[np.float64]:
    """The inverse of :func:`pack_pictures`.

    Raises:
        ValueError: if either is missing, or shape and bytes do not fit together.
    """
    for name in ("shape", "pixels"):
        if name not in packed:
            validation.fail("pictures", "a shape and pixels", sorted(packed))
    shape = tuple(validation.at_least("shape", size, 0) for size in packed["shape"])
    data = base64.b64decode(packed["pixels"], validate=True)
    if len(data) != math.prod(shape):
        validation.fail("pixels", f"{math.prod(shape)} bytes for shape {shape}", len(data))
    return np.frombuffer(data, dtype=np.uint8).reshape(shape) / 255
