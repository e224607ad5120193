"""All rounds as a game for an audit: two neighbouring tables, and what is released of either.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = round_game(epsilon=1.0, coins=SeededCoins(1))
    >>> game.apart, game.noise.sensitivity.bound
    (1.99999..., 2.0)
    >>> game(game.first, 3).shape, round_game(epsilon=1.0, rounds=5)(game.first, 3).shape
    ((3, 4), (3, 20))

The auditor makes up what is public besides. The first table has a record that the second has not,
or has with the other label; its slopes are all of what it may add, since a linear model of two
classes turns them around with the label. Releases come from the code that a run calls.

Several rounds. With x = 1 and p the model's probability of class 1, labels 0 and 1 have the slopes
(p, -p) and (p - 1, 1 - p) for classes 1 and 0, of input and constant alike: clipped to C, they are
one vector and its opposite **whatever the weights are**, as long as neither is shorter than C. Here
no weight gets farther than 1/4 from 0, so that p is above 1/4 and slopes are longer than 1/2. So
every round moves by all of C, or 2 C, given all rounds before it; and the law of all that is
released is a product, whose ratios multiply (:attr:`RoundGame.log_ratios`, :attr:`RoundGame.mus`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Sensitivity
from sfumato.learning.functional.clipping import UNITS
from sfumato.learning.functional.plan import FunctionalPlan
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.release import Stepper, clipped_sums, noisy_sums
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["RoundGame", "round_game"]

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, int], ...]
"""Inputs of one number, and labels."""


_FARTHEST = 0.25  # from 0, of a weight after all rounds


@final
@dataclass(frozen=True, eq=False)
class RoundGame:
    """A run of some rounds, and two neighbouring tables.

    Attributes:
        plan: of the run.
        claim: what it promises.
        first, second: the tables.
        coins: where samples and noise come from.
    """

    plan: FunctionalPlan
    claim: Guarantee
    first: Rows
    second: Rows
    coins: Coins = SYSTEM

    @cached_property
    def _weights(self) -> list[Tensor]:
        return self.plan.topology.initial(seed=0)

    def __call__(self, table: Rows, count: int) -> Floats:
        """(count, rounds x dimension): so many independent runs, all of their noisy sums, over C.

        A round's weights are made of the rounds before it, as in a run.
        """
        inputs, labels = _tensors(table)
        return np.array([self._played(inputs, labels) for _ in range(count)])

    def _played(self, inputs: Tensor, labels: Tensor) -> Floats:
        plan, weights, stepper = self.plan, self._weights, Stepper(self.plan)
        seen: list[Floats] = []
        for _ in range(plan.rounds):
            slopes, curvatures = noisy_sums(plan, weights, inputs, labels, self.coins)
            seen += [slopes, plan.recipe.kappa * curvatures]
            steps = plan.topology.split(stepper.step_of(slopes, curvatures))
            weights = [layer + step for layer, step in zip(weights, steps, strict=True)]
        return np.concatenate(seen) / plan.recipe.clip

    @property
    def noise(self) -> Laplace | Gaussian:
        """What is added to :attr:`centres`."""
        made, known = self.plan.mechanism, self.plan.sensitivity
        unit = Sensitivity(
            known.bound / UNITS, known.norm, known.neighbours, known.unit, known.dimension
        )
        if isinstance(made, Laplace):
            return Laplace(made.scale / UNITS, unit)
        return Gaussian(made.sigma / UNITS, unit, made.delta)

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """What the first round's noise is added to, on either table, in multiples of C."""
        return self.centres_at(self._weights)

    def centres_at(self, weights: Sequence[Tensor]) -> tuple[Floats, Floats]:
        """The same of a round at these weights; their difference is that of the first round."""
        one, other = (
            clipped_sums(self.plan, weights, *_tensors(table)) / UNITS
            for table in (self.first, self.second)
        )
        return one, other

    @property
    def apart(self) -> float:
        """How far, in the norm of the noise; the same in every round."""
        order = 1 if self.plan.recipe.delta == 0 else 2
        return float(np.linalg.norm(self.centres[0] - self.centres[1], order))

    @property
    def log_ratios(self) -> tuple[float, ...]:
        """Of a pure guarantee: the largest log ratio of probabilities, of each round.

        Beyond all centres the density on one table is e^(apart / b) times that on the other; of a
        round that the record enters with probability q only, 1 - q + q e^(apart / b) times.
        """
        noise, rate = self.noise, self.plan.recipe.sample_rate
        if not isinstance(noise, Laplace):
            return ()
        loss = self.apart / noise.scale
        sampled = loss if rate == 1 else math.log1p(rate * math.expm1(loss))
        return (sampled,) * self.plan.rounds

    @property
    def normal(self) -> bool:
        """Whether sums have normal noise and no records are sampled, which has another law."""
        return isinstance(self.noise, Gaussian) and self.plan.recipe.sample_rate == 1

    @property
    def mus(self) -> tuple[float, ...]:
        """Of normal noise: how many standard deviations each round moves, if the record is in it.

        Numbers that move together are as one that moves by their distance.
        """
        noise = self.noise
        if not isinstance(noise, Gaussian):
            return ()
        return (self.apart / noise.sigma,) * self.plan.rounds


def round_game(
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
    rows: int = 4,
    rounds: int = 1,
    sample_rate: float = 1.0,
    clip: float = 0.5,
    unit: str = "record",
    coins: Coins = SYSTEM,
) -> RoundGame:
    """The game in which a run shows most of one record.

    Args:
        epsilon: of all rounds together.
        delta: of the guarantee; 0 asks for a pure one.
        neighbours: "replace-one" or "add-remove".
        rows: of the larger table.
        rounds: R.
        sample_rate: q; below 1 for add-remove only.
        clip: C, at most 1/2, so that the record reaches it in every round.
        unit: of the guarantee.
        coins: where samples and noise come from; seeded in tests only.

    Raises:
        ValueError: for what cannot be.
    """
    validation.at_least("rows", rows, 1)
    if validation.positive("clip", clip) > 0.5:
        validation.fail("clip", "at most 0.5, which the record reaches", clip)
    recipe = FunctionalRecipe(
        epsilon, delta, Neighbours.parse(neighbours), unit, curvature="none", clip=clip,
        rounds=rounds, sample_rate=sample_rate, reach=_FARTHEST / max(rounds, 1), origin="made up",
    )  # fmt: skip
    plan = FunctionalPlan(recipe, (1,), 2, rows)
    others = tuple((1.0, place % 2) for place in range(rows - 1))
    replaced = recipe.neighbours is Neighbours.REPLACE_ONE
    second = ((1.0, 0), *others) if replaced else others
    return RoundGame(plan, plan.guarantee, ((1.0, 1), *others), second, coins)


def _tensors(table: Rows) -> tuple[Tensor, Tensor]:
    inputs = torch.tensor([[x] for x, _ in table], dtype=torch.float64).reshape(-1, 1)
    return inputs, torch.tensor([label for _, label in table], dtype=torch.int64)
