"""What it costs to add floats that nobody may see: plain, by masks, under CKKS.

    python benchmarks/secure_sum.py [--clients 10] [--length 100000]

All participants run in this process, one after the other; seconds are measured around each answer
(a participant's) and between answers (the server's). Bytes are those of the messages, without what
a transport adds; orders are empty. One thread each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.secure.ckks import CkksClient, CkksKeys, CkksServer, CkksSettings
from sfumato.federated.secure.fixed_point import FixedPoint
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.secure.masking import MaskSettings, least_threshold
from sfumato.federated.secure.masking_client import MaskingClient
from sfumato.federated.secure.masking_server import MaskingServer
from sfumato.federated.wire import pack, unpack

Values = Mapping[str, NDArray[np.float64]]


@dataclass
class Costs:
    """Of one sum."""

    client: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    up: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    down: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    server: float = 0.0
    error: float = 0.0

    def row(self, name: str) -> str:
        """For the table: medians over those who answered to the end, and all together."""
        most = max(self.up.values())
        stayed = [n for n in self.client if self.up[n] > most / 2]
        cells = [
            f"{sum(self.client.values()):.3f}",
            f"{statistics.median(self.client[n] for n in stayed):.4f}",
            f"{self.server:.3f}",
            f"{statistics.median(self.up[n] for n in stayed):,.0f}",
            f"{statistics.median(self.down[n] for n in stayed):,.0f}",
            f"{self.error:.1e}",
        ]
        return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--clients", type=int, default=10)
    arguments.add_argument("--length", type=int, default=100_000)
    arguments.add_argument("--repeats", type=int, default=3, help="the fastest is shown")
    options = arguments.parse_args()
    names = [f"client{i:04}" for i in range(options.clients)]
    random = np.random.default_rng(0)
    values = {name: random.uniform(-1, 1, options.length) for name in names}
    ways: dict[str, Callable[[], Costs]] = {
        "plain, 64-bit floats": lambda: plain(values),
        "masks, 32 bits": lambda: masks(values, gone=0),
        "masks, 32 bits, two dropped": lambda: masks(values, gone=2),
        "CKKS": lambda: ckks(values),
    }
    print(f"Sum of {options.length:,} floats in [-1, 1] over {options.clients} clients")
    print()
    print(
        "| sum | clients, s | one client, s | server, s | up, bytes | down, bytes | largest error |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, way in ways.items():
        best = min(
            (way() for _ in range(options.repeats)),
            key=lambda costs: costs.server + sum(costs.client.values()),
        )
        print(best.row(name))


def plain(values: Values) -> Costs:
    costs, total = Costs(), 0.0
    for name, numbers in values.items():
        sent = timed(costs, name, lambda numbers=numbers: pack({}, {"values": numbers}))
        start = time.perf_counter()
        total = total + unpack(sent, most_bytes=len(sent))[1]["values"]
        costs.server += time.perf_counter() - start
        costs.up[name] = len(sent)
    costs.error = worst(total, values, list(values))
    return costs


def masks(values: Values, *, gone: int) -> Costs:
    names = list(values)
    length = len(values[names[0]])
    threshold = least_threshold(len(names), colluders=max(0, (len(names) - 1) // 3))
    agreed = MaskSettings(length, threshold, len(names), bits=32)
    grid = FixedPoint.finest(bits=32, bound=1.0, participants=len(names))
    keys = {name: IdentityKey.generate() for name in names}
    directory = Directory({name: key.public for name, key in keys.items()})
    clients = {name: MaskingClient(name, key, directory, agreed) for name, key in keys.items()}
    silent = {(name, 2) for name in names[:gone]}  # when all others have masks with them
    costs = Costs()

    def answer(name: str, message: bytes) -> bytes:
        return clients[name].answer(message, lambda order: grid.encode(values[name]))

    server = MaskingServer(directory, agreed).collect(names)
    result = play(costs, server, answer, silent)
    start = time.perf_counter()
    total = grid.decode(result.total)
    costs.server += time.perf_counter() - start
    costs.error = worst(total, values, result.survivors)
    return costs


def ckks(values: Values) -> Costs:
    names = list(values)
    agreed = CkksSettings(len(values[names[0]]), len(names), 1.0)
    keys = CkksKeys.generate()
    clients = {name: CkksClient(name, keys, agreed) for name in names}
    costs = Costs()

    def answer(name: str, message: bytes) -> bytes:
        return clients[name].answer(message, lambda order: values[name])

    result = play(costs, CkksServer(keys.public(), agreed).collect(names), answer, set())
    total = np.zeros(0)
    for name in names:  # the sum goes back to all, and each one opens it
        total = timed(costs, name, lambda name=name: clients[name].open(result.data))
        costs.down[name] += len(result.data)
    costs.error = worst(total, values, result.survivors)
    return costs


def play(
    costs: Costs,
    server: Any,
    answer: Callable[[str, bytes], bytes],
    silent: set[tuple[str, int]],
) -> Any:
    """Drives the server; those in ``silent`` do not answer from that stage on."""
    replies: dict[str, bytes] | None = None
    gone: set[str] = set()
    stage = 0
    while True:
        start = time.perf_counter()
        try:
            messages = next(server) if replies is None else server.send(replies)
        except StopIteration as ended:
            costs.server += time.perf_counter() - start
            return ended.value
        costs.server += time.perf_counter() - start
        gone |= {name for name, at in silent if at == stage}
        replies = {}
        for name, message in messages.items():
            costs.down[name] += len(message)
            if name not in gone:
                replies[name] = timed(
                    costs, name, lambda name=name, message=message: answer(name, message)
                )
                costs.up[name] += len(replies[name])
        stage += 1


def timed(costs: Costs, name: str, work: Callable[[], Any]) -> Any:
    start = time.perf_counter()
    result = work()
    costs.client[name] += time.perf_counter() - start
    return result


def worst(total: Any, values: Values, names: Sequence[str]) -> float:
    return float(np.abs(total - sum(values[name] for name in names)).max())


if __name__ == "__main__":
    main()
