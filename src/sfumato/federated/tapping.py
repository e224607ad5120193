"""An ear at the transport: what a curious server, or whoever listens at its door, gets to see.

    >>> from sfumato.federated.in_process import InProcess
    >>> class Echo:
    ...     def answer(self, message: bytes) -> bytes:
    ...         return message + b"!"
    >>> tapped = Tapped(InProcess({"ward": Echo()}))
    >>> [reply.data for reply in tapped.exchange({"ward": b"hello"})]
    [b'hello!']
    >>> tapped.heard
    [Heard(name='ward', message=b'hello', reply=b'hello!')]

For attacks on one's own protocols. What it hears is for the curator only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sfumato.federated.exchange import Engine, Reply

__all__ = ["Heard", "Tapped"]


@final
@dataclass(frozen=True)
class Heard:
    """One message and its answer."""

    name: str
    message: bytes
    reply: bytes


@final
class Tapped:
    """An engine that remembers all it carries.

    Args:
        engine: that does the work.

    Attributes:
        heard: in the order of replies.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.heard: list[Heard] = []

    def participants(self) -> Sequence[str]:
        """As the engine says."""
        return self._engine.participants()

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """As the engine does."""
        for reply in self._engine.exchange(messages, timeout=timeout):
            if reply.data is not None:
                self.heard.append(Heard(reply.name, messages[reply.name], reply.data))
            yield reply
