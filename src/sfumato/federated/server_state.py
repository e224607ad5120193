"""What a coordinator must not lose: the weights after the last round that ended.

Written whole after every round. It holds released values and counters, and no coins: a resumed run
draws fresh ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from safetensors.numpy import load, save

from sfumato.federated.layout import Vector
from sfumato.learning.dp_sgd.started import counted_slots
from sfumato.learning.durable import write_whole
from sfumato.learning.journal import lots_taken

__all__ = ["JOURNAL", "ServerState", "rounds_noted"]

JOURNAL, _OLD_JOURNAL = "journal.jsonl", "rounds.journal"
_FILE, _HEADER = "server.safetensors", "sfumato"


@final
@dataclass
class ServerState:
    """After some rounds.

    Attributes:
        weights: the shared ones.
        velocity: of the server's momentum.
        clip: C, which may have adapted.
        attempts: rounds that were sent.
        completed: of them, those whose sum is in the weights.
        sealed: where sums are hidden, all of them together, encrypted; the weights stay as they
            were at first.
        curve: accuracies on public rows so far, by round.
    """

    weights: Vector
    velocity: Vector
    clip: float
    attempts: int = 0
    completed: int = 0
    sealed: bytes = b""
    curve: list[dict[str, float]] = field(default_factory=list[dict[str, float]])

    def step(self, update: Vector, rate: float, momentum: float) -> None:
        """Moves the weights by a released mean."""
        self.velocity = (momentum * self.velocity + update).astype(np.float32)
        self.weights = (self.weights + rate * self.velocity).astype(np.float32)
        self.completed += 1

    def save(self, folder: Path) -> None:
        """Durable when it returns."""
        numbers = {
            "clip": self.clip,
            "attempts": self.attempts,
            "completed": self.completed,
            "curve": self.curve,
        }
        sealed = np.frombuffer(self.sealed, np.uint8)
        arrays = {"weights": self.weights, "velocity": self.velocity, "sealed": sealed}
        write_whole(folder / _FILE, save(arrays, metadata={_HEADER: json.dumps(numbers)}))

    @classmethod
    def load(cls, folder: Path) -> ServerState | None:
        """The last one that was saved, or None."""
        path = folder / _FILE
        if not path.exists():
            return None
        data = path.read_bytes()
        arrays, size = load(data), int.from_bytes(data[:8], "little")
        held: dict[str, Any] = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_HEADER])
        sealed = arrays["sealed"].tobytes()
        return cls(arrays["weights"], arrays["velocity"], **held, sealed=sealed)


def rounds_noted(folder: Path) -> int:
    """How many rounds were sent, or may have been, by the journals in a folder."""
    return max(lots_taken(folder / JOURNAL), counted_slots(folder / _OLD_JOURNAL))
