"""Report noisy max: add noise to every score, say who won, never by how much.

>>> from sfumato.core import Sensitivity
>>> date = ReportNoisyMax(1.0, Sensitivity(1.0, unit="person"), monotone=True)
>>> people_who_can = {"Monday": 14, "Tuesday": 95, "Friday": 31}
>>> date.release(people_who_can, ["Monday", "Tuesday", "Friday"]).value
'Tuesday'
>>> date.event
EpsilonDeltaEvent(epsilon=1.0, delta=0.0, neighbours=<Neighbours.ADD_REMOVE: 'add-remove'>,
                  unit='person')
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import EpsilonDeltaEvent, ExponentialEvent
from sfumato.core.randomness import Coins
from sfumato.mechanisms.exponential import softmax
from sfumato.mechanisms.permute_and_flip import permute_and_flip_law
from sfumato.mechanisms.sampling import noisy_argmax
from sfumato.mechanisms.selection import Selection

__all__ = ["Noise", "ReportNoisyMax"]


class Noise(StrEnum):
    """What is added to the scores."""

    EXPONENTIAL = "exponential"
    """One-sided; the same law as permute-and-flip, and the smallest error of the three."""
    LAPLACE = "laplace"
    """Two-sided, as in Dwork and Roth."""
    GUMBEL = "gumbel"
    """The same law as the exponential mechanism."""


@final
@dataclass(frozen=True)
class ReportNoisyMax(Selection):
    """The index of the largest of s(o) + noise, of scale 2 Delta / epsilon.

    Delta / epsilon if ``monotone``. Formal guarantee: epsilon-DP for the neighbours and unit of
    ``sensitivity``, of ideal continuous noise (the sampler decides the winner exactly).

    *Proof.* Fix the noise of all candidates but r, and let m be the largest noisy score among them.
    Then r wins if its own noise exceeds m - s(r). One step moves m by at most Delta and s(r) by at
    most Delta, so m - s(r) by at most 2 Delta; by at most Delta if all scores move the same way.
    For each of the three kinds of noise the tail Pr[noise > x] falls by at most a factor e^-t as x
    grows by t scales (its hazard rate is at most 1 / scale), so the probability that r wins falls
    by at most e^-epsilon. Average over the noise of the others.

    Attributes:
        noise: "exponential", "laplace" or "gumbel".
        epsilon, sensitivity, monotone, default: see :class:`Selection`.

    Reference: Dwork and Roth (2014), claim 3.9 (Laplace, counts); Ding et al., "The Permute-and-
    Flip Mechanism is Identical to Report-Noisy-Max with Exponential Noise", arXiv:2105.07260.
    """

    noise: Noise = Noise.EXPONENTIAL

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "noise", validation.choice("noise", self.noise, Noise))

    @property
    def event(self) -> EpsilonDeltaEvent | ExponentialEvent:
        """Pure epsilon-DP; with Gumbel noise also of bounded range."""
        where = (self.sensitivity.neighbours, self.sensitivity.unit)
        if self.noise is Noise.GUMBEL:
            return ExponentialEvent(self.epsilon, *where)
        return EpsilonDeltaEvent(self.epsilon, 0.0, *where)

    def _draw(self, log_weights: NDArray[np.float64], coins: Coins) -> int:
        # Log weights are scores in units of the noise's scale.
        return noisy_argmax(log_weights, self.noise.value, 1.0, coins)

    def _law(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.noise is Noise.GUMBEL:
            return softmax(log_weights)
        if self.noise is Noise.EXPONENTIAL:
            return permute_and_flip_law(log_weights)
        return _laplace_law(log_weights)

    def _depth(self, log_odds: float) -> float:
        if self.noise is not Noise.LAPLACE:
            return log_odds
        # A candidate g behind wins only if two Laplace noises differ by g: e^-g (2 + g) / 4. Solve
        # g = log_odds + ln((2 + g) / 4) by iteration from above, where every iterate suffices.
        depth = 2 * max(log_odds, 0.0) + 2
        for _ in range(100):
            depth = max(log_odds + math.log((2 + depth) / 4), 0.0)
        return depth


def _laplace_law(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pr[i wins] = integral of f(x - w_i) prod over j != i of F(x - w_j), for Laplace f, F.

    By Gauss-Legendre rules between the kinks, from 45 below the least log weight that matters to 45
    above the largest, which is 0.
    """
    lowest = max(math.floor(log_weights.min()), -300) - 45
    kinks = np.union1d(np.arange(lowest, 46, dtype=np.float64), log_weights[log_weights > lowest])
    nodes, rule = np.polynomial.legendre.leggauss(16)
    half = np.diff(kinks)[:, None] / 2
    x = (kinks[:-1, None] + half * (1 + nodes)).ravel()
    away = x - log_weights[:, None]
    log_density = -np.abs(away) - math.log(2)
    log_below = np.where(away < 0, log_density, np.log1p(-0.5 * np.exp(-np.abs(away))))
    integrand = np.exp(log_density - log_below + log_below.sum(axis=0))
    return integrand @ (half * rule).ravel()
