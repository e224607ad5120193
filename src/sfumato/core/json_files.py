"""JSON as it is read everywhere: in the strict sense, and with errors that say where it ends.

A file is a regular one, of at most 64 MiB: a pipe may never end, and a device has no end. What
sfumato wrote itself is taken apart by :func:`as_written`, for which a file that was damaged or
edited is at fault, and not the code that meets it.

>>> parsed('{"epsilon": 1, "epsilon": 2}')
Traceback (most recent call last):
...
ValueError: the key 'epsilon' is there more than once in one object: keep one
"""

from __future__ import annotations

import contextlib
import json
import math
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

__all__ = ["MOST_BYTES", "as_written", "parsed", "read_json", "read_text", "require_regular"]

MOST_BYTES = 64 * 2**20
"""Of a text file that is read at once."""

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
        ValueError: if it is no regular file, larger than 64 MiB, or not in UTF-8.
        OSError: if it cannot be read.
    """
    require_regular(path)
    with Path(path).open("rb") as file:
        held = file.read(MOST_BYTES + 1)
    if len(held) > MOST_BYTES:
        raise ValueError(f"{path} must be at most {MOST_BYTES // 2**20} MiB, but is larger")
    try:
        return held.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8, but is not") from None


def require_regular(path: str | Path) -> None:
    """Refuses pipes, devices and sockets, which may never end. A folder is left to who opens it.

    Raises:
        ValueError: for one of them.
        OSError: if there is nothing.
    """
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ValueError(
            f"{path} must be a regular file, but is a pipe, a device or a socket: write what it "
            "gives to a file first"
        )


@contextlib.contextmanager
def as_written(path: str | Path) -> Generator[None]:
    """In here, what sfumato wrote into a file is taken apart; whatever fails is the file's fault.

    >>> with as_written("record.json"):
    ...     {}["recipe"]
    Traceback (most recent call last):
    ...
    ValueError: record.json is damaged or was edited (it lacks 'recipe'): restore it from a copy

    Raises:
        ValueError: which names the file.
        OSError: as it is, and errors of sfumato's own classes.
    """
    try:
        yield
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "sfumato":
            raise
        if type(error) is ValueError and str(path) in str(error):
            raise
        found = f" ({error})" if type(error) is ValueError else ""
        if type(error) is KeyError and error.args:
            found = f" (it lacks {error.args[0]!r})"
        raise ValueError(
            f"{path} is damaged or was edited{found}: restore it from a copy"
        ) from None


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
