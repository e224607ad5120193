"""What a server takes in from the network: bytes, seconds and connections.

>>> Limits().most_message == 64 * 2**20
True
>>> Limits.from_json(Limits(idle=5.0).to_json()).idle
5.0
>>> Limits(most_strangers=2000)
Traceback (most recent call last):
ValueError: most_strangers must be at most most_connections (1024), got 2000
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import final

from sfumato.core import validation

__all__ = ["Limits"]


@final
@dataclass(frozen=True)
class Limits:
    """Of the server's door. A stranger is a connection whose key has not been proved yet.

    Attributes:
        most_message: bytes of one participant's message, and of any request.
        most_connections: open at a time, of everybody.
        most_strangers: of those, before they have proved a registered key. When more come, the
            oldest stranger from the address with the most of them is closed.
        admission: seconds in which a connection must have done so.
        idle: seconds without a byte, in the middle of a request, after which it is closed.
    """

    most_message: int = 64 * 2**20
    most_connections: int = 1024
    most_strangers: int = 64
    admission: float = 10.0
    idle: float = 60.0

    def __post_init__(self) -> None:
        validation.count("most_message", self.most_message)
        validation.count("most_connections", self.most_connections)
        validation.count("most_strangers", self.most_strangers)
        if self.most_strangers > self.most_connections:
            validation.fail(
                "most_strangers",
                f"at most most_connections ({self.most_connections})",
                self.most_strangers,
            )
        validation.positive("admission", self.admission)
        validation.positive("idle", self.idle)

    def to_json(self) -> str:
        """For the server's process."""
        return json.dumps(asdict(self), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Limits:
        """From :meth:`to_json`."""
        return Limits(**json.loads(text))
