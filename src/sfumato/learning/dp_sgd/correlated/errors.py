"""How noisy prefix sums of gradients come out: what strategies are chosen by.

Weights under SGD are prefix sums of gradients, so the noise on prefix sums is a fair measure of
what noise does to training, before anything is trained or spent. It is stated as a standard
deviation, in clip norms, of each coordinate of the *sum* of gradients: over the mean and the
largest of all steps.

    >>> from sfumato.learning.dp_sgd import BufferedNoise, IndependentNoise
    >>> independent = prefix_error(IndependentNoise(), steps=100)
    >>> round(independent.mean, 2), round(independent.largest, 2)
    (7.11, 10.0)
    >>> round(prefix_error(BufferedNoise(), steps=100).mean, 2)
    2.32
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, final

import numpy as np

from sfumato.core import validation
from sfumato.learning.dp_sgd.correlated.strategies import BandedNoise, Correlation

if TYPE_CHECKING:
    from sfumato.core.neighbours import Neighbours
    from sfumato.learning.dp_sgd.plan import TrainingPlan

__all__ = ["PrefixError", "best_bands", "prefix_error"]


@final
@dataclass(frozen=True)
class PrefixError:
    """The noise on prefix sums, in clip norms.

    Attributes:
        mean: the root of the mean variance over all prefix sums.
        largest: the largest standard deviation.
    """

    mean: float
    largest: float


def prefix_error(
    correlation: Correlation, steps: int, noise_multiplier: float = 1.0
) -> PrefixError:
    """The noise that a run's prefix sums of gradients have.

    At equal epsilon, compare at each strategy's own noise multiplier: that of a plan.

    Args:
        correlation: the strategy.
        steps: of the run.
        noise_multiplier: the plan's.
    """
    z = validation.positive("noise_multiplier", noise_multiplier)
    variances = correlation.prefix_variances(validation.count("steps", steps))
    return PrefixError(z * float(np.sqrt(variances.mean())), z * float(np.sqrt(variances.max())))


def best_bands(
    size: float,
    population: int,
    *,
    epsilon: float,
    delta: float,
    epochs: float,
    neighbours: Neighbours | str = "add-remove",
) -> TrainingPlan:
    """The plan with as many bands as make prefix sums least noisy at this epsilon.

    More bands cancel more noise; but a step then draws from a smaller part of the data at a higher
    rate, and sampling amplifies less. Tried are 1, 2, 4, ... up to population / size; 1 is DP-SGD.
    They are compared by RDP, which is quick and ranks them alike; the plan's noise is exact.

    Args:
        size: the expected lot size.
        population: the declared number of units.
        epsilon: the guarantee to meet.
        delta: at which epsilon is stated.
        epochs: the length of the run.
        neighbours: the relation of the guarantee.

    Returns:
        A plan with :class:`CyclicPoissonLots`, a clip norm of 1, and as many groups as bands.
    """
    from sfumato.learning.dp_sgd.clipping import Flat
    from sfumato.learning.dp_sgd.plan import TrainingPlan
    from sfumato.learning.dp_sgd.streamed_lots import CyclicPoissonLots

    def plan_with(bands: int, accountant: str) -> TrainingPlan:
        return TrainingPlan.make(
            CyclicPoissonLots(size, population, bands), Flat(1.0), epsilon=epsilon, delta=delta,
            epochs=epochs, neighbours=neighbours, correlation=BandedNoise(bands),
            accountant=accountant,
        )  # fmt: skip

    def error_with(bands: int) -> float:
        plan = plan_with(bands, "rdp")
        return prefix_error(plan.correlation, plan.steps, plan.noise_multiplier).mean

    most = max(1, int(Fraction(population) / Fraction(size))).bit_length()
    return plan_with(min((2**k for k in range(most)), key=error_with), "pld")
