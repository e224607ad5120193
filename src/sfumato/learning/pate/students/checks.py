"""A check that students share."""

from __future__ import annotations

from sfumato.core import validation

__all__ = ["share"]


def share(name: str, value: object) -> float:
    """A number from 0 to 1, both included."""
    number = validation.non_negative(name, value)
    if number > 1:
        validation.fail(name, "from 0 to 1", value)
    return number
