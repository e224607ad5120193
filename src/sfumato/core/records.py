"""Records: what a release leaves behind, through two doors that never mix.

*Public*: what was charged for. It goes into ``record.json``, answers and publishable reports.
*Curator*: anything else that was read from private data (a training loss, a vote count, an attack's
result). It is shown to the operator or kept in a folder only the owner reads, and is never part of
what :meth:`Record.to_dict` returns.

Both doors live in one object so that code which makes a record decides at the moment of writing
which door a value takes; there is no way to serialise them together.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from sfumato.core import validation
from sfumato.core.events import Event, event_from_dict, promises_nothing
from sfumato.core.guarantee import Guarantee
from sfumato.core.html import facts_table
from sfumato.core.randomness import Coins

__all__ = ["NOT_PRIVATE", "UNPROTECTED", "Record", "Release", "versions"]

NOT_PRIVATE = "NOT PRIVATE: made with seeded test coins, whose noise anyone can subtract"
"""Of what has an event that promises something, had its noise been secret."""
UNPROTECTED = (
    "NOT PRIVATE: trained without privacy; the model and everything about it is for the curator "
    "alone"
)
"""Of what has an event that promises nothing."""


def _warning(event: Event) -> str:
    return UNPROTECTED if promises_nothing(event) else NOT_PRIVATE


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, sfumato and ``packages``, for a record's reader."""
    return {"python": platform.python_version()} | {
        name: _version(name) for name in ("sfumato", *packages)
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree, never installed
        return "not installed"


@dataclass(frozen=True)
class Release:
    """One released value with what it cost and how far off it may be.

    Attributes:
        value: what was released: a number, an array (as nested lists), a choice.
        event: what it amounts to for accounting.
        guarantee: what it promises on its own.
        half_width: the true value lies within this of ``value`` (each coordinate) ...
        confidence: ... with this probability over the noise. None where it has no meaning.
        private: False if seeded test coins made the noise, or the event promises nothing.
    """

    value: Any
    event: Event
    guarantee: Guarantee
    half_width: float | None = None
    confidence: float | None = None
    private: bool = True

    def __post_init__(self) -> None:
        if promises_nothing(self.event):
            object.__setattr__(self, "private", False)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __str__(self) -> str:
        spread = f" {self._spread()}" if self._spread() else ""
        stamp = f" [{self.warning}]" if self.warning else ""
        return f"{self.value}{spread}, {self.guarantee}{stamp}"

    def _spread(self) -> str:
        if self.half_width is None or self.confidence is None:
            return ""
        return f"+/- {self.half_width:.4g} ({self.confidence:.0%})"

    def _repr_html_(self) -> str:
        rows = [("value", str(self.value)), ("within", self._spread())]
        rows.append(("guarantee", str(self.guarantee)))
        return facts_table("Release", [row for row in rows if row[1]], stamp=self.warning)

    @property
    def warning(self) -> str:
        """Why it is not private; empty if it is."""
        return "" if self.private else _warning(self.event)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the stamp is there whenever it applies."""
        data: dict[str, Any] = {
            "value": self.value,
            "half_width": self.half_width,
            "confidence": self.confidence,
            "event": self.event.to_dict(),
            "private": self.private,
        }
        if not self.private:
            data["warning"] = self.warning
        return data | self.guarantee.to_dict()


@dataclass
class Record:
    """What a method did, in public, and what its curator saw.

    Attributes:
        method: the method's name.
        parameters: its configuration, all of it public.
        event: what it amounts to for accounting.
        guarantee: what it promises.
        private: False once seeded test coins have touched it, never True again; and always where
            the event promises nothing.
        facts: public facts: declared sizes, results on public data, charged releases.
        software: versions.
    """

    method: str
    parameters: dict[str, Any]
    event: Event
    guarantee: Guarantee
    private: bool = True
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    software: dict[str, str] = field(default_factory=versions)

    def __post_init__(self) -> None:
        self.private = self.private and not promises_nothing(self.event)
        self._curator: dict[str, Any] = {}  # not a field, so that no serialiser finds it

    @property
    def warning(self) -> str:
        """Why it is not private; empty if it is."""
        return "" if self.private else _warning(self.event)

    def _repr_html_(self) -> str:
        software = ", ".join(f"{name} {version}" for name, version in self.software.items())
        rows: list[tuple[str, object]] = [
            ("guarantee", str(self.guarantee)),
            ("event", self.event.kind),
            *self.parameters.items(),
            *self.facts.items(),
            ("software", software),
        ]
        note = "" if self.warning else "The public record, without what its curator was told."
        return facts_table(f"Record of {self.method}", rows, stamp=self.warning, note=note)

    def touch(self, coins: Coins) -> None:
        """Notes that ``coins`` made noise for this record: seeded ones stamp it for good."""
        self.private = self.private and coins.private

    def tell_curator(self, name: str, value: Any) -> None:
        """Keeps what was read from private data without being charged."""
        self._curator[validation.name("name", name)] = value

    def curator_view(self) -> dict[str, Any]:
        """Everything told to the curator, for the owner's eyes; a copy."""
        return dict(self._curator)

    def to_dict(self) -> dict[str, Any]:
        """The public record, JSON-ready, without anything the curator was told."""
        data: dict[str, Any] = {
            "method": self.method,
            "parameters": dict(self.parameters),
            "event": self.event.to_dict(),
            "guarantee": self.guarantee.to_dict(),
            "private": self.private,
            "facts": dict(self.facts),
            "software": dict(self.software),
        }
        return data if self.private else data | {"warning": self.warning}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """The inverse of :meth:`to_dict`; the curator's part was never there."""
        return cls(
            method=data["method"],
            parameters=dict(data["parameters"]),
            event=event_from_dict(data["event"]),
            guarantee=Guarantee.from_dict(data["guarantee"]),
            private=data["private"],
            facts=dict(data["facts"]),
            software=dict(data["software"]),
        )
