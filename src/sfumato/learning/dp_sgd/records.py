"""The public record of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfumato.core.records import Record, versions
from sfumato.learning.dp_sgd.averaging import WeightAverage
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.secret_coins import ModelCoins

if TYPE_CHECKING:
    from sfumato.learning.dp_sgd.resuming import Resuming
    from sfumato.learning.dp_sgd.stepping import NoisyStep

__all__ = ["make"]


def make(
    plan: TrainingPlan,
    step: NoisyStep,
    charge: Charge,
    average: WeightAverage | None,
    resuming: Resuming,
    coins: ModelCoins,
) -> Record:
    """From the plan and public facts alone."""
    facts: dict[str, Any] = {
        "arithmetic": "floating point, ideal Gaussian assumed",
        "rounding_allowance": step.sum.rounding,
        "noise_source": step.noise.name,
        "coins_of_the_model": coins.source,
        "parameters": sum(p.numel() for p in step.parameters.values()),
        "optimizer": type(step.optimizer).__name__,
        "averaged": average is not None,
        "steps_lost": resuming.lost,
    }
    if charge.entry is not None:
        facts["ledger"] = charge.to_dict()
    return Record(
        "dp-sgd", {"plan": plan.to_dict()}, plan.event, plan.guarantee, resuming.private,
        facts=facts, software=versions("torch"),
    )  # fmt: skip
