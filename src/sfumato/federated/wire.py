"""Messages as bytes: a header in JSON and named arrays, in the safetensors format.

Nothing is ever unpickled. What does not parse, is too large or holds what it should not is a
:class:`Malformed` error that says so, whoever sent it.

    >>> sent = pack({"round": 3}, {"update": np.zeros(2, np.float32)})
    >>> header, arrays = unpack(sent, most_bytes=1_000)
    >>> header, arrays["update"].tolist()
    ({'round': 3}, [0.0, 0.0])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

__all__ = ["Malformed", "pack", "unpack"]

_HEADER = "sfumato"
_NOTHING = "_nothing"  # safetensors files hold at least one array
_ROOM = 65_536  # for headers, beyond the arrays


class Malformed(ValueError):  # noqa: N818 - the name operators read
    """A message that is not what the protocol says it must be."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """One message.

    Args:
        header: JSON; numbers must be finite.
        arrays: by name.
    """
    text = json.dumps(dict(header), allow_nan=False, separators=(",", ":"))
    held = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
    return save(held or {_NOTHING: np.zeros(0, np.uint8)}, metadata={_HEADER: text})


def unpack(message: bytes, *, most_bytes: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header and the arrays.

    Args:
        message: from :func:`pack`, or from anybody.
        most_bytes: how long it may be at most, headers not counted.

    Raises:
        Malformed: if it is anything else.
    """
    if len(message) > most_bytes + _ROOM:
        raise Malformed(f"a message of {len(message)} bytes, {most_bytes} at most were agreed")
    try:
        arrays = load(message)
        size = int.from_bytes(message[:8], "little")
        header = json.loads(json.loads(message[8 : 8 + size])["__metadata__"][_HEADER])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed(f"no message of this protocol ({type(error).__name__})") from None
    if not isinstance(header, dict):
        raise Malformed("a message whose header is no object")
    arrays.pop(_NOTHING, None)
    return header, arrays
