"""Private linear models as a game for an audit: what a fit shows of one row, of a few.

The auditor makes up two neighbouring tables of a few rows on which one row matters most, has each
fitted again and again, and looks at what is released. Everything from the rows on is as in a run.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = way_game("output", epsilon=1.0, delta=1e-5, coins=SeededCoins(1))
    >>> game.first, game.second
    (((1.0, 1), (1.0, 1), (1.0, 0), (1.0, 0)), ((1.0, 0), (1.0, 1), (1.0, 0), (1.0, 0)))
    >>> game(game.first, 3).shape
    (3, 1)
    >>> one, other = game.centres
    >>> bool(abs(one - other)[0] > 0.99 * game.way.mechanism.sensitivity.bound)
    True

Which tables. There is one column, and every row is as long as rows may be. For the ways that take
any loss it is a rounded hinge, whose slope is -1 or 1 wherever a margin is below 1 - h = 1/2, and
the regularisation is so strong that all margins are, for all noise that is ever drawn: each row
then pushes the weight by its whole bound, and another label turns the push round. So output
perturbation and descent move by all of their sensitivity, and the tilted minimiser is the sum of
the pushes with the tilt's own noise on it, no determinant in it. What a weaker regularisation adds
to the price, the determinants, is not seen on these tables.

The functional way and the input way take logistic codes, -1/2 and 1/2. The one releases two sums of
which a replaced label moves one, or a row that is added both; the other releases noisy rows, so
that the rows are what is looked at, and the row changes its sign as well. For numbers as targets
the codes are the ends of their range, -1 and 1, and the polynomial is that of least squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.erm.functional import Functional, exact_sums
from sfumato.learning.erm.gamma_noise import EuclideanLaplace
from sfumato.learning.erm.local import LocalInput
from sfumato.learning.erm.losses import HuberHinge, SimplexLogistic
from sfumato.learning.erm.objective import ObjectiveTilt
from sfumato.learning.erm.output import Output
from sfumato.learning.erm.solving import MOST_ROWS, Objective, minimise
from sfumato.learning.erm.stochastic import BATCH, BoltOn
from sfumato.learning.erm.tasks import Quadratic, Task, Way
from sfumato.learning.erm.ways import way_names, way_of
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

__all__ = ["Law", "Rows", "WayGame", "way_game", "ways_for"]

Floats = NDArray[np.float64]
Rows = tuple[tuple[float, int], ...]
"""A table: of each row its one number and its class, 0 or 1."""

_HINGE, _LOGISTIC = HuberHinge(1, 0.5), SimplexLogistic(2)
_POLYNOMIAL, _SQUARES = Quadratic(0.25, 0.5, 0.5, 1.0), Quadratic(1.0, 1.0, 1.0, 2.0)
_BY_POLYNOMIAL = (Functional.name, LocalInput.name)
_BY_REPLACEMENT = (BoltOn.name, LocalInput.name)
_LEAST_STRENGTH, _STRENGTH = 200.0, 300.0  # the latter for each unit of noise
_FAR, _FAR_PURE = 14.0, 60.0  # scales of a tilt


@final
@dataclass(frozen=True, eq=False)
class Law:
    """The density of a weight on either table.

    Attributes:
        first, second: functions of an array of weights.
        support: outside of it is next to nothing.
        breaks: where a density has a kink.
    """

    first: Any
    second: Any
    support: tuple[float, float]
    breaks: tuple[float, ...]


@final
@dataclass(frozen=True, eq=False)
class WayGame:
    """A way of fitting, and two neighbouring tables.

    Attributes:
        way: as a run has it.
        first, second: the tables.
        coins: where noise comes from.
    """

    way: Way
    first: Rows
    second: Rows
    coins: Coins = SYSTEM

    def __call__(self, table: Rows, count: int) -> Floats:
        """So many independent releases: weights, or of the input way all noisy rows."""
        rows, targets, codes = _arrays(self.way, table)
        if isinstance(self.way, LocalInput):
            told = np.hstack([rows, codes])
            noise = self.way.mechanism
            return np.array([noise.perturb(told, coins=self.coins).ravel() for _ in range(count)])
        made = (self.way.fit(rows, targets, codes, self.coins).ravel() for _ in range(count))
        return np.array(list(made))

    @property
    def noise(self) -> Gaussian | Laplace | EuclideanLaplace | None:
        """What is added to :attr:`centres`; None for the objective way."""
        return getattr(self.way, "mechanism", None)

    @cached_property
    def centres(self) -> tuple[Floats, Floats]:
        """What noise is added to, on either table: all of what tells them apart.

        Raises:
            ValueError: for the objective way, whose noise is not added to the result.
        """
        one, other = (self._centre(table) for table in (self.first, self.second))
        return one, other

    def _centre(self, table: Rows) -> Floats:
        way = self.way
        rows, targets, codes = _arrays(way, table)
        if isinstance(way, Output):
            return minimise(Objective(way.accuracy, rows, targets)).ravel()
        if isinstance(way, BoltOn):  # all rows are in one batch, so that their order is nothing
            return way.last(rows, targets).ravel()
        if isinstance(way, LocalInput):
            return np.hstack([rows, codes]).ravel()
        if not isinstance(way, Functional):
            validation.fail("way", "one that adds noise to a result", way.name)
        most = MOST_ROWS * way.task.records
        squares, linear = exact_sums(rows, rows, most), exact_sums(rows, codes, most)
        weight = way.quadratic.bend / 2 if way.task.delta == 0 else way.quadratic.length
        return np.concatenate([weight * squares.ravel(), linear.ravel()])

    @cached_property
    def law(self) -> Law:
        """Of the objective way's exact minimiser, before a trace of noise is added to it.

        By the change of variables of :mod:`~sfumato.learning.erm.objective_privacy`: the density of
        the tilt that makes w the minimiser, times the curvature there.

        Raises:
            ValueError: for other ways.
        """
        way = self.way
        if not isinstance(way, ObjectiveTilt):
            validation.fail("way", "'objective' for the law of a minimiser", way.name)
        strength = way.regularisation * way.task.records
        far = len(self.first) + (_FAR_PURE if way.task.delta == 0 else _FAR) * way.tilt
        centres = (sum(2 * label - 1 for _, label in t) for t in (self.first, self.second))
        straight = 1 - _HINGE.width, 1 + _HINGE.width
        breaks = *(c / strength for c in centres), *straight, *(-edge for edge in straight)
        first, second = (_density(way, t, strength) for t in (self.first, self.second))
        return Law(first, second, (-far / strength, far / strength), breaks)


def ways_for(neighbours: Neighbours) -> tuple[str, ...]:
    """The ways that have a guarantee for these neighbours.

    >>> ways_for(Neighbours.ADD_REMOVE)
    ('objective', 'output', 'functional')
    """
    replaced = neighbours is Neighbours.REPLACE_ONE
    return tuple(name for name in way_names() if replaced or name not in _BY_REPLACEMENT)


def way_game(
    name: str,
    *,
    epsilon: float,
    delta: float,
    neighbours: Neighbours = Neighbours.REPLACE_ONE,
    rows: int = 4,
    unit: str = "record",
    numbers: bool = False,
    coins: Coins = SYSTEM,
) -> WayGame:
    """The game in which this way's fit shows most of one row.

    Args:
        name: of the way.
        epsilon: to meet.
        delta: of the guarantee; 0 asks for a pure one.
        neighbours: "replace-one" or "add-remove".
        rows: of the larger table, from 2 to 50.
        unit: of the guarantee.
        numbers: whether targets are numbers, as in regression, and not classes.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for what cannot be.
    """
    if validation.at_least("rows", rows, 2) > BATCH:
        validation.fail("rows", f"at most {BATCH}, of which one matters", rows)
    relation = Neighbours.parse(neighbours)
    if relation is Neighbours.ZERO_OUT:
        validation.fail("neighbours", "'replace-one' or 'add-remove'", relation.value)
    if name not in way_names():
        validation.fail("way", f"one of {', '.join(way_names())}", name)
    by_polynomial = name in _BY_POLYNOMIAL
    task = Task(
        _LOGISTIC if by_polynomial else _HINGE, rows, 1, epsilon, delta, relation, unit,
        quadratic=(_SQUARES if numbers else _POLYNOMIAL) if by_polynomial else None,
    )  # fmt: skip
    strength = _LEAST_STRENGTH + _STRENGTH * task.noisiness
    task = Task(task.loss, rows, 1, epsilon, delta, relation, unit, strength / rows, task.quadratic)
    one, *others = ((1.0, 1 if place < rows / 2 else 0) for place in range(rows))
    replaced = (-1.0 if name == LocalInput.name else 1.0, 0)
    without = relation is Neighbours.ADD_REMOVE
    second = tuple(others) if without else (replaced, *others)
    return WayGame(way_of(name, task), (one, *others), second, coins)


def _arrays(way: Way, table: Rows) -> tuple[Floats, NDArray[Any], Floats]:
    """Rows, targets and codes, as a fit takes them."""
    rows = np.array([[x] for x, _ in table])
    labels = np.array([label for _, label in table])
    targets = labels if way.task.loss == _LOGISTIC else 2.0 * labels[:, None] - 1
    codes = _LOGISTIC.codes[labels]
    return rows, targets, 2 * codes if way.task.quadratic == _SQUARES else codes


def _density(way: ObjectiveTilt, table: Rows, strength: float) -> Any:
    """Of the minimiser of the tilted objective."""
    rows, targets, _ = _arrays(way, table)

    def density(weights: Floats) -> Floats:
        slope, bend = np.zeros(len(weights)), np.full(len(weights), strength)
        for x, target in zip(rows[:, 0], targets, strict=True):
            z, same = x * weights[:, None], np.tile(target, (len(weights), 1))
            slope += x * way.task.loss.slopes(z, same)[:, 0]
            bend += x * x * way.task.loss.curvatures(z, same)[:, 0, 0]
        return _tilt_density(way, -slope - strength * weights) * bend

    return density


def _tilt_density(way: ObjectiveTilt, tilts: Floats) -> Floats:
    if way.task.delta == 0:
        return np.exp(-np.abs(tilts) / way.tilt) / (2 * way.tilt)
    return np.exp(-0.5 * (tilts / way.tilt) ** 2) / (way.tilt * math.sqrt(2 * math.pi))
