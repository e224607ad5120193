"""All kinds of storms, by name; what a kind needs is loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from tests.storm.storm import Storm

__all__ = ["KINDS", "Kind"]


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        place: module and function.
        kills: of a piece.
        disk: whether half of the pieces are on a disk rather than in memory.
    """

    place: str
    kills: int
    disk: bool = True

    def load(self) -> Callable[[Storm], None]:
        """The storm itself."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"tests.storm.{module}"), name)


KINDS = {
    "spenders": Kind("spenders:spenders", 400),
    "clock": Kind("clocks:clock", 300),
    "full disk": Kind("disks:full_disk", 100, disk=False),
    "read-only disk": Kind("disks:read_only_disk", 100, disk=False),
    "postgres": Kind("servers:postgres", 300, disk=False),
    "queries": Kind("queries:queries", 200),
    "searches": Kind("searches:searches", 40),
    "federations": Kind("federations:federations", 60),
    "trainings": Kind("trainings:trainings", 60),
    "trainings on a full disk": Kind("trainings:trainings_on_full_disk", 60, disk=False),
}
