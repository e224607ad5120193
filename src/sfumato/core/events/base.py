"""What every event is, and JSON both ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, ClassVar

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours

__all__ = ["Event", "event_from_dict"]

_KINDS: dict[str, type[Event]] = {}


class Event(ABC):
    """Something released. Subclasses are frozen dataclasses named by ``kind`` in JSON."""

    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    @property
    @abstractmethod
    def relation(self) -> Neighbours:
        """The relation the event is accounted for unless another is asked for."""

    @property
    @abstractmethod
    def unit_name(self) -> str:
        """Whose data one neighbour step changes."""

    def _store(self, **values: object) -> None:
        """Sets fields of a frozen record to what validation made of them."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the event's kind under ``"kind"``."""
        values = {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind} | values


def _plain(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _revive(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_dict(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list):
        return tuple(_revive(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    return value


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """The inverse of :meth:`Event.to_dict`."""
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        validation.fail("kind", f"one of {', '.join(sorted(_KINDS))}", kind)
    known = fields(_KINDS[kind])  # type: ignore[arg-type]
    unknown = set(data) - {f.name for f in known} - {"kind"}
    if unknown:
        raise ValueError(f"event {kind!r} has no field {sorted(unknown)[0]!r}")
    missing = [f.name for f in known if f.default is MISSING and f.name not in data]
    if missing:
        raise ValueError(f"event {kind!r} needs a field {missing[0]!r}")
    return _KINDS[kind](**{k: _revive(v) for k, v in data.items() if k != "kind"})
