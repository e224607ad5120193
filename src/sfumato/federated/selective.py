"""Distributed selective SGD: a participant uploads a few noisy gradients, at their true epsilon.

Shokri and Shmatikov (CCS 2015) let each participant train on her own data and upload only some of
her gradients, chosen by the sparse vector technique. Their epsilon is one *for each parameter*.
This module runs the same idea and states what an upload, and a whole training, costs.

    >>> from sfumato.core import SeededCoins
    >>> sharing = SelectiveSharing.from_paper(
    ...     1.0, parameters=105_506, share=0.01, bound=0.001, threshold=0.0001, uploads=10
    ... )
    >>> sharing.uploaded, sharing.paper_epsilon
    (1055, 1.0)
    >>> sharing.upload_guarantee()
    Guarantee: epsilon 1055, delta 0, replace one participant
    >>> sharing.true_epsilon(1e-5)
    10550.0

What a participant does, in each round:

    >>> small = SelectiveSharing(200.0, parameters=6, share=0.5, bound=1.0, threshold=0.5)
    >>> gradient = [0.9, 0.0, -0.8, 0.1, float("nan"), 0.7]
    >>> indices, values = small.select_and_perturb(gradient, SeededCoins(4))   # tests only: coins
    >>> indices.tolist(), values.dtype, bool((abs(values) <= 1.0).all())
    ([0, 2, 5], dtype('float32'), True)

The method is here to be compared with. Clipping a whole update in L2 and adding Gaussian noise
costs far less at the same accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.accounting.account import account
from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, Event, repeat
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.private_values import as_bounded
from sfumato.mechanisms.sampling import discrete_laplace, permutation

__all__ = ["SelectiveSharing"]

_SELECTING = Fraction(8, 9)
_ANSWERING = Fraction(2, 9)  # spent at half: 8/9 + 1/9 = 1
_LARGEST_SCALE = 2.0**50  # what the sampler allows: noise far inside 64-bit integers
_FINEST = 2**40

Indices = NDArray[np.int64]
Values = NDArray[np.float32]
_Levels = NDArray[np.int64]


@final
@dataclass(frozen=True)
class SelectiveSharing:
    """What one participant uploads, and what that tells about her.

    A gradient is bounded to [-gamma, gamma], number by number, and written in whole steps of
    gamma / N: sizes k = floor(N |g| / gamma) in 0..N, values v = round(N g / gamma) in -N..N. With
    c uploads, eps1 = 8/9 epsilon and eps2 = 2/9 epsilon, parameters are asked in random order:

        rho ~ discrete Laplace of scale 2 c N / eps1, afresh after every acceptance;
        nu ~ discrete Laplace of scale 4 c N / eps1, afresh for every comparison;
        accepted if k + nu >= floor(N tau / gamma) + rho; then it is uploaded as
        v + discrete Laplace of scale 4 c N / eps2, afresh, bounded to -N..N again,

    until c were accepted, or each was asked ``passes`` times.

    Formal guarantee: one upload (``select_and_perturb``) is epsilon-DP; ``uploads`` of them compose
    to ``guarantee(delta)``, even if each gradient depends on all earlier uploads of everybody.
    *Neighbours*: replace-one. *Unit*: the participant, that is, all of her data at once, because
    every number is bounded, whatever it was computed from; for one of her records it is no
    better. *Observer*: the server and everybody who sees uploads; nobody's noise protects anybody
    else, no secure sum and no sampling is assumed. Which parameters were asked and refused is
    covered as well, and so is the time it takes to ask them.

    *Proof* (exact in integers). Between neighbours k moves by N at most and v by 2 N, whatever the
    rounding did, because both lie in those ranges. Fix what is seen until one acceptance; compare
    rho = r on D with rho = r + N on D': (i) Pr[rho = r] <= e^(eps1/2c) Pr[rho = r + N]; (ii) a
    refusal is at least as likely on D', for r + N - k' >= r - k; (iii) an acceptance needs a nu
    higher by 2 N at most: e^(2N eps1 / 4cN) = e^(eps1/2c). So e^(eps1/c) for each acceptance, and
    its value another e^(2N eps2 / 4cN) = e^(eps2/2c). At most c acceptances: eps1 + eps2/2 =
    (8/9 + 1/9) epsilon. (Refusals after the last acceptance cost half of one more eps1/c, which
    is only there if fewer than c were accepted.) Later questions may depend on earlier answers.
    The order is drawn without looking at the data.

    (Closer: a number that changes its sign moves less in size, so that size and value never move
    by N and by 2 N together; 17/18 of epsilon would do. This is not used.)

    *Difference from the paper.* It draws both noises for 2 gamma. A size, |g|, moves by gamma
    only, so its threshold noise is twice what is needed: with it epsilon/2 holds in place of
    epsilon (see :mod:`~sfumato.federated.selective_paper`).

    Attributes:
        epsilon: of one upload: the paper's number for a parameter, times c.
        parameters: how many the model has.
        share: theta_u, the fraction of them that is uploaded.
        bound: gamma: declared in public, never measured.
        threshold: tau, from 0 to gamma; smaller gradients are refused, about.
        uploads: T, how often she uploads in all.
        unit: what a participant is called.
        passes: how often a refused parameter is asked in one upload, at most; public.

    Reference: Shokri and Shmatikov, "Privacy-preserving deep learning" (CCS 2015); Dwork
    and Roth (2014), algorithm 3 and theorem 3.28; Lyu, Su and Li, arXiv:1603.01699.
    """

    epsilon: float
    parameters: int
    share: float
    bound: float
    threshold: float
    uploads: int = 1
    unit: str = "participant"
    passes: int = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        object.__setattr__(self, "parameters", validation.count("parameters", self.parameters))
        object.__setattr__(self, "share", validation.sample_rate("share", self.share))
        object.__setattr__(self, "bound", validation.positive("bound", self.bound))
        object.__setattr__(self, "threshold", validation.non_negative("threshold", self.threshold))
        object.__setattr__(self, "uploads", validation.count("uploads", self.uploads))
        object.__setattr__(self, "unit", validation.name("unit", self.unit))
        object.__setattr__(self, "passes", validation.count("passes", self.passes))
        if self.threshold > self.bound:
            validation.fail("threshold", f"at most the bound, {self.bound!r}", self.threshold)
        if not 2.0**-100 <= self.bound <= 2.0**100:
            validation.fail("bound", "from 2^-100 to 2^100, for values in float32", self.bound)
        if self.paper_epsilon > _FINEST:
            validation.fail("epsilon", f"at most 2^40 for each of {self.uploaded}", self.epsilon)
        if max(self.query_scale, self.answer_scale) > _LARGEST_SCALE:
            raise ValueError(
                f"epsilon must be larger for {self.uploaded} uploaded parameters, got "
                f"{self.epsilon!r}: the noise would not fit 64-bit integers"
            )

    @classmethod
    def from_paper(
        cls,
        per_parameter: float,
        *,
        parameters: int,
        share: float,
        bound: float,
        threshold: float,
        uploads: int = 1,
    ) -> Self:
        """From the number that the paper reports, epsilon / c for a parameter and an epoch."""
        per_parameter = validation.positive("per_parameter", per_parameter)
        uploaded = _uploaded(
            validation.count("parameters", parameters), validation.sample_rate("share", share)
        )
        return cls(per_parameter * uploaded, parameters, share, bound, threshold, uploads)

    # --- what it costs --------------------------------------------------------------------------

    @property
    def uploaded(self) -> int:
        """The c of the paper: how many parameters an upload has at most; one at least."""
        return _uploaded(self.parameters, self.share)

    @property
    def paper_epsilon(self) -> float:
        """What the paper reports: epsilon / c, for one parameter and one upload."""
        return self.epsilon / self.uploaded

    @property
    def upload_event(self) -> EpsilonDeltaEvent:
        """One upload."""
        return EpsilonDeltaEvent(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    @property
    def event(self) -> Event:
        """All uploads: what a ledger is to charge before the first."""
        return repeat(self.upload_event, self.uploads)

    def upload_guarantee(self) -> Guarantee:
        """Of one upload: pure epsilon-DP."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Of all uploads together: T epsilon at ``delta`` 0, optimal composition above."""
        return account(self.event, delta)

    def true_epsilon(self, delta: float = 0.0) -> float:
        """The epsilon of :meth:`guarantee`, beside ``paper_epsilon``."""
        return self.guarantee(delta).epsilon

    # --- noise, in grid steps -------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """N, the grid steps in a bound: much finer than the noise."""
        return 2**10 * 2 ** int(self.paper_epsilon).bit_length()

    @property
    def threshold_scale(self) -> float:
        """Of rho: 2 c N / eps1, rounded up."""
        return self._scale(2, _SELECTING)

    @property
    def query_scale(self) -> float:
        """Of nu: 4 c N / eps1, rounded up."""
        return self._scale(4, _SELECTING)

    @property
    def answer_scale(self) -> float:
        """Of a value's noise: 2 c (2 N) / eps2, rounded up."""
        return self._scale(4, _ANSWERING)

    def _scale(self, factor: int, part: Fraction) -> float:
        exact = factor * self.uploaded * self.steps / (part * Fraction(self.epsilon))
        return math.nextafter(float(exact), math.inf)

    # --- what a participant does ----------------------------------------------------------------

    def select_and_perturb(
        self, gradient: ArrayLike, coins: Coins = SYSTEM
    ) -> tuple[Indices, Values]:
        """One upload: which parameters, ascending, and their noisy values within the bound.

        Args:
            gradient: private, flat; what is not a finite number counts as 0.
            coins: where the noise comes from.

        Raises:
            ValueError: for another number of parameters than declared.
        """
        given = as_bounded(gradient, -self.bound, self.bound, default=0.0)
        if given.shape != (self.parameters,):
            validation.fail("gradient", f"flat, of {self.parameters} numbers", given.shape)
        relative = given / self.bound  # correctly rounded, so within -1..1
        chosen = self._select(np.floor(self.steps * np.abs(relative)).astype(np.int64), coins)
        exact = np.rint(self.steps * relative[chosen]).astype(np.int64)
        return chosen, self._answers(exact, coins)

    def _select(self, sizes: _Levels, coins: Coins) -> Indices:
        """Those accepted by the sparse vector technique, in ascending order."""
        limit = math.floor(self.steps * Fraction(self.threshold) / Fraction(self.bound))
        # One threshold for each acceptance; the noise of those not reached is never used.
        thresholds = limit + discrete_laplace(self.threshold_scale, self.uploaded, coins)
        accepted: list[int] = []
        left: Indices = np.arange(self.parameters)
        for _ in range(self.passes):
            order = left[permutation(len(left), coins)]
            noisy = sizes[order] + discrete_laplace(self.query_scale, len(order), coins)
            accepted += _above(order, noisy, thresholds[len(accepted) :])
            if len(accepted) == self.uploaded:
                break
            left = np.setdiff1d(left, np.asarray(accepted, np.int64), assume_unique=True)
        return np.sort(np.asarray(accepted, np.int64))

    def _answers(self, exact: _Levels, coins: Coins) -> Values:
        """Values with fresh noise, bounded again, as floats no larger than the bound."""
        noisy = exact + discrete_laplace(self.answer_scale, len(exact), coins)
        bounded = np.clip(noisy, -self.steps, self.steps) * (self.bound / self.steps)
        largest = np.float32(self.bound)
        if float(largest) > self.bound:
            largest = np.nextafter(largest, np.float32(0))
        return np.clip(bounded.astype(np.float32), -largest, largest)


def _above(order: Indices, noisy: _Levels, thresholds: _Levels) -> list[int]:
    """Those of ``order`` that are at least the next threshold, until thresholds run out."""
    found: list[int] = []
    waiting = iter(thresholds.tolist())
    threshold = next(waiting)
    for index, value in zip(order.tolist(), noisy.tolist(), strict=True):
        if value >= threshold:
            found.append(index)
            following = next(waiting, None)
            if following is None:
                break
            threshold = following
    return found


def _uploaded(parameters: int, share: float) -> int:
    """The c of theta_u; a share like 0.29 of 100 is 29, in spite of its float."""
    return min(parameters, max(1, math.floor(parameters * share * (1 + 2**-50))))
