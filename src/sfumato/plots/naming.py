"""Things to be drawn, and what they are called in a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

__all__ = ["Things", "named", "names_of", "only", "plain"]

Things = Sequence[tuple[str, Any]]
"""What is drawn together, each with its name; empty where it was given none."""


def named(thing: Any) -> Things:
    """One thing, or those of a list or dictionary, with their names."""
    if isinstance(thing, Mapping):
        found = [(str(name), one) for name, one in cast(Mapping[Any, Any], thing).items()]
    elif isinstance(thing, list | tuple):
        found = [("", one) for one in cast(Sequence[Any], thing)]
    else:
        return [("", thing)]
    if not found:
        raise ValueError(f"there must be something to draw, got an empty {type(thing).__name__}")
    return found


def only(things: Things) -> Any:
    """The thing, where a figure shows no more than one."""
    if len(things) > 1:
        kind = type(things[0][1]).__name__
        raise ValueError(f"a {kind} is drawn by itself, got {len(things)}: plot one at a time")
    return things[0][1]


def names_of(things: Things, own: Callable[[Any], str]) -> list[str]:
    """Names as given or, if there are none, each thing's own; told apart by numbers."""
    found: list[str] = []
    for name, one in things:
        wanted = label = plain(name or own(one))
        number = 1
        while label in found:
            number += 1
            label = f"{wanted} ({number})"
        found.append(label)
    return found


def plain(text: str) -> str:
    """Text in which a dollar is a dollar, not the beginning of a formula."""
    return text.replace("$", r"\$")
