"""Runs a server, which is a generator, over an engine."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypeVar

from sfumato.federated.exchange import Engine

__all__ = ["Collecting", "drive"]

_Result = TypeVar("_Result")
Collecting = Generator[Mapping[str, bytes], Mapping[str, bytes], _Result]
"""A server: yields messages by name, is sent the answers that came, returns its result."""


def drive(server: Collecting[_Result], engine: Engine, *, timeout: float = 600.0) -> _Result:
    """The server's result, with every message carried by ``engine``.

    Args:
        server: from a ``collect``.
        engine: who does not answer in time, or with an error, has dropped out.
        timeout: seconds, for each stage.
    """
    try:
        messages = next(server)
        while True:
            replies = engine.exchange(messages, timeout=timeout)
            messages = server.send({r.name: r.data for r in replies if r.data is not None})
    except StopIteration as ended:
        return ended.value
