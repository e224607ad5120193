"""What an operator may watch of a round. None of it is for records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from sfumato.federated.rounds import Traffic

__all__ = ["RoundFacts", "RoundLog", "nobody"]


@final
@dataclass(frozen=True)
class RoundFacts:
    """One round.

    Attributes:
        number: from 1 up.
        rounds: how many there will be.
        asked: to how many orders went.
        survivors: whose contributions are in the sum.
        refused: whose contributions were not taken, and why.
        traffic: bytes, and who did not answer.
        clip: C for the next round.
        used: whether the weights moved; not if too few took part.
        accuracy: on public rows, if it was tested.
        seconds: that it took.
    """

    number: int
    rounds: int
    asked: int
    survivors: int
    refused: dict[str, str]
    traffic: Traffic
    clip: float
    used: bool
    accuracy: float | None
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RoundFacts:
        """The inverse of :meth:`to_dict`."""
        return cls(**{**data, "traffic": Traffic(**data["traffic"])})


@final
class RoundLog:
    """Rounds as lines of JSON in a file of the operator's, for those who watch from elsewhere.

    Args:
        path: of the file; its folder is there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch(mode=0o600)

    def __call__(self, facts: RoundFacts) -> None:
        """One round more."""
        with self._path.open("a") as file:
            file.write(json.dumps(facts.to_dict()) + "\n")

    def read(self, first: int = 0) -> list[RoundFacts]:
        """All whole lines from ``first`` on."""
        lines = self._path.read_text().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        return [RoundFacts.from_dict(json.loads(line)) for line in whole[first:]]


def nobody(facts: RoundFacts) -> None:
    """Nobody watches."""
