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

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import Any, final

from sfumato.core.guarantee import round_down, round_up
from sfumato.core.json_files import read_json

__all__ = [
    "Fact",
    "NotOnRecord",
    "Sources",
    "amount_text",
    "at_least_text",
    "at_most_text",
    "delta_text",
    "epsilon_text",
    "interval_texts",
    "number_text",
    "per_cent_text",
    "plain_text",
    "pointer",
]

_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError)


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
        marks: fingerprints of the files, by full name.
    """

    def __init__(
        self, records: Mapping[str, Any], origin: str = "", marks: Mapping[str, str] | None = None
    ) -> None:
        self._records, self.origin, self.marks = dict(records), origin, dict(marks or {})

    @classmethod
    def read(cls, folder: str | Path, names: tuple[str, ...], origin: str = "") -> Sources:
        """Those of the named files that are there; no other file is opened.

        Raises:
            ValueError: for a file that is there and is no JSON (which has no NaN).
        """
        found: dict[str, Any] = {}
        for name in names:
            path = Path(folder) / name
            if not path.is_file():
                continue
            found[name] = read_json(path)
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
            raise NotOnRecord(self.full(name))
        value: Any = self._records[name]
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isdecimal() and int(key) < len(value):  # pyright: ignore[reportUnknownArgumentType]
                value = value[int(key)]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise NotOnRecord(self.full(place))
        return value

    @contextmanager
    def reading(self, place: str) -> Generator[None]:
        """What cannot be read as it should counts as not on record.

        Raises:
            NotOnRecord: instead of whatever reading raised.
        """
        try:
            yield
        except _UNREADABLE:
            raise NotOnRecord(f"{self.full(place)} (in a form that can be read)") from None

    def fact(self, place: str, shown: Callable[[Any], str] | None = None) -> Fact:
        """What is recorded there, as a fact.

        Raises:
            NotOnRecord: if there is nothing, or null, or what ``shown`` cannot read.
        """
        value = self.raw(place)
        if value is None:
            raise NotOnRecord(self.full(place))
        with self.reading(place):
            return Fact(value, (shown or plain_text)(value), self.full(place))

    def computed(self, value: Any, place: str, shown: Callable[[Any], str] | None = None) -> Fact:
        """A value that was computed from what is recorded there.

        Raises:
            NotOnRecord: if nothing is.
        """
        self.raw(place)
        return Fact(value, (shown or plain_text)(value), f"computed from {self.full(place)}")

    def full(self, place: str) -> str:
        """The place with its origin, as facts name it."""
        return f"{self.origin}/{place}" if self.origin else place


def pointer(key: str) -> str:
    """A key as a part of a place (RFC 6901).

    >>> pointer("a/b~c")
    'a~1b~0c'
    """
    return key.replace("~", "~0").replace("/", "~1")


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


def amount_text(value: float) -> str:
    """To four digits, in the way that amounts of something are written.

    >>> amount_text(3.95898), amount_text(12345.6), amount_text(0.0)
    ('3.959', '12,346', '0')
    """
    if value == 0 or not 1e-3 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def epsilon_text(value: float | str) -> str:
    """To three digits, never below the value."""
    number = float(value)
    return "infinite" if math.isinf(number) else f"{round_up(number, 3):.10g}"


def delta_text(value: float) -> str:
    """To three digits, never below the value.

    >>> delta_text(0.00021123), delta_text(1e-5)
    ('0.000212', '1e-05')
    """
    return f"{round_up(float(value), 3):.10g}"


def at_least_text(value: float | str) -> str:
    """A lower bound on an epsilon: to three digits, never above the value.

    >>> at_least_text(0.67266), epsilon_text(0.67266)
    ('0.672', '0.673')
    """
    number = float(value)
    if math.isinf(number):
        return "infinite"
    return f"{round_down(number, 3):.10g}"


def interval_texts(value: float, low: float, high: float) -> tuple[str, str, str]:
    """An answer and its limits: to two digits of the width, low rounded down and high up.

    So the limits hold what they held, and the answer stays between them.

    >>> interval_texts(134012, 133862, 134161)
    ('134,012', '133,860', '134,170')
    >>> interval_texts(0.51237, 0.49991, 0.52483)
    ('0.512', '0.499', '0.525')
    """
    width = abs(float(high) - float(low))
    with localcontext() as context:
        context.prec = 700  # every finite number has fewer digits
        step = math.floor(math.log10(width)) - 1 if 0 < width < math.inf else None
        limits = ((low, ROUND_FLOOR), (high, ROUND_CEILING))
        below, above = (_stepped(one, step, rounding) for one, rounding in limits)
        middle = f"{value:,}" if isinstance(value, int) else _stepped(value, step, ROUND_HALF_EVEN)
    return middle, below, above


def _stepped(value: float, step: int | None, rounding: str) -> str:
    """To a multiple of ten to the ``step``; as it is where there is none."""
    exact = Decimal(repr(float(value)) if isinstance(value, float) else int(value))
    if not exact.is_finite():
        return "infinite" if exact > 0 else "minus infinite"
    if step is not None:
        exact = exact.quantize(Decimal((0, (1,), step)), rounding=rounding) + Decimal(0)
    if exact and not -6 <= exact.adjusted() < 15:
        return f"{exact.normalize():e}"
    return f"{exact:,f}"


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
