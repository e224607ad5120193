"""The exponential mechanism: answers that are not numbers.

What is the most popular film? Which date suits most people? Noise cannot be added to a film, but
each candidate o has a score s(D, o), and

    Pr[o]  ~  exp(epsilon s(D, o) / (2 Delta)),     Delta = max over o, D, D' of |s(D,o) - s(D',o)|

favours the good ones and is epsilon-DP. ``monotone=True`` drops the 2 where all scores move the
same way, as counts do when one person is added or removed:

    >>> from sfumato.core import Sensitivity
    >>> film = Exponential(1.0, Sensitivity(1.0, unit="person"), monotone=True)
    >>> films = ["Alien", "Brazil", "Casablanca"]
    >>> votes = {"Alien": 120, "Casablanca": 20, "not on the list": 999}
    >>> film.release(votes, films).value
    'Alien'
    >>> film.probabilities([2, 1, 0]).round(4).tolist()
    [0.6652, 0.2447, 0.09]
    >>> film.guarantee()
    Guarantee: epsilon 1, delta 0, add or remove one person

The formula is often printed without the 2 and with the same claim. :func:`printed_privacy_loss`
keeps that version as a specimen; it is 2 epsilon-DP:

    >>> round(printed_privacy_loss([0] + [1] * 999, [1] + [0] * 999, epsilon=1, sensitivity=1), 4)
    1.9977
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import ExponentialEvent
from sfumato.core.randomness import Coins
from sfumato.mechanisms.sampling import choose
from sfumato.mechanisms.selection import Selection, privacy_loss

__all__ = ["Exponential", "printed_privacy_loss", "softmax"]


@final
@dataclass(frozen=True)
class Exponential(Selection):
    """One candidate, with probability proportional to e^w for the log weights w of its score.

    Formal guarantees, for the neighbours and unit of ``sensitivity``:

    * epsilon-DP. One step moves every w by at most epsilon/2, so e^w by a factor e^(epsilon/2) and
      the sum of all e^w by as much: together e^epsilon. If ``monotone``, w moves by up to epsilon,
      but numerator and sum move the same way, so that the ratio moves by at most e^epsilon.
    * epsilon-bounded range, which composes better: w - w' spans an interval of length epsilon in
      both cases, and the sum shifts all losses alike.
    * exactly: the weights are computed without rounding (see :mod:`sfumato.mechanisms.selection`)
      and drawn by an exact sampler.

    ``score_gap(candidates, confidence)`` is theorem 3.11: with probability 1 - e^-t the chosen
    score is less than (2 Delta / epsilon) (ln candidates + t) below the best.

    Attributes:
        epsilon, sensitivity, monotone, default: see :class:`Selection`.

    Reference: McSherry and Talwar, "Mechanism Design via Differential Privacy" (FOCS 2007); Dwork
    and Roth (2014), theorems 3.10 and 3.11; Durfee and Rogers, arXiv:1905.04273 (bounded range).
    """

    @property
    def event(self) -> ExponentialEvent:
        """A choice of bounded range."""
        return ExponentialEvent(self.epsilon, self.sensitivity.neighbours, self.sensitivity.unit)

    def _draw(self, log_weights: NDArray[np.float64], coins: Coins) -> int:
        return choose(log_weights, coins)

    def _law(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return softmax(log_weights)

    def _depth(self, log_odds: float) -> float:
        return log_odds  # Pr[o] <= e^w(o), because the best candidate's e^w is 1


def softmax(log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities proportional to e^w."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def printed_privacy_loss(
    scores: Sequence[float],
    neighbour_scores: Sequence[float],
    epsilon: float,
    sensitivity: float,
) -> float:
    """**A specimen**: the privacy loss of Pr[o] ~ exp(epsilon s / Delta) on two score lists.

    This is the mechanism as lecture slides print it, with the claim "epsilon-DP". No mechanism here
    draws from it; the function says how much it would lose.

    Returns:
        max over o of |ln(Pr[o] / Pr'[o])|, up to 2 epsilon where epsilon was claimed.
    """
    rate = validation.positive("epsilon", epsilon) / validation.positive("sensitivity", sensitivity)

    def law(values: ArrayLike) -> NDArray[np.float64]:
        return softmax(rate * np.asarray(values, dtype=np.float64))

    return privacy_loss(law(scores), law(neighbour_scores))
