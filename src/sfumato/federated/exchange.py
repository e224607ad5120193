"""The seam between protocols and transports: messages are bytes, participants have names.

A protocol never knows what carries its messages, and a transport never reads them. Three engines
stand behind :class:`Engine`: one process (:mod:`~sfumato.federated.in_process`), Flower's simulator
and Flower's deployment (:mod:`~sfumato.federated.flower`).

    >>> class Echo:
    ...     def answer(self, message: bytes) -> bytes:
    ...         return message.upper()
    >>> from sfumato.federated.in_process import InProcess
    >>> engine = InProcess({"ward": Echo()})
    >>> [(reply.name, reply.data) for reply in engine.exchange({"ward": b"hello"})]
    [('ward', b'HELLO')]

Whoever does not answer, is dead or answers with an error is a :class:`Reply` without data: a fault
of one participant costs utility and never stops the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final

__all__ = ["Engine", "Participant", "Reply"]


class Participant(Protocol):
    """One who holds data and answers a coordinator's messages."""

    def answer(self, message: bytes) -> bytes:
        """The reply. May raise: the coordinator then goes on without her."""
        ...


@final
@dataclass(frozen=True)
class Reply:
    """What came of one message.

    Attributes:
        name: whose.
        data: what she answered; None if nothing came.
        error: why nothing came, for the operator; empty otherwise.
    """

    name: str
    data: bytes | None
    error: str = ""


class Engine(Protocol):
    """A transport: it knows who is there, and carries messages to them and back."""

    def participants(self) -> Sequence[str]:
        """The names of those who can be reached now, in a stable order."""
        ...

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """Sends each its message, and yields one reply for each, as they come.

        Args:
            messages: by name.
            timeout: seconds after which those who have not answered count as gone.
        """
        ...
