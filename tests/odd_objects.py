"""Objects that fail at one of the things that are asked of a cell, or say something meanwhile."""

from __future__ import annotations

import logging
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

__all__ = ["FAILURES", "Odd", "odd_object"]


@dataclass(frozen=True)
class Odd:
    """Stands for an object that fails at one of the things that are asked of it."""

    what: str


class _Fails:
    """Fails at one of the questions that NumPy, pandas or a reader may ask."""

    def __init__(self, what: str) -> None:
        self._what = what

    def _fails(self, what: str) -> None:
        if what == self._what:
            raise RuntimeError(f"no {what}")

    def __str__(self) -> str:
        self._fails("text")
        if self._what == "exit":
            raise SystemExit("patient 4711")
        if self._what == "interrupt":
            raise KeyboardInterrupt("patient 4711")
        if self._what == "warning":
            warnings.warn("patient 4711", stacklevel=1)
        if self._what == "log":
            logging.getLogger("sfumato.patients").error("patient 4711")
        return "odd"

    def __float__(self) -> float:
        self._fails("number")
        return 1.0

    def __eq__(self, other: object) -> bool:
        self._fails("equality")
        return self is other

    def __hash__(self) -> int:
        self._fails("hash")
        return 7

    @property
    def shape(self) -> tuple[int, ...]:
        """What NumPy's scalars have."""
        self._fails("shape")
        return (1,)


class _Classless:
    @property
    def __class__(self) -> Any:
        raise RuntimeError("patient 4711")


class _Unhashed(type):
    def __hash__(cls) -> int:
        raise RuntimeError("patient 4711")

    def __eq__(cls, other: object) -> bool:
        raise RuntimeError("patient 4711")


class _OfUnhashed(metaclass=_Unhashed):
    pass


class _Text(str):
    """A text whose own methods say something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def encode(self, *_: Any) -> Any:
        raise SystemExit("patient 4711")

    strip = encode


FAILURES = (
    *("text", "number", "equality", "hash", "shape", "exit", "interrupt", "warning", "log"),
    *("class", "dead", "metaclass", "text of its own"),
)
"""At what an object can fail; the last ones are of classes of their own."""


def odd_object(what: str) -> Any:
    """An object that fails at this."""
    if what == "class":
        return _Classless()
    if what == "dead":
        return weakref.proxy(_Fails(""))  # which nobody else holds
    if what == "metaclass":
        return _OfUnhashed()
    return _Text("odd") if what == "text of its own" else _Fails(what)
