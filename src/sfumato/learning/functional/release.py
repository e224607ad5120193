"""One round: the clipped sum and its noise, then a step made of them.

What :func:`noisy_sums` gives is a release. :func:`step_of` is post-processing: a noisy h may be
negative or near 0, where a parabola has no minimum or one far away, so that h counts as 0 at least,
the damping lambda is added, and no weight moves farther than the reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.draws import bernoulli
from sfumato.learning.functional.clipping import UNITS, Integers, held, unit_sums
from sfumato.learning.functional.expansion import expand
from sfumato.learning.functional.plan import FunctionalPlan

__all__ = ["Stepper", "clipped_sums", "noisy_sums"]

Floats = NDArray[np.float64]
_BLOCK = 4096  # records at a time; sums are exact, so that it does not matter


def clipped_sums(
    plan: FunctionalPlan, weights: Sequence[Tensor], inputs: Tensor, labels: Tensor
) -> Integers:
    """The sum of all records' clipped vectors, in units. Private; a function of the set of rows."""
    recipe = plan.recipe
    total = np.zeros(plan.dimension, dtype=np.int64)
    for x, y in zip(inputs.split(_BLOCK), labels.split(_BLOCK), strict=True):
        if len(x):
            found = expand(plan.topology, weights, x, y, recipe.curvature)
            total += unit_sums(found, recipe.clip, recipe.kappa, recipe.norm)
    return total


def noisy_sums(
    plan: FunctionalPlan,
    weights: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    coins: Coins = SYSTEM,
) -> tuple[Floats, Floats]:
    """One round's release: noisy sums of slopes, and of curvatures (none without them).

    Args:
        plan: which has the noise.
        weights: public.
        inputs: (n, inputs), private; any finite numbers. What is not finite counts as nothing.
        labels: (n,), private.
        coins: of the sample and of the noise; seeded in tests only.
    """
    rate = plan.recipe.sample_rate
    if rate < 1:
        entered = torch.from_numpy(bernoulli(len(labels), int(rate * 2**64), coins))
        inputs, labels = inputs[entered], labels[entered]
    sums = held(clipped_sums(plan, weights, inputs, labels))
    noisy = plan.mechanism.perturb(sums, coins=coins) * (plan.recipe.clip / UNITS)
    count = plan.topology.parameters
    return noisy[:count], noisy[count:] / plan.recipe.kappa


@final
@dataclass
class Stepper:
    """From releases to steps; knows nothing else.

    A step is u = clip(-rate g / (max(h, 0) + lambda q N + s), +-rho), with g and h the running
    means of what was released (``memory``), and s the noise's standard deviation on h: a curvature
    that is less than the noise is not known.

    Attributes:
        plan: of the run.
    """

    plan: FunctionalPlan
    _slopes: Floats = field(init=False, repr=False)
    _curvatures: Floats = field(init=False, repr=False)
    _weight: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._slopes = np.zeros(self.plan.topology.parameters)
        self._curvatures = np.zeros(self.plan.topology.parameters)

    def step_of(self, slopes: Floats, curvatures: Floats) -> Tensor:
        """How far each weight moves."""
        recipe, old = self.plan.recipe, self.plan.recipe.memory
        self._weight = old * self._weight + 1 - old
        self._slopes = old * self._slopes + (1 - old) * slopes
        known = curvatures if len(curvatures) else np.zeros_like(slopes)
        self._curvatures = old * self._curvatures + (1 - old) * known
        assert recipe.damping is not None  # a recipe fills it in
        floor = recipe.damping * recipe.sample_rate * self.plan.records
        if len(curvatures):
            floor += self.plan.noise_deviation / recipe.kappa
        bent = np.maximum(self._curvatures / self._weight, 0.0) + floor
        moved = -recipe.rate * (self._slopes / self._weight) / bent
        return torch.from_numpy(np.clip(moved, -recipe.reach, recipe.reach))
