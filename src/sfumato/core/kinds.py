"""Families of frozen configurations, told apart by ``kind`` in JSON.

>>> class Shape(ByKind, family=True):
...     pass
>>> @dataclass(frozen=True)
... class Circle(Shape):
...     kind = "circle"
...     radius: float
>>> Circle(2.0).to_dict()
{'kind': 'circle', 'radius': 2.0}
>>> Shape.from_dict({"kind": "circle", "radius": 2.0}) == Circle(2.0)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from sfumato.core import validation

__all__ = ["ByKind"]


@dataclass(frozen=True)
class ByKind:
    """The base of a family: ``class Family(ByKind, family=True)``. Its members have a ``kind``."""

    kind: ClassVar[str]
    _members: ClassVar[dict[str, type[Any]]]

    def __init_subclass__(cls, family: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if family:
            cls._members = {}
        elif "kind" in cls.__dict__:
            cls._members[cls.kind] = cls

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with ``"kind"``."""
        values = {f.name: self._plain(getattr(self, f.name)) for f in fields(self)}
        return {"kind": self.kind} | values

    def _plain(self, value: Any) -> Any:
        """A field's value in JSON."""
        return list(value) if isinstance(value, tuple) else value  # pyright: ignore

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`.

        Raises:
            ValueError: for a kind that is not of the family.
        """
        kind = data.get("kind")
        if not isinstance(kind, str) or kind not in cls._members:
            validation.fail("kind", f"one of {', '.join(sorted(cls._members))}", kind)
        return cls._members[kind](**{name: v for name, v in data.items() if name != "kind"})
