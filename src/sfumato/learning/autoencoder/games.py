"""A layer's release as a game for an audit: what it shows of one row, of a few.

The auditor makes up two neighbouring tables on which one row matters most, has the coefficients of
each released again and again, and looks at them. Sums, weights and noise are as in a run.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = layer_game(epsilon=1.0, coins=SeededCoins(1))
    >>> game(game.first, 3).shape
    (3, 9)
    >>> one, other = game.centres
    >>> bool(abs(one - other).sum() > 0.99 * game.release.mechanism.sensitivity.bound)
    True

Which tables. A release must be private for *any* encoder that is fixed beforehand, so that the game
chooses the codes as well: all 1. A replaced row goes from black, x = 0, to white, x = 1: the linear
part moves by all of d b (or sqrt(d b) in L2), the squares do not. A row that is added moves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from sfumato.core import validation
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.autoencoder.encoding import Floats
from sfumato.learning.autoencoder.releases import LayerRelease

__all__ = ["LayerGame", "Table", "layer_game"]

Table = tuple[tuple[float, ...], ...]
"""Of each row what all its inputs are, and what all its codes are."""


@final
@dataclass(frozen=True, eq=False)
class LayerGame:
    """A layer's release, and two neighbouring tables.

    Attributes:
        release: as a run has it.
        claim: what is promised.
        first, second: the tables.
        coins: where noise comes from.
    """

    release: LayerRelease
    claim: Guarantee
    first: Table
    second: Table
    coins: Coins = SYSTEM

    def __call__(self, table: Table, count: int) -> Floats:
        """So many independent releases, each all noisy numbers."""
        told = self._told(table)
        noise = self.release.mechanism
        return np.array([noise.perturb(told, coins=self.coins) for _ in range(count)])

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """What noise is added to, on either table: all of what tells them apart."""
        return self._told(self.first), self._told(self.second)

    def _told(self, table: Table) -> Floats:
        inputs = np.array([[x] * self.release.columns for x, _ in table])
        codes = np.array([[h] * self.release.width for _, h in table])
        shaped = inputs.reshape(-1, self.release.columns), codes.reshape(-1, self.release.width)
        return self.release.told(*shaped)


def layer_game(
    *,
    epsilon: float,
    delta: float = 0.0,
    neighbours: Neighbours = Neighbours.REPLACE_ONE,
    columns: int = 3,
    width: int = 2,
    rows: int = 3,
    unit: str = "record",
    coins: Coins = SYSTEM,
) -> LayerGame:
    """The game in which a layer's release shows most of one row.

    Args:
        epsilon: to meet.
        delta: to meet; 0 asks for Laplace noise.
        neighbours: "replace-one" or "add-remove".
        columns: inputs of the layer.
        width: codes of the layer.
        rows: of the larger table.
        unit: of the guarantee.
        coins: where noise comes from; seeded in tests only.
    """
    validation.positive("epsilon", epsilon)
    relation = Neighbours.parse(neighbours)
    if validation.delta("delta", delta):
        release = LayerRelease.normal(
            columns, width, rows, multiplier=least_multiplier(epsilon, delta),
            neighbours=relation, unit=unit,
        )  # fmt: skip
    else:
        release = LayerRelease.pure(
            columns, width, rows, epsilon=epsilon, neighbours=relation, unit=unit
        )
    others: Table = ((0.5, 0.5),) * (validation.at_least("rows", rows, 2) - 1)
    replaced = relation is Neighbours.REPLACE_ONE
    second = ((1.0, 1.0), *others) if replaced else others
    claim = Guarantee(epsilon, delta, relation, unit, "exact")
    return LayerGame(release, claim, ((0.0, 1.0), *others), second, coins)
