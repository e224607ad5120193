"""JSON as it is read everywhere: in the strict sense, and with errors that say where it ends.

>>> parsed('{"epsilon": 1, "epsilon": 2}')
Traceback (most recent call last):
...
ValueError: the key 'epsilon' is there more than once in one object: keep one
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

__all__ = ["parsed", "read_json", "read_text"]

_DEEPEST = 100
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep: state repetition of events as a count"


def parsed(text: str) -> Any:
    """JSON in the strict sense, in which each key has one value.

    Raises:
        ValueError: for anything else, NaN and infinities, keys that are there twice (readers differ
            in which of the values counts) and what is nested too deeply included.
    """
    try:
        found = json.loads(
            text,
            parse_constant=_refuse,
            parse_float=_finite,
            object_pairs_hook=_with_single_keys,
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"what is at {where} is no JSON") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [found]
    for _ in range(_DEEPEST):
        level = [part for value in level for part in _parts(value)]
    if level:
        raise ValueError(_TOO_DEEP)
    return found


def read_text(path: str | Path) -> str:
    """What a text file holds.

    Raises:
        ValueError: if it is not in UTF-8.
        OSError: if it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8, but is not") from None


def read_json(path: str | Path) -> Any:
    """What a JSON file holds.

    Raises:
        ValueError: with the file's name, for what :func:`parsed` refuses.
        OSError: if it cannot be read.
    """
    text = read_text(path)
    try:
        return parsed(text)
    except ValueError as error:
        raise ValueError(f"{path} must be JSON, but is not: {error}") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond what a number can be")
    return number


def _with_single_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is there more than once in one object: keep one")
    return found


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*cast("dict[str, Any]", value).values()]
    return cast("list[Any]", value) if isinstance(value, list) else []
