"""Releases from a JSON file, as records hold them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core.json_files import read_json

if TYPE_CHECKING:
    from sfumato.core.events import Event

__all__ = ["read_events"]


def read_events(path: Path) -> list[Event]:
    """One event, or those of a list.

    Raises:
        ValueError: if the file is no JSON, holds no event, or a bad one.
        OSError: if it cannot be read.
    """
    from sfumato.core.events import event_from_dict

    data: Any = read_json(path)
    if isinstance(data, dict):
        data = [data]
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ValueError(f"{str(path)!r} must hold one event or a list of events")
    if not data:
        raise ValueError(f"{str(path)!r} holds no events")
    try:
        return [event_from_dict(item) for item in data]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(path)!r} holds a bad event: {error}") from error
