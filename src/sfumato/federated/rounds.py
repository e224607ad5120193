"""One round, from the order to the sum: who was asked, who answered, who was refused and why."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.exchange import Engine
from sfumato.federated.federation import Federation
from sfumato.federated.noises import LocalNoise
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.wire import Malformed

__all__ = ["Collect", "Collected", "Traffic", "carry_out", "collect_plainly"]


@final
@dataclass(frozen=True, eq=False)
class Collected:
    """What came of a round's messages.

    Attributes:
        total: the sum of contributions; None if there is none.
        survivors: whose contributions are in it.
        refused: whose were not taken, and why.
        sealed: where sums are hidden, the encrypted sum instead.
    """

    total: NDArray[np.float64] | None
    survivors: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict[str, str])
    sealed: bytes = b""


Collect = Generator[Mapping[str, bytes], Mapping[str, bytes], Collected]
"""Yields messages by name, is sent the replies that came, returns the sum."""


@final
@dataclass
class Traffic:
    """What a round cost, and who did not answer; for the operator."""

    sent: int = 0
    received: int = 0
    silent: dict[str, str] = field(default_factory=dict[str, str])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"sent": self.sent, "received": self.received, "silent": dict(self.silent)}


def carry_out(collect: Collect, engine: Engine, timeout: float) -> tuple[Collected, Traffic]:
    """Plays a round over an engine, exchange by exchange."""
    traffic = Traffic()
    replies: Mapping[str, bytes] | None = None
    while True:
        try:
            messages = next(collect) if replies is None else collect.send(replies)
        except StopIteration as end:
            return end.value, traffic
        replies = _exchanged(engine, messages, timeout, traffic)


def _exchanged(
    engine: Engine, messages: Mapping[str, bytes], timeout: float, traffic: Traffic
) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    traffic.sent += sum(map(len, messages.values()))
    for reply in engine.exchange(messages, timeout=timeout):
        if reply.name not in messages or reply.name in found:
            continue  # not asked, or answered twice: the first answer stands
        if reply.data is None:
            traffic.silent[reply.name] = reply.error or "no answer"
        else:
            found[reply.name] = reply.data
            traffic.received += len(reply.data)
    return found


def collect_plainly(
    federation: Federation, order: Order, asked: Sequence[str], length: int
) -> Collect:
    """Contributions as they were sent: each checked, clipped again, and added up.

    Clipping again bounds what one who does not keep to the protocol can do. It changes nothing that
    an honest participant sends (but for one in 10^13 where she adds noise: see ``_reach``).
    """
    message = order.to_bytes()
    replies = yield dict.fromkeys(asked, message)
    total, reach = np.zeros(length), _reach(federation, order.clip, length)
    survivors: list[str] = []
    refused: dict[str, str] = {}
    for name in asked:
        if name not in replies:
            continue
        try:
            numbers = Contribution.from_bytes(replies[name], length).checked(order, length)
        except Malformed as error:
            refused[name] = str(error)
            continue
        total += federation.work.again_clipped(numbers, reach)
        survivors.append(name)
    return Collected(total, tuple(survivors), refused)


def _reach(federation: Federation, clip: float, length: int) -> float:
    """The longest contribution that an honest participant sends.

    C, and where she adds noise herself C + z C (sqrt(d) + 8) but for one in 10^14: the length of d
    normal numbers exceeds sqrt(d) + t with probability at most e^(-t^2 / 2).
    """
    if not isinstance(federation.noise, LocalNoise):
        return clip
    return clip * (1 + federation.noise.multiplier * (math.sqrt(length) + 8))
