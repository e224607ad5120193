"""Releases of an auto-encoder as a game for an audit: what they show of one row, of a few.

The auditor makes up two neighbouring tables on which one row matters most, has the coefficients of
each released again and again, and looks at them. Sums, weights and noise are as in a run.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = layer_game(epsilon=1.0, coins=SeededCoins(1))
    >>> game(game.first, 3).shape
    (3, 9)
    >>> one, other = game.centres
    >>> bool(abs(one - other).sum() > 0.99 * game.release.mechanism.sensitivity.bound)
    True
    >>> run = run_game(AutoEncoderRecipe(widths=(2,), head="none", rounds=2), columns=3)
    >>> run.claim, [round(mu, 4) for mu in run.mus]
    (Guarantee: epsilon 1, delta 1e-05, add or remove one record, [0.1895, 0.1895])

Which tables. A release must be private for *any* encoder that is fixed beforehand, so that the game
chooses the codes as well: all 1. A replaced row goes from black, x = 0, to white, x = 1: the linear
part moves by all of d b (or sqrt(d b) in L2), the squares do not. A row that is added moves both.

A run makes several releases, with noise by one plan (:func:`run_game`): `rounds` for each layer and
one of the classifier. Noise is independent, so that the law of all of them is a product. Encoders
are the auditor's in every round, which a run's own need not reach; budget, noise and sums are as in
a run. Where a row is added, all releases show most at once: its inputs and codes are 1, and a later
layer's inputs are codes. Where one is replaced, codes of the first layer that are 1 on both tables
leave later layers nothing to see, so that the first alone is played. The classifier sees the same
codes, and another label if a row is replaced; of its release only what noise is added to is known
exactly, for the way "functional". That of the way "objective" is drawn, and not computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.autoencoder.encoding import Floats
from sfumato.learning.autoencoder.planning import Head, RunPlan, planned
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.releases import LayerRelease
from sfumato.learning.erm.functional import Functional, exact_sums
from sfumato.learning.erm.losses import SimplexLogistic
from sfumato.learning.erm.solving import MOST_ROWS
from sfumato.learning.erm.tasks import Way
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["HeadGame", "LayerGame", "RunGame", "Table", "layer_game", "run_game"]

Table = tuple[tuple[float, ...], ...]
"""Of each row what all its inputs are, and what all its codes are; of a run also its label."""


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
        told = np.tile(self._told(table), (count, 1))
        return np.asarray(self.release.mechanism.perturb(told, coins=self.coins))

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """What noise is added to, on either table: all of what tells them apart."""
        return self._told(self.first), self._told(self.second)

    @property
    def loss(self) -> float:
        """How far they are apart, in the norm of the noise and over its scale."""
        return _loss(self.centres[0] - self.centres[1], self.release.mechanism)

    def _told(self, table: Table) -> Floats:
        inputs = np.array([[row[0]] * self.release.columns for row in table])
        codes = np.array([[row[1]] * self.release.width for row in table])
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


# --- a run's releases -----------------------------------------------------------------------------


@final
@dataclass(frozen=True, eq=False)
class HeadGame:
    """A run's classifier, and the same tables.

    Attributes:
        head: as a run has it.
        width: of the codes.
        first, second: the tables.
        coins: where noise comes from.
    """

    head: Head
    width: int
    first: Table
    second: Table
    coins: Coins = SYSTEM

    @cached_property
    def way(self) -> Way:
        """How it is fitted."""
        return self.head.estimator().plan(self.width, self.head.records)

    def __call__(self, table: Table, count: int) -> Floats:
        """(count, weights) of so many independent fits."""
        rows, labels, codes = self._arrays(table)
        made = (self.way.fit(rows, labels, codes, self.coins).ravel() for _ in range(count))
        return np.array(list(made))

    @property
    def loss(self) -> float | None:
        """How far what noise is added to is apart, over its scale; None for other ways.

        Of squares all entries count, each side of the diagonal: the monomials' weights are such
        that this is their norm (:class:`~sfumato.learning.erm.functional.Functional`).
        """
        way = self.way
        if not isinstance(way, Functional):
            return None
        one, other = (self._told(way, table) for table in (self.first, self.second))
        return _loss(one - other, way.mechanism)

    def _told(self, way: Functional, table: Table) -> Floats:
        rows, _, codes = self._arrays(table)
        most = MOST_ROWS * way.task.records
        squares, linear = exact_sums(rows, rows, most), exact_sums(rows, codes, most)
        weight = way.quadratic.bend / 2 if way.task.delta == 0 else way.quadratic.length
        return np.concatenate([weight * squares.ravel(), linear.ravel()])

    def _arrays(self, table: Table) -> tuple[Floats, NDArray[np.int64], Floats]:
        """Rows, labels and codes of labels, as a fit takes them."""
        values = np.array([[row[1]] * self.width for row in table]).reshape(-1, self.width)
        labels = np.array([int(row[2]) for row in table], dtype=np.int64)
        rows = self.head.estimator().scaling(self.width).rows(values)
        return rows, labels, SimplexLogistic(self.head.classes).codes[labels]


@final
@dataclass(frozen=True, eq=False)
class RunGame:
    """Releases of a run, and two neighbouring tables.

    Attributes:
        claim: what the run promises.
        layers: those releases of layers that are played.
        head: the classifier's; None for none.
        left_out: how many releases of later layers are not.
    """

    claim: Guarantee
    layers: tuple[LayerGame, ...]
    head: HeadGame | None
    left_out: int = 0

    @property
    def first(self) -> Table:
        """The first table."""
        return self.layers[0].first

    @property
    def second(self) -> Table:
        """The other."""
        return self.layers[0].second

    def __call__(self, table: Table, count: int) -> Floats:
        """So many independent runs, each all noisy numbers and the classifier's weights."""
        parts = [layer(table, count) for layer in self.layers]
        return np.hstack(parts if self.head is None else [*parts, self.head(table, count)])

    @property
    def losses(self) -> tuple[float, ...]:
        """How far each release moves, over the scale of its noise; where that is known."""
        of_head = None if self.head is None else self.head.loss
        return *(layer.loss for layer in self.layers), *(() if of_head is None else (of_head,))

    @property
    def log_ratios(self) -> tuple[float, ...]:
        """Of a pure guarantee: the largest log ratio of probabilities, of each release."""
        return self.losses if self.claim.delta == 0 else ()

    @property
    def normal(self) -> bool:
        """Whether all is normal noise on sums; weights of a perturbed objective are not."""
        return self.claim.delta > 0 and (self.head is None or self.head.loss is not None)

    @property
    def mus(self) -> tuple[float, ...]:
        """Of normal noise: how many standard deviations each release moves."""
        return () if self.claim.delta == 0 else self.losses


def run_game(
    recipe: AutoEncoderRecipe,
    *,
    columns: int = 3,
    rows: int = 3,
    records: int | None = None,
    classes: int = 2,
    coins: Coins = SYSTEM,
) -> RunGame:
    """The game in which the releases of a run of the functional way show most of one row.

    Args:
        recipe: of the run.
        columns: of a row.
        rows: of the larger table.
        records: the number of rows that a run declared; by default ``rows``.
        classes: how many.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for what cannot be, and for descent.
    """
    if recipe.way != "functional":
        validation.fail("way", "'functional', of which the releases are sums", recipe.way)
    validation.at_least("rows", rows, 2)
    validation.at_least("classes", classes, 2)
    plan = planned(recipe, columns, rows if records is None else records, classes)
    first, second = _tables(recipe.neighbours, rows)
    layers = tuple(
        LayerGame(release, plan.guarantee, first, second, coins)
        for release in _played(recipe, plan)
    )
    head = plan.head and HeadGame(plan.head, recipe.widths[-1], first, second, coins)
    left_out = len(plan.releases) - len(layers)
    return RunGame(plan.guarantee, layers, head, left_out)


def _played(recipe: AutoEncoderRecipe, plan: RunPlan) -> tuple[LayerRelease, ...]:
    """All releases of layers, or for replacements those of the first."""
    if recipe.neighbours is Neighbours.REPLACE_ONE:
        return plan.releases[: recipe.rounds]
    return plan.releases


def _tables(neighbours: Neighbours, rows: int) -> tuple[Table, Table]:
    """Inputs, codes and label of each row."""
    others: Table = ((0.5, 0.5, 0.0),) * (rows - 1)
    if neighbours is Neighbours.REPLACE_ONE:
        return ((0.0, 1.0, 0.0), *others), ((1.0, 1.0, 1.0), *others)
    return ((1.0, 1.0, 0.0), *others), others


def _loss(apart: Floats, noise: Gaussian | Laplace) -> float:
    """The L1 norm over Laplace's scale, or the L2 norm over the standard deviation."""
    if isinstance(noise, Laplace):
        return float(np.abs(apart).sum()) / noise.scale
    return float(np.linalg.norm(apart)) / noise.sigma
