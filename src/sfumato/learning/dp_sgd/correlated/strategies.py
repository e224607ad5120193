"""How the noise of different steps is correlated: one frozen object, part of the plan.

With x_t the clipped sum of step t, a strategy is a lower-triangular matrix C with a positive
diagonal. What is released is C x + z with independent Gaussian z, row by row; multiplied by C^-1,
which anybody can do, it is

    x + C^-1 z:        each step's sum, with noise that takes back what earlier steps added.

Noise that cancels over time is small on *prefix sums* of gradients, which is what weights are.

================  ================================  ========================================
strategy          C                                 kept in memory, times the parameters
================  ================================  ========================================
IndependentNoise  the identity: DP-SGD              nothing
TreeNoise         tree aggregation, best estimates  a vector a level: log2 T
BandedNoise       Toeplitz with b bands             b - 1 vectors
BufferedNoise     Toeplitz, sums of falling powers  a vector a buffer
================  ================================  ========================================

Every C is scaled so that its longest column has norm 1. So one participation of one unit moves C x
by at most one clip norm, and the plan's noise multiplier is the noise on C x over that: what it
always was. Adaptive inputs are covered: each row's noise is fresh, and a row holds sums of steps up
to its own alone (Denisov et al., arXiv:2202.08312, theorem 2.1).

Starting afresh, after a crash or on purpose, makes C block-diagonal, each block a leading part of a
C like this one. Columns get shorter by it and those of different blocks are orthogonal, so that no
bound here grows: they hold wherever blocks begin and end.

Numbers that are found by a search (``BandedNoise(16)``, ``BufferedNoise(4)``) depend on the machine
in their last digits. A plan replaces them by what was found (:meth:`Correlation.resolved`), so that
they are in its JSON and its digest, and a run that goes on elsewhere has the same C. All of them
are single-precision numbers: sensitivities are of the very C that noise is drawn with.

    >>> round(BandedNoise.square_root(4).cost(steps=100, count=3, separation=4), 9)
    3.0
    >>> BandedNoise.square_root(4).cost(steps=100, count=3, separation=3) > 3  # columns overlap
    True
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.kinds import ByKind
from sfumato.learning.dp_sgd.correlated import buffers, toeplitz, tree

if TYPE_CHECKING:
    from sfumato.learning.dp_sgd.correlated.drawing import Recursion

__all__ = ["BandedNoise", "BufferedNoise", "Correlation", "IndependentNoise", "TreeNoise"]

Matrix = NDArray[np.float64]
_ABOVE = 1 + 1e-12  # sensitivities are rounded up
_MOST_BUFFERS = 8


class Correlation(ByKind, ABC, family=True):
    """How noise is correlated. Subclasses are frozen dataclasses named by ``kind`` in JSON."""

    @property
    def independent(self) -> bool:
        """Whether every step has noise of its own alone."""
        return self.reach == 1

    def resolved(self, steps: int) -> Correlation:
        """The same with every number filled in that would be chosen for a run of so many steps."""
        return self

    @property
    @abstractmethod
    def reach(self) -> float:
        """How many steps in a row a column of C takes up; infinite if all that follow."""

    @abstractmethod
    def cost(self, steps: int, count: int, separation: int) -> float:
        """The square of the sensitivity, over that of one participation: never below ``count``.

        Args:
            steps: of the whole run.
            count: how often one unit takes part at most.
            separation: how many steps later it does so again, exactly.

        Returns:
            At least max ||C u||^2 over u with rows of norm 1 at these steps and 0 elsewhere, and
            over all block-diagonal matrices of blocks of C.
        """

    @abstractmethod
    def prefix_variances(self, steps: int) -> Matrix:
        """For each prefix sum the variance of its noise, at noise multiplier and clip norm 1."""

    @abstractmethod
    def matrix(self, steps: int) -> Matrix:
        """C, dense: for short runs."""

    @abstractmethod
    def memory(self, steps: int) -> int:
        """How many vectors of the parameters' size are kept to draw noise."""

    @abstractmethod
    def recursion(self, steps: int) -> Recursion:
        """What draws C^-1 z for one parameter, step by step."""


@final
@dataclass(frozen=True)
class IndependentNoise(Correlation):
    """Fresh noise at every step: C is the identity, and the run is DP-SGD."""

    kind: ClassVar[str] = "independent"

    @property
    def reach(self) -> float:
        """1."""
        return 1

    def cost(self, steps: int, count: int, separation: int) -> float:
        """``count``: columns are orthogonal."""
        return float(count)

    def prefix_variances(self, steps: int) -> Matrix:
        """1, 2, 3, ..."""
        return np.arange(1.0, steps + 1)

    def matrix(self, steps: int) -> Matrix:
        """The identity."""
        return np.eye(steps)

    def memory(self, steps: int) -> int:
        """None."""
        return 0

    def recursion(self, steps: int) -> Recursion:
        """Noise as it is drawn."""
        from sfumato.learning.dp_sgd.correlated.drawing import Banded

        return Banded((1.0,), 1.0)


class _Toeplitz(Correlation, ABC):
    """C with one sequence of coefficients, none of them negative, shifted from step to step."""

    @abstractmethod
    def _series(self, steps: int) -> Matrix:
        """c_0 = 1, c_1, ... in a block of so many steps, before scaling."""

    def _scale(self, steps: int) -> float:
        """The norm of the longest column: fresh noise has so many times the plan's size."""
        return toeplitz.column_norm(self._series(steps))

    def cost(self, steps: int, count: int, separation: int) -> float:
        """``count`` if columns do not overlap, else the norm of the sum of them.

        See :func:`~sfumato.learning.dp_sgd.correlated.toeplitz.repeated_norm`; blocks that are cut
        have smaller products of columns.
        """
        if count == 1 or self.reach <= separation:
            return float(count)
        series = self._series(steps)
        norm = toeplitz.repeated_norm(series, count, separation, steps)
        return max(float(count), (norm / self._scale(steps)) ** 2 * _ABOVE)

    def prefix_variances(self, steps: int) -> Matrix:
        """The squares of the coefficients of A C^-1, summed up."""
        return toeplitz.prefix_variances(self._series(steps), steps) * self._scale(steps) ** 2

    def matrix(self, steps: int) -> Matrix:
        """C, dense."""
        return toeplitz.matrix(self._series(steps), steps) / self._scale(steps)


@final
@dataclass(frozen=True)
class BandedNoise(_Toeplitz):
    """A step's noise cancels some of the noise of the ``bands`` - 1 steps before it.

    Sensitivity. A column of C takes up ``bands`` steps, so a unit that takes part at least that
    many steps apart meets columns that are orthogonal: k participations move C x by sqrt(k) clip
    norms. That also lets Poisson sampling amplify, in turns: see :class:`CyclicPoissonLots`. Units
    that come back earlier are covered by the sum of the columns, whose entries are not negative.

    Attributes:
        bands: b, with 1 for independent noise.
        coefficients: c_0 .. c_(b-1), each at most the one before, none negative; used over c_0 and
            in single precision. By default those of about the least mean error of prefix sums over
            the run's steps.

    References: Choquette-Choo et al., arXiv:2306.08153; McKenna, arXiv:2405.15913; Kalinin and
    Lampert, arXiv:2405.13763.
    """

    kind: ClassVar[str] = "banded"
    bands: int
    coefficients: Sequence[float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "bands", validation.count("bands", self.bands))
        if self.coefficients is None:
            return
        given = tuple(validation.non_negative("coefficients", c) for c in self.coefficients)
        if len(given) != self.bands or given[0] <= 0:
            needed = f"{self.bands} numbers, one for each band, the first of them above 0"
            validation.fail("coefficients", needed, list(self.coefficients))
        if any(b > a for a, b in itertools.pairwise(given)):
            raise ValueError(
                "coefficients must not rise, or noise that is to be taken back may grow from step "
                f"to step, got {list(self.coefficients)!r}: put them in falling order, or leave "
                "them out"
            )
        object.__setattr__(self, "coefficients", given)

    @classmethod
    def square_root(cls, bands: int) -> BandedNoise:
        """The first coefficients of the square root of the matrix of prefix sums."""
        return cls(bands, tuple(toeplitz.square_root(validation.count("bands", bands)).tolist()))

    def resolved(self, steps: int) -> BandedNoise:
        """With its coefficients, over the first of them; 0 for bands beyond the last step."""
        series = np.zeros(self.bands)
        found = self._series(steps if self.coefficients is None else self.bands)
        series[: len(found)] = found
        return replace(self, coefficients=tuple(series.tolist()))

    @property
    def reach(self) -> float:
        """``bands``."""
        return self.bands

    def _series(self, steps: int) -> Matrix:
        found = self.coefficients or toeplitz.best_banded(self.bands, steps)
        return (np.array(found[:steps]) / found[0]).astype(np.float32).astype(np.float64)

    def memory(self, steps: int) -> int:
        """``bands`` - 1."""
        return min(self.bands, steps) - 1

    def recursion(self, steps: int) -> Recursion:
        """By forward substitution."""
        from sfumato.learning.dp_sgd.correlated.drawing import Banded

        return Banded(tuple(self._series(steps).tolist()), self._scale(steps))


@final
@dataclass(frozen=True)
class BufferedNoise(_Toeplitz):
    """Toeplitz coefficients that are sums of falling powers, of about the least mean error.

    Near the best Toeplitz strategy for a single pass, at the memory of a handful of steps. See
    :mod:`~sfumato.learning.dp_sgd.correlated.buffers`. Columns have no end, so there is no
    amplification by sampling; units that come back are covered by the norm of the sum of their
    columns, whose entries are not negative.

    Attributes:
        buffers: how many powers at most; 4 are enough for some ten thousand steps.
        theta: the factors by which they fall; with ``omega`` those of about the least mean error of
            prefix sums over the run's steps, by default.
        omega: their weights.

    References: Dvijotham et al., arXiv:2404.16706; McMahan, Xu and Zhang, arXiv:2408.08868.
    """

    kind: ClassVar[str] = "buffered"
    buffers: int = 4
    theta: Sequence[float] | None = None
    omega: Sequence[float] | None = None

    def __post_init__(self) -> None:
        found = validation.count("buffers", self.buffers)
        if found > _MOST_BUFFERS:
            validation.fail("buffers", f"at most {_MOST_BUFFERS}: more gain nothing", self.buffers)
        object.__setattr__(self, "buffers", found)
        if self.theta is None and self.omega is None:
            return
        theta, omega = (
            tuple(validation.non_negative(name, value) for value in given or ())
            for name, given in (("theta", self.theta), ("omega", self.omega))
        )
        if not 1 <= len(theta) == len(omega) <= found or max(theta) >= 1:
            needed = f"1 to {found} numbers below 1, and omega as many weights"
            validation.fail("theta", needed, (self.theta, self.omega))
        if not buffers.bounded((theta, omega)):
            needed = "weights whose sum of omega / (1 + theta) is below 1, or noise may grow"
            validation.fail("omega", f"{needed}: make them smaller, or leave them out", self.omega)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "omega", omega)

    def resolved(self, steps: int) -> BufferedNoise:
        """With its powers and their weights."""
        theta, omega = self._found(steps)
        return replace(self, theta=theta, omega=omega)

    def _found(self, steps: int) -> buffers.Buffers:
        if self.theta is None or self.omega is None:
            return buffers.best_buffers(self.buffers, steps)
        return buffers.in_single_precision((tuple(self.theta), tuple(self.omega)))

    @property
    def reach(self) -> float:
        """All steps that follow."""
        return math.inf

    def _series(self, steps: int) -> Matrix:
        return buffers.coefficients(self._found(steps), steps)

    def memory(self, steps: int) -> int:
        """One for each buffer."""
        return len(self._found(steps)[0])

    def recursion(self, steps: int) -> Recursion:
        """Buffer by buffer."""
        from sfumato.learning.dp_sgd.correlated.drawing import Buffered

        theta, omega = self._found(steps)
        return Buffered(theta, omega, self._scale(steps))


@final
@dataclass(frozen=True)
class TreeNoise(Correlation):
    """Tree aggregation: noise on the nodes of a binary tree over the steps.

    The released prefix sums are the best estimates from all complete nodes (Honaker's, from below).
    See :mod:`~sfumato.learning.dp_sgd.correlated.tree` for the matrix and the sensitivity.

    Attributes:
        restart: begin a new tree every so many steps: those of an epoch, so that units which come
            back meet another tree. None for one tree.

    Reference: Kairouz et al., "Practical and private (deep) learning without sampling or
    shuffling", arXiv:2103.00039.
    """

    kind: ClassVar[str] = "tree"
    restart: int | None = None

    def __post_init__(self) -> None:
        if self.restart is not None:
            object.__setattr__(self, "restart", validation.count("restart", self.restart))

    def _block(self, steps: int) -> int:
        return steps if self.restart is None else min(self.restart, steps)

    def _square(self, steps: int) -> float:
        """The square of the longest column's norm, before scaling."""
        return tree.column_square(tree.levels_for(self._block(steps)))

    @property
    def reach(self) -> float:
        """A tree, or all steps that follow."""
        return math.inf if self.restart is None else self.restart

    def cost(self, steps: int, count: int, separation: int) -> float:
        """``count`` if no tree holds a unit twice; else the lesser of two bounds.

        Columns have norms of at most 1, so the m of one tree have a sum of norm m at most, and
        trees are orthogonal: ``count`` times m. Or what the nodes hold
        (:func:`~sfumato.learning.dp_sgd.correlated.tree.repeated_square`).
        """
        if count == 1 or self.reach <= separation:
            return float(count)
        block = self._block(steps)
        columns = count * float(min(count, math.ceil(block / separation)))
        nodes = tree.repeated_square(tree.levels_for(block), count, separation)
        return min(columns, nodes / self._square(steps))

    def prefix_variances(self, steps: int) -> Matrix:
        """A tree's own, on top of what the trees before it ended with."""
        block, at = self._block(steps), np.arange(steps)
        own = tree.prefix_variances(block) * self._square(steps)
        return own[at % block] + own[-1] * (at // block)

    def matrix(self, steps: int) -> Matrix:
        """C, tree by tree."""
        block, found = self._block(steps), np.zeros((steps, steps))
        one = tree.matrix(block) / math.sqrt(self._square(steps))
        for start in range(0, steps, block):
            size = min(block, steps - start)
            found[start : start + size, start : start + size] = one[:size, :size]
        return found

    def memory(self, steps: int) -> int:
        """One for each level."""
        return tree.levels_for(self._block(steps))

    def recursion(self, steps: int) -> Recursion:
        """Node by node."""
        from sfumato.learning.dp_sgd.correlated.drawing import Tree

        weights = tuple(tree.node_weights(tree.levels_for(self._block(steps))))
        return Tree(weights, math.sqrt(self._square(steps)), self.restart)
