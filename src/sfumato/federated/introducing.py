"""Participants by their own names, where a transport knows them by numbers.

A federation with secure sums knows its members by name: keys are theirs. Whoever is new is asked
once what she is called. The name is taken as told; where it matters, what follows is signed.

    >>> from sfumato.federated.in_process import InProcess
    >>> class Ward:
    ...     def answer(self, message: bytes) -> bytes:
    ...         return introduction(message, "ward") or b"hello"
    >>> engine = Introduced(InProcess({"17": Ward()}))
    >>> engine.participants()
    ['ward']
    >>> [(reply.name, reply.data) for reply in engine.exchange({"ward": b"?"})]
    [('ward', b'hello')]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import final

from sfumato.federated.exchange import Engine, Reply
from sfumato.federated.wire import Malformed, pack, unpack

__all__ = ["Introduced", "introduction"]

_HELLO = pack({"kind": "hello"})
_LONGEST = 200


def introduction(message: bytes, name: str) -> bytes | None:
    """The answer to being asked for a name; None if that was not the question."""
    return pack({"kind": "name", "name": name}) if message == _HELLO else None


@final
class Introduced:
    """An engine whose participants are called as they call themselves.

    Args:
        engine: that carries messages.
        patience: seconds to wait for a name.
    """

    def __init__(self, engine: Engine, *, patience: float = 120.0) -> None:
        self._engine, self._patience = engine, patience
        self._places: dict[str, str] = {}  # from names to what the engine calls them

    def participants(self) -> Sequence[str]:
        """Those who can be reached and have told their names, in the order of names."""
        there = list(self._engine.participants())
        known = {place: name for name, place in self._places.items()}
        new = [place for place in there if place not in known]
        for reply in self._engine.exchange(dict.fromkeys(new, _HELLO), timeout=self._patience):
            name = _name(reply)
            if name is None:
                continue
            old = self._places.get(name)
            if old is None or old not in there:  # she came back under another number
                self._places[name] = reply.name
        return sorted(name for name, place in self._places.items() if place in there)

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """As the engine does, by name."""
        names = {self._places[name]: name for name in messages if name in self._places}
        for name in messages:
            if name not in self._places:
                yield Reply(name, None, "not there")
        carried = {place: messages[name] for place, name in names.items()}
        for reply in self._engine.exchange(carried, timeout=timeout):
            yield replace(reply, name=names[reply.name])


def _name(reply: Reply) -> str | None:
    if reply.data is None:
        return None
    try:
        header, _ = unpack(reply.data, most_bytes=0)
    except Malformed:
        return None
    name = header.get("name")
    good = isinstance(name, str) and 0 < len(name) <= _LONGEST and header.get("kind") == "name"
    return name if good else None
