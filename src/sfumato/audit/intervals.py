"""From counts to lower bounds, with a confidence that holds for every sample size.

Limits of rates are Clopper and Pearson's, which are exact (:mod:`sfumato.core.rates`).
"""

from __future__ import annotations

import math

from scipy.special import ndtri

from sfumato.core import validation
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.rates import lower_rate, upper_rate

__all__ = [
    "Rates",
    "epsilon_from_counts",
    "epsilon_from_rates",
    "gaussian_epsilon_from_counts",
    "mu_from_counts",
]

_DOWN = 1 - 1e-9  # an accountant rounds up, a lower bound must not

Rates = tuple[int, int]
"""Successes and trials."""


def epsilon_from_rates(inside: float, outside: float, delta: float) -> float:
    """The epsilon that an event with probabilities ``inside`` and ``outside`` shows: 0 or more.

    (epsilon, delta)-DP says inside <= e^epsilon outside + delta.
    """
    if inside <= delta:
        return 0.0
    if outside == 0:
        return math.inf
    return max(0.0, math.log((inside - delta) / outside))


def epsilon_from_counts(inside: Rates, outside: Rates, delta: float, confidence: float) -> float:
    """A lower bound on epsilon from how often an event happened on each of two neighbours.

    The event must have been fixed before the counts were made. Half of the error probability goes
    to each count.

    >>> round(epsilon_from_counts((900, 1000), (100, 1000), 0.0, 0.95), 3)
    1.99
    """
    alpha = (1 - validation.open_probability("confidence", confidence)) / 2
    return epsilon_from_rates(lower_rate(*inside, alpha), upper_rate(*outside, alpha), delta)


def mu_from_counts(inside: Rates, outside: Rates, confidence: float) -> float:
    """A lower bound on mu: no mechanism of smaller mu is as easily told apart.

    A mu-Gaussian-DP mechanism has Phi^-1(TPR) - Phi^-1(FPR) <= mu for every test (Dong, Roth and
    Su, arXiv:1905.02383, definition 2.6; Nasr et al., arXiv:2302.07956, for its use in audits).

    >>> round(mu_from_counts((691, 1000), (309, 1000), 0.95), 3)
    0.832
    """
    alpha = (1 - validation.open_probability("confidence", confidence)) / 2
    high, low = lower_rate(*inside, alpha), upper_rate(*outside, alpha)
    if high <= low:
        return 0.0
    return float(ndtri(high) - ndtri(low))


def gaussian_epsilon_from_counts(
    inside: Rates, outside: Rates, delta: float, confidence: float
) -> float:
    """Epsilon at ``delta`` of Gaussian noise that is told apart as easily.

    It refutes claims that come from Gaussian noise (mu-GDP), and is a lower bound on epsilon only
    for mechanisms whose trade-off curve is Gaussian, as DP-SGD's nearly is after many steps.
    """
    mu = mu_from_counts(inside, outside, confidence)
    return _DOWN * gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0
