"""Facts: values that know which record they come from. Reports are made of nothing else.

A report takes every number through :class:`Sources`, which holds the parsed records, and so each
can be traced to a file and a place in it (a JSON pointer, RFC 6901). What is not on record cannot
be shown: asking for it raises :class:`NotOnRecord`, and the report says so instead.

    >>> sources = Sources({"record.json": {"guarantee": {"epsilon": 2.99998, "delta": 1e-5}}})
    >>> fact = sources.fact("record.json#/guarantee/epsilon", epsilon_text)
    >>> fact.text, fact.source
    ('3', 'record.json#/guarantee/epsilon')
    >>> sources.fact("record.json#/guarantee/unit")
    Traceback (most recent call last):
    ...
    sfumato.reports.facts.NotOnRecord: record.json#/guarantee/unit
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sfumato.core.guarantee import round_up

__all__ = [
    "Fact",
    "NotOnRecord",
    "Sources",
    "at_most_text",
    "epsilon_text",
    "number_text",
    "per_cent_text",
    "plain_text",
]


class NotOnRecord(LookupError):  # noqa: N818
    """A report asked for what no record says; its text is where it should have been."""


@dataclass(frozen=True)
class Fact:
    """One value of a report.

    Attributes:
        value: as recorded or computed; JSON-ready.
        text: as shown.
        source: ``file#/place``, or ``computed from file#/place``.
    """

    value: Any
    text: str
    source: str

    def __str__(self) -> str:
        return self.text


@final
class Sources:
    """The records that a report is made from.

    Args:
        records: parsed JSON by name.
        origin: put before every name, such as the run's.
    """

    def __init__(self, records: Mapping[str, Any], origin: str = "") -> None:
        self._records, self.origin = dict(records), origin

    @classmethod
    def read(cls, folder: str | Path, names: tuple[str, ...], origin: str = "") -> Sources:
        """Those of the named files that are there and are JSON; no other file is opened.

        Raises:
            ValueError: for a file that is there and is no JSON.
        """
        found: dict[str, Any] = {}
        for name in names:
            path = Path(folder) / name
            if not path.is_file():
                continue
            try:
                found[name] = json.loads(path.read_text())
            except ValueError as error:
                raise ValueError(f"{path} must be JSON, but is not: {error}") from None
        return cls(found, origin)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the records there are."""
        return tuple(self._records)

    def has(self, place: str) -> bool:
        """Whether something other than null is recorded there."""
        try:
            return self.raw(place) is not None
        except NotOnRecord:
            return False

    def raw(self, place: str) -> Any:
        """What is recorded at ``file#/place``.

        Raises:
            NotOnRecord: if there is no such file or place.
        """
        name, _, pointer = place.partition("#")
        if name not in self._records:
            raise NotOnRecord(self._full(name))
        value: Any = self._records[name]
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            try:
                value = value[int(key)] if isinstance(value, list) else value[key]
            except (KeyError, IndexError, TypeError, ValueError):
                raise NotOnRecord(self._full(place)) from None
        return value

    def fact(self, place: str, shown: Callable[[Any], str] | None = None) -> Fact:
        """What is recorded there, as a fact.

        Raises:
            NotOnRecord: if there is nothing, or null.
        """
        value = self.raw(place)
        if value is None:
            raise NotOnRecord(self._full(place))
        return Fact(value, (shown or plain_text)(value), self._full(place))

    def computed(self, value: Any, place: str, shown: Callable[[Any], str] | None = None) -> Fact:
        """A value that was computed from what is recorded there.

        Raises:
            NotOnRecord: if nothing is.
        """
        self.raw(place)
        return Fact(value, (shown or plain_text)(value), f"computed from {self._full(place)}")

    def _full(self, place: str) -> str:
        return f"{self.origin}/{place}" if self.origin else place


# --- how values are shown -----------------------------------------------------------------------


def plain_text(value: Any) -> str:
    """Words as they are, whole numbers with commas, others to four digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(plain_text(one) for one in value)  # pyright: ignore[reportUnknownVariableType]
    return str(value)


def number_text(value: float) -> str:
    """To four digits."""
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:.4g}"


def epsilon_text(value: float | str) -> str:
    """To three digits, never below the value."""
    number = float(value)
    return "infinite" if math.isinf(number) else f"{round_up(number, 3):.10g}"


def per_cent_text(value: float) -> str:
    """Between 0 and 1, as per cent with two digits after the point below ten."""
    percent = 100 * value
    return f"{percent:.1f} %" if percent >= 10 else f"{percent:.2f} %"


def at_most_text(value: float) -> str:
    """A bound between 0 and 1, as per cent, never below the value; small ones as one in so many."""
    if value <= 0:
        return "never"
    if value < 0.01:
        return f"one in {math.floor(1 / value * (1 + 1e-12)):,}"
    return f"{min(100.0, math.ceil(1000 * value - 1e-9) / 10):.1f} %"
