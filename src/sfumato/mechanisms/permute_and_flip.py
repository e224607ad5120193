"""Permute-and-flip: a private choice that is never worse than the exponential mechanism.

Walk through the candidates in random order; at each, stop with probability
exp(epsilon (s(o) - s*) / (2 Delta)), where s* is the best score. The best one always stops.

    >>> from sfumato.core import Sensitivity
    >>> from sfumato.mechanisms.exponential import Exponential
    >>> vote = Sensitivity(1.0, unit="person")
    >>> film = PermuteAndFlip(1.0, vote, monotone=True)
    >>> film.release([120, 31, 20], ["Alien", "Brazil", "Casablanca"]).value
    'Alien'
    >>> round(film.expected_error([3, 2, 0]), 4)
    0.2464
    >>> round(Exponential(1.0, vote, monotone=True).expected_error([3, 2, 0]), 4)
    0.3649
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.randomness import Coins
from sfumato.mechanisms.sampling import uniform_integers
from sfumato.mechanisms.sampling.flips import accept_exp
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.selection import Selection

__all__ = ["PermuteAndFlip", "permute_and_flip_law"]


@final
@dataclass(frozen=True)
class PermuteAndFlip(Selection):
    """One candidate, by permute-and-flip on the log weights of its score.

    Each candidate's coin is its own and is flipped at most once, so the first head in random order
    is a uniformly random one of all heads: flip every coin, then pick among the heads. The work
    does not depend on when a walk would have stopped.

    Formal guarantees, for the neighbours and unit of ``sensitivity``:

    * epsilon-DP. The law is that of report-noisy-max with exponential noise, hence its proof,
      including the monotone case (see :class:`sfumato.mechanisms.noisy_max.ReportNoisyMax`).
    * on the same scores, the expected error is at most that of the exponential mechanism with the
      same parameters, and up to two times smaller.

    Attributes:
        epsilon, sensitivity, monotone, default: see :class:`Selection`.

    Reference: McKenna and Sheldon, "Permute-and-Flip: A new mechanism for differentially private
    selection", arXiv:2010.12603; Ding et al., arXiv:2105.07260 (equality with noisy max).
    """

    @property
    def event(self) -> EpsilonDeltaEvent:
        """Pure epsilon-DP, and nothing better known for composition."""
        where = (self.sensitivity.neighbours, self.sensitivity.unit)
        return EpsilonDeltaEvent(self.epsilon, 0.0, *where)

    def _draw(self, log_weights: NDArray[np.float64], coins: Coins) -> int:
        flips = accept_exp(-log_weights, lambda i: Fraction(-log_weights[i]), Source(coins))
        heads = np.flatnonzero(flips)
        return int(heads[uniform_integers(len(heads), 1, coins)[0]])

    def _law(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return permute_and_flip_law(log_weights)

    def _depth(self, log_odds: float) -> float:
        return log_odds  # a candidate that wins has thrown a head, of probability e^w


def permute_and_flip_law(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pr[i] = p_i times the integral over t in [0, 1] of prod over j != i of (1 - t p_j), p = e^w.

    t is the place of i in the random order: each j stands before it with probability t, and did not
    stop there. The integrand is a polynomial, for which a Gauss-Legendre rule of half as many nodes
    as candidates is exact up to the rounding of floats.
    """
    heads = np.exp(log_weights - log_weights.max())
    nodes, rule = np.polynomial.legendre.leggauss(len(heads) // 2 + 1)
    passed = 1 - np.outer((nodes + 1) / 2, heads)  # by node and candidate, above 0
    return heads * (rule / 2 @ (passed.prod(axis=1, keepdims=True) / passed))
