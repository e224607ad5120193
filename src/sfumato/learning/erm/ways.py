"""The ways there are, by name."""

from __future__ import annotations

from sfumato.core import validation
from sfumato.learning.erm.functional import Functional
from sfumato.learning.erm.local import LocalInput
from sfumato.learning.erm.objective import ObjectiveTilt
from sfumato.learning.erm.output import Output
from sfumato.learning.erm.stochastic import BoltOn
from sfumato.learning.erm.tasks import Task, Way

__all__ = ["way_names", "way_of"]

_WAYS: dict[str, type[Way]] = {
    way.name: way for way in (ObjectiveTilt, Output, Functional, BoltOn, LocalInput)
}


def way_names() -> tuple[str, ...]:
    """The best one, mostly, is the first.

    >>> way_names()
    ('objective', 'output', 'functional', 'sgd', 'input')
    """
    return tuple(_WAYS)


def way_of(name: str, task: Task) -> Way:
    """The way of this name to do a task.

    Raises:
        ValueError: for another name, or a task that is not for it.
    """
    if name not in _WAYS:
        validation.fail("way", f"one of {', '.join(_WAYS)}", name)
    return _WAYS[name](task)
