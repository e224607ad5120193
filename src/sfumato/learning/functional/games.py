"""One round as a game for an audit: two neighbouring tables, and what is released of either.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = round_game(epsilon=1.0, coins=SeededCoins(1))
    >>> game.apart, game.noise.sensitivity.bound
    (1.99999..., 2.0)

The auditor makes up what is public besides. The first table has a record that the second has not,
or has with the other label; its slopes are all of what it may add, since a linear model of two
classes at weights of 0 turns them around with the label. Releases come from the code that a run
calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Sensitivity
from sfumato.learning.functional.clipping import UNITS
from sfumato.learning.functional.plan import FunctionalPlan
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.release import clipped_sums, noisy_sums
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["RoundGame", "round_game"]

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, int], ...]
"""Inputs of one number, and labels."""


@final
@dataclass(frozen=True, eq=False)
class RoundGame:
    """A round, and two neighbouring tables.

    Attributes:
        plan: of a run of one round.
        first, second: the tables.
        coins: where noise comes from.
    """

    plan: FunctionalPlan
    first: Rows
    second: Rows
    coins: Coins = SYSTEM

    @cached_property
    def _weights(self) -> list[Tensor]:
        return self.plan.topology.initial(seed=0)

    def __call__(self, table: Rows, count: int) -> Floats:
        """(count, dimension): so many independent releases, in multiples of C."""
        recipe = self.plan.recipe
        drawn = [
            np.concatenate([slopes, recipe.kappa * curvatures]) / recipe.clip
            for slopes, curvatures in (
                noisy_sums(self.plan, self._weights, *_tensors(table), self.coins)
                for _ in range(count)
            )
        ]
        return np.array(drawn)

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
        """What noise is added to, on either table, in multiples of C."""
        one, other = (
            clipped_sums(self.plan, self._weights, *_tensors(table)) / UNITS
            for table in (self.first, self.second)
        )
        return one, other

    @property
    def apart(self) -> float:
        """How far, in the norm of the noise."""
        order = 1 if self.plan.recipe.delta == 0 else 2
        return float(np.linalg.norm(self.centres[0] - self.centres[1], order))


def round_game(
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours | str = Neighbours.REPLACE_ONE,
    rows: int = 4,
    clip: float = 0.5,
    coins: Coins = SYSTEM,
) -> RoundGame:
    """The game in which a round shows most of one record.

    Args:
        epsilon: to meet.
        delta: of the guarantee; 0 asks for a pure one.
        neighbours: "replace-one" or "add-remove".
        rows: of the larger table.
        clip: C; any up to 2 is reached by the record.
        coins: where noise comes from; seeded in tests only.
    """
    validation.at_least("rows", rows, 1)
    recipe = FunctionalRecipe(
        epsilon, delta, Neighbours.parse(neighbours), curvature="none", clip=clip, rounds=1,
        origin="made up",
    )  # fmt: skip
    plan = FunctionalPlan(recipe, (1,), 2, rows)
    others = tuple((1.0, place % 2) for place in range(rows - 1))
    replaced = recipe.neighbours is Neighbours.REPLACE_ONE
    second = ((1.0, 0), *others) if replaced else others
    return RoundGame(plan, ((1.0, 1), *others), second, coins)


def _tensors(table: Rows) -> tuple[Tensor, Tensor]:
    inputs = torch.tensor([[x] for x, _ in table], dtype=torch.float64).reshape(-1, 1)
    return inputs, torch.tensor([label for _, label in table], dtype=torch.int64)
