"""What ranks tell each other besides tensors: JSON, and arrays in it. Nothing is unpickled.

    >>> unpacked(packed({"rows": np.arange(3), "step": 7, "left": float("inf")}))
    {'rows': array([0, 1, 2]), 'step': 7, 'left': inf}

Tuples arrive as lists. An error arrives as one of its own kind, if that is among the kinds that are
known here, and else as a :class:`TrainingError` that names it.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from sfumato.learning.dp_sgd.errors import StreamError, TrainingError
from sfumato.ledger.errors import AlreadyWritten, BudgetExceeded, LedgerError

__all__ = ["error_from", "packed", "unpacked", "words_of"]

_ARRAY = "array of"
_KNOWN: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (
        TrainingError, StreamError, LedgerError, BudgetExceeded, AlreadyWritten, ValueError,
        TypeError, RuntimeError, OSError, FileNotFoundError, PermissionError,
    )
}  # fmt: skip


def packed(value: Any) -> bytes:
    """As bytes.

    Raises:
        TypeError: if it holds anything but JSON and arrays of numbers.
    """
    return json.dumps(value, default=_array).encode()


def unpacked(message: bytes) -> Any:
    """The inverse of :func:`packed`, but for tuples."""
    return json.loads(message, object_hook=_restored)


def _array(value: Any) -> dict[str, Any]:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {_ARRAY: value.dtype.str, "shape": value.shape, "content": content}
    raise TypeError(f"ranks tell each other JSON and arrays, got a {type(value).__name__}")


def _restored(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    content = base64.b64decode(found["content"])
    return np.frombuffer(content, dtype=found[_ARRAY]).reshape(found["shape"]).copy()


def words_of(error: Exception) -> dict[str, Any]:
    """An error as JSON: its kind, its words, and what else it holds if that is plain."""
    kind, text = type(error).__name__, str(error)
    if _KNOWN.get(kind) is not type(error) or str(_KNOWN[kind](text)) != text:
        return {"kind": "TrainingError", "text": f"rank 0 met a {kind}: {text}", "facts": {}}
    facts = {name: value for name, value in vars(error).items() if _is_plain(value)}
    return {"kind": kind, "text": text, "facts": facts}


def error_from(words: dict[str, Any]) -> Exception:
    """The inverse of :func:`words_of`."""
    error = _KNOWN[words["kind"]](words["text"])
    vars(error).update(words["facts"])
    return error


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))
