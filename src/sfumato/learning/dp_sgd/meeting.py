"""Plans that meet a target: the least noise, or the most steps, for an epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from sfumato.accounting import Accountant, account, calibrate
from sfumato.learning.dp_sgd.clipping import Clipping
from sfumato.learning.dp_sgd.correlated.strategies import Correlation
from sfumato.learning.dp_sgd.schedules import NoiseSchedule

if TYPE_CHECKING:
    from sfumato.learning.dp_sgd.plan import TrainingPlan

__all__ = ["LEAST_NOISE", "calibrated", "least_noise", "lengthened"]

LEAST_NOISE = 1e-2
"""Noise multipliers below this hide nothing: one step is beyond epsilon 5000."""

_MOST_STEPS = 10**9


def calibrated(draft: TrainingPlan, clipping: Clipping, epsilon: float) -> TrainingPlan:
    """With the least noise that meets the target, whatever is clipped."""
    noise = calibrate(
        lambda z: replace(draft, noise_multiplier=z).event,
        epsilon,
        draft.delta,
        neighbours=draft.neighbours,
        accountant=draft.accountant,
        lowest=least_noise(draft.schedule),
    )
    return replace(draft, clipping=clipping, noise_multiplier=noise)


def lengthened(draft: TrainingPlan, correlation: Correlation, epsilon: float) -> TrainingPlan:
    """With the most steps that meet the target, and noise that is correlated for so many."""
    # The cost of columns that do not overlap is the same whatever their coefficients are.
    apart = correlation.independent or correlation.reach <= draft.lots.participation(1)[1]
    tried = draft.correlation if apart else correlation

    def cost(steps: int, accountant: Accountant) -> float:
        trial = replace(draft, steps=steps, accountant=accountant, correlation=tried)
        return account(
            trial.event, draft.delta, neighbours=draft.neighbours, accountant=accountant
        ).epsilon

    def fits_by(accountant: Accountant) -> Callable[[int], bool]:
        def fits(steps: int) -> bool:
            try:
                return cost(steps, accountant) <= epsilon
            except ValueError:  # lots that are cut use up delta, in so many steps
                return False

        return fits

    first = cost(1, draft.accountant)
    if first > epsilon:
        raise ValueError(
            f"noise_multiplier must be larger for epsilon {epsilon!r}, got "
            f"{draft.noise_multiplier!r}: one step alone costs {first:.4g}"
        )
    most = _most(fits_by(Accountant.RDP), 1)  # quick, and close from below
    if draft.accountant is Accountant.PLD:
        most = _most(fits_by(Accountant.PLD), most, 1.1)
    return replace(draft, steps=most, correlation=correlation)


def _most(fits: Callable[[int], bool], guess: int, factor: float = 2.0) -> int:
    """The largest number that fits, of those from 1, which does."""
    low, high = 1, guess + 1
    while fits(high):
        low, high = high, math.ceil(factor * high)
        if high > _MOST_STEPS:
            raise ValueError(
                f"steps must be given where not even {low} of them reach epsilon: add less noise, "
                "or ask for a smaller epsilon"
            )
    while high - low > 1:
        near = low == 1 and high > guess > low  # the guess itself, first
        middle = guess if near else (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def least_noise(schedule: NoiseSchedule) -> float:
    """A noise multiplier that is just above the least at every step."""
    return 1.001 * LEAST_NOISE / min(1.0, schedule.least)
