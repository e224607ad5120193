"""Numbers as private labels: a prior, the best bins for it, and one report for each label.

    >>> import numpy as np
    >>> method = RegressionLabels(epsilon=2.0, lower=0, upper=10, points=11, histogram_share=0.2)
    >>> told = method.randomise(np.full(500, 3.2))
    >>> told.guarantee
    Guarantee: epsilon 2, delta 0, replace one label
    >>> len(told.reports), set(told.reports.tolist()) <= set(told.bins.values)
    (500, True)

The prior is a public guess (``randomise(labels, prior=...)``), or a histogram of the labels
themselves with discrete Laplace noise of scale 2 / eps_1: to replace a label moves two counts by
one. Then eps_1 is part of epsilon, and the reports have the rest: both are about the same labels,
so they add up.

Reference: arXiv:2212.06074, algorithm 3 (see :mod:`~sfumato.learning.label_dp.bins`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, Event, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.label_dp.bins import BinnedResponse, Loss, best_bins, checked_grid
from sfumato.learning.label_dp.top_k import LABEL, checked_unit
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.private_values import as_bounded

__all__ = ["RegressionLabels", "RegressionReports"]

_LEAST, _MOST = 2.0**-32, 100.0  # epsilon of a report that says anything, and of one that lies


@final
@dataclass(frozen=True, eq=False)
class RegressionReports:
    """What was released.

    Attributes:
        reports: a number for each label.
        bins: what they are reported by.
        prior: what the bins are best for: the public guess, or the noisy histogram.
        guarantee: of all of it.
        private: False if seeded test coins made the noise.
    """

    reports: NDArray[np.float64]
    bins: BinnedResponse
    prior: NDArray[np.float64]
    guarantee: Guarantee
    private: bool


@final
@dataclass(frozen=True)
class RegressionLabels:
    """How to randomise numbers between two public bounds, each of them once.

    Formal guarantee: epsilon-DP for replacing one label by another: the noisy histogram is
    (share epsilon)-DP, the reports have the rest, and the two compose.

    Attributes:
        epsilon: the guarantee of everything together.
        lower, upper: public bounds; labels outside count as the nearer one.
        points: of the grid from lower to upper, at most 512.
        loss: what a report should be close by: "squared" or "absolute".
        histogram_share: of epsilon for the histogram; 0 where the prior is a public guess.
        unit: "label", and nothing else.
    """

    epsilon: float
    lower: float
    upper: float
    points: int = 64
    loss: Loss = "squared"
    histogram_share: float = 0.0
    unit: str = LABEL

    def __post_init__(self) -> None:
        validation.positive("epsilon", self.epsilon)
        validation.interval("bounds", self.lower, self.upper)
        if validation.at_least("points", self.points, 2) > 512:
            validation.fail("points", "at most 512", self.points)
        validation.delta("histogram_share", self.histogram_share)
        checked_unit(self.unit)
        if self.epsilon > _MOST:
            validation.fail(
                "epsilon", f"at most {_MOST:g}, where lies are rarer than coins", self.epsilon
            )
        if self.loss not in ("squared", "absolute"):
            validation.fail("loss", "'squared' or 'absolute'", self.loss)
        checked_grid(self.grid, np.ones(self.points))
        if self.report_epsilon < _LEAST:
            validation.fail(
                "epsilon and histogram_share",
                "such that 2^-32 or more of epsilon is left for the reports",
                (self.epsilon, self.histogram_share),
            )
        if self.histogram_share:
            self._histogram  # noqa: B018  # or says why not

    @property
    def grid(self) -> NDArray[np.float64]:
        """Evenly spaced points, both bounds among them."""
        return np.linspace(self.lower, self.upper, self.points)

    @property
    def histogram_epsilon(self) -> float:
        """Of the histogram; 0 without one."""
        return self.histogram_share * self.epsilon

    @cached_property
    def report_epsilon(self) -> float:
        """Of the reports: the rest, rounded down."""
        rest = self.epsilon - self.histogram_epsilon
        while rest + self.histogram_epsilon > self.epsilon:
            rest = math.nextafter(rest, 0.0)
        return rest

    @cached_property
    def _histogram(self) -> DiscreteLaplace:
        moved = Sensitivity(2, Norm.L1, Neighbours.REPLACE_ONE, self.unit, self.points)
        return DiscreteLaplace.calibrate(moved, epsilon=self.histogram_epsilon)

    @property
    def event(self) -> Event:
        """All that is released, known beforehand: for a ledger, before the labels are read."""
        reports = EpsilonDeltaEvent(self.report_epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)
        if not self.histogram_share:
            return reports
        return compose(self._histogram.event, reports)

    @property
    def guarantee(self) -> Guarantee:
        """What that promises."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def randomise(
        self, labels: ArrayLike, prior: ArrayLike | None = None, *, coins: Coins = SYSTEM
    ) -> RegressionReports:
        """One report for each private label.

        Args:
            labels: numbers; what is none counts as the middle of the range.
            prior: a public guess of how probable each grid point is; even by default.
            coins: where the randomness comes from.

        Raises:
            ValueError: for a prior besides a histogram, or one that is none; before a label is
                read.
        """
        if self.histogram_share and prior is not None:
            raise ValueError(
                "prior must be left out with a histogram: set histogram_share=0, or leave it out"
            )
        guess = np.asarray(np.ones(self.points) if prior is None else prior, dtype=np.float64)
        checked_grid(self.grid, guess)
        numbers = self._bounded(labels)
        if self.histogram_share:
            guess = self.noisy_histogram(numbers, coins=coins)
        bins = self.bins_for(guess)
        reports = bins.perturb(numbers, coins=coins)
        return RegressionReports(reports, bins, guess, self.guarantee, coins.private)

    def bins_for(self, prior: ArrayLike) -> BinnedResponse:
        """The best bins for how probable each grid point is: public, or released before."""
        return best_bins(self.grid, prior, self.report_epsilon, self.loss)

    def noisy_histogram(self, labels: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """Counts of the nearest grid points with noise, none below 0; even if none is above.

        Formal guarantee: (histogram_share epsilon)-DP for replacing one label by another, which
        moves two counts by one. It is the first part of :attr:`event`, and may be drawn once.

        Args:
            labels: private numbers; what is none counts as the middle of the range.
            coins: where the randomness comes from.

        Raises:
            ValueError: without a share of epsilon for it; before a label is read.
        """
        if not self.histogram_share:
            validation.fail("histogram_share", "above 0 for a histogram", self.histogram_share)
        numbers = self._bounded(labels)
        step = (self.upper - self.lower) / (self.points - 1)
        nearest = np.rint((numbers - self.lower) / step).astype(np.int64)
        counts = np.bincount(nearest.clip(0, self.points - 1).ravel(), minlength=self.points)
        noisy = np.maximum(self._histogram.perturb(counts, coins=coins), 0).astype(np.float64)
        return noisy if noisy.any() else np.ones(self.points)

    def _bounded(self, labels: ArrayLike) -> NDArray[np.float64]:
        return as_bounded(labels, self.lower, self.upper, (self.lower + self.upper) / 2)
