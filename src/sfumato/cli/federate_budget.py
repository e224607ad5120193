"""The budget that a ledger needs for all rounds of a federation.

A ledger's gate is a filter over a grid of Rényi orders, so that requests may depend on answers. It
reads more than the accountant that a federation is calibrated by: a plan of epsilon 3 does not fit
into a budget of 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from sfumato.core.events import promises_nothing
from sfumato.federated.views import RELEASED, message_event, round_event
from sfumato.ledger.amounts import SATURATED, Vector
from sfumato.ledger.budget import Budget
from sfumato.ledger.charges import charge
from sfumato.ledger.gate import Gate, choose_orders

if TYPE_CHECKING:
    from sfumato.core.events import Event
    from sfumato.federated.federation import Federation

__all__ = ["Needed", "needed_budgets", "needed_epsilon"]

_LARGEST = 1e6
_DIGITS = 3


@final
@dataclass(frozen=True)
class Needed:
    """What one ledger needs.

    Attributes:
        whose: that of who serves, or a participant's own.
        epsilon: the smallest, to three digits; infinite if no budget is large enough.
        delta: the federation's.
        unit: that the budget must be of.
        neighbours: likewise.
    """

    whose: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "no budget is large enough for all rounds"
        return (
            f"needs a budget of epsilon {self.epsilon:g} for all rounds: sfumato ledger create "
            f"NAME --epsilon {self.epsilon:g} --delta {self.delta:g} --unit {self.unit} "
            f"--neighbours {self.neighbours}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        epsilon = "inf" if math.isinf(self.epsilon) else self.epsilon
        return {
            "whose": self.whose, "epsilon": epsilon, "delta": self.delta, "unit": self.unit,
            "neighbours": self.neighbours,
        }  # fmt: skip


def needed_budgets(federation: Federation) -> list[Needed]:
    """For who serves, and for a participant, where rounds promise something to whom they count."""
    events = {
        "ledger of who serves": round_event(federation, RELEASED),
        "ledger of a participant": message_event(federation),
    }
    return [
        Needed(
            whose,
            needed_epsilon(event, federation.rounds, federation.delta),
            federation.delta,
            event.unit_name,
            event.relation.value,
        )
        for whose, event in events.items()
        if not promises_nothing(event)
    ]


def needed_epsilon(event: Event, times: int, delta: float) -> float:
    """The smallest epsilon, to three digits, of a budget that lets ``event`` through so often."""
    high = 1e-3
    while not _fits(event, times, high, delta):
        high *= 2
        if high > _LARGEST:
            return math.inf
    # In steps of the last of three digits, by halves: whole numbers of steps.
    step = 10.0 ** (math.floor(math.log10(high)) - _DIGITS + 1)
    low, top = math.floor(high / 2 / step) - 1, math.ceil(high / step)
    while top - low > 1:
        middle = (low + top) // 2
        fits = middle > 0 and _fits(event, times, _neat(middle * step), delta)
        low, top = (low, middle) if fits else (middle, top)
    while not _fits(event, times, _neat(top * step), delta):
        top += 1  # the grid of orders depends on the budget: what fits is not quite monotone
    return _neat(top * step)


def _neat(value: float) -> float:
    return float(f"{value:.{_DIGITS + 1}g}")


def _fits(event: Event, times: int, epsilon: float, delta: float) -> bool:
    budget = Budget(epsilon, delta)
    orders = choose_orders(budget)
    one = charge(event, event.relation, orders)
    every = tuple(min(times * amount, SATURATED) for amount in one.orders)
    return Gate.of(budget, orders).fits(Vector(every, min(times * one.slack, SATURATED)))
