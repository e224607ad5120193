"""What an extraction brings home: a copy, its price in queries, how it came about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from sfumato.attacks.targets import Scorer

__all__ = ["Round", "Stolen"]


@dataclass(frozen=True)
class Round:
    """One round of asking and fitting.

    Attributes:
        queries: asked so far.
        loss: of the copy on all answers so far: its mean divergence from them, in nats.
    """

    queries: int
    loss: float


@final
@dataclass(frozen=True, eq=False)
class Stolen:
    """A copy of a model. For the curator only.

    Attributes:
        predict: the copy: from inputs to a row of probabilities each (or a class each).
        attack: which one made it.
        shown: what the target showed, in words.
        queries: how many it took.
        stopped: whether the target's budget ended the attack before its plan was done.
        history: round by round, where there are rounds.
        facts: numbers of the attack's own.
        model: the copy as the attack keeps it: a linear model, a torch module, or None.
    """

    predict: Scorer
    attack: str
    shown: str
    queries: int
    stopped: bool = False
    history: tuple[Round, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict[str, float])
    model: Any = None

    def __str__(self) -> str:
        facts = "".join(
            f", {name.replace('_', ' ')} {value:.4g}" for name, value in self.facts.items()
        )
        end = "; stopped by the budget" if self.stopped else ""
        return f"{self.attack} from {self.shown}: {self.queries:,} queries{facts}{end}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the copy itself; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "attack": self.attack,
            "shown": self.shown,
            "queries": self.queries,
            "stopped": self.stopped,
            "history": [{"queries": one.queries, "loss": one.loss} for one in self.history],
            "facts": dict(self.facts),
        }
