"""The best of a random number of private runs: what repeating and selecting costs.

    >>> from sfumato.core.events import dp_sgd
    >>> from sfumato.accounting import account
    >>> one = dp_sgd(noise_multiplier=1.7, sample_rate=0.01, steps=1_000)
    >>> best = selected_curve(one, Trials(mean=10))
    >>> print(account(one, delta=1e-5)); print(account(best, delta=1e-5))
    epsilon 0.7704, delta 1e-05, add or remove one record
    epsilon 1.816, delta 1e-05, add or remove one record

A number of runs K is drawn first, by private coins, from a law that is public. Each run draws its
hyper-parameters anew from a fixed list, trains, and is scored. The best run is released, with its
hyper-parameters and its score, and nothing else: not K, not the other runs, not their scores. That
costs two to three runs, however many there are on average, where a search that shows every score
costs all of them.

What is promised needs all of this:

- every run has the RDP of ``event``, whatever hyper-parameters it drew, its score included: scores
  on public rows are free, scores on private rows are releases that belong to the event;
- runs are independent, and of one law: no run looks at another's score, and none is made in another
  way than the others (such as one with fewer steps because it was cut off), though it cost less;
- the score is a total order of outcomes (ties are broken by a rule that does not look at data);
- K is a secret, and how long it takes tells it: see docs/threat-model.md on timing.

*Truncated negative binomial* K on 1, 2, ..., of shape eta: Pr[K = k] is proportional to
(1 - gamma)^k times a binomial coefficient (eta 1: geometric; eta 0: logarithmic). For orders
a, b > 1,

    v'(a) = v(a) + (1 + eta) ((1 - 1/b) v(b) + ln(1/gamma) / b) + ln E[K] / (a - 1).

*Poisson* K, which may be 0 (then nothing is released): if a run is (e, d)-DP with
e = ln(1 + 1/(a - 1)),

    v'(a) = v(a) + E[K] d + ln E[K] / (a - 1).

Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", arXiv:2110.03620,
theorems 2 and 6; Liu and Talwar, arXiv:1811.07971, have the idea. The tests compare with
dp-accounting's figures, and with the divergences of selected outcomes computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.optimize import brentq

from sfumato.accounting.dpa import DEFAULT_ORDERS, Floats
from sfumato.accounting.rdp import RdpVector, rdp_vector
from sfumato.core import validation
from sfumato.core.events import Event, RdpCurveEvent
from sfumato.core.randomness import SYSTEM, Coins

__all__ = ["Trials", "selected_curve"]

_ROUNDING = 1e-12
_MOST = 1_000_000


@final
@dataclass(frozen=True)
class Trials:
    """How many runs: a law on whole numbers, public; the number itself is a secret.

    Attributes:
        mean: E[K], above 1.
        shape: eta of a truncated negative binomial, 0 or more: 1 is geometric, 0 logarithmic (more
            often one run, at times very many; the cheapest); infinite for a Poisson law, which is
            the most regular, and may be 0.
    """

    mean: float
    shape: float = 1.0

    def __post_init__(self) -> None:
        mean = validation.finite("mean", self.mean)
        if not 1 < mean <= _MOST:
            validation.fail("mean", f"above 1, and at most {_MOST} runs", self.mean)
        if math.isnan(self.shape) or self.shape < 0:
            validation.fail("shape", "0 or more, or infinite for a Poisson law", self.shape)

    @property
    def poisson(self) -> bool:
        """Whether it is that law, under which there may be no run at all."""
        return math.isinf(self.shape)

    @property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial that has this mean, or hardly more."""
        found = brentq(lambda x: _mean(self.shape, math.exp(x)) - self.mean, -60.0, -1e-12)
        return math.exp(float(found)) * (1 - 1e-9)

    def draw(self, coins: Coins = SYSTEM) -> int:
        """K, by inversion of a 64-bit uniform number: never tell it."""
        return self._at((int(coins.words(1)[0]) + 0.5) / 2.0**64)

    @property
    def nearly_most(self) -> int:
        """A number that K exceeds once in a million times; public, as the law is."""
        return self._at(1 - 1e-6)

    def _at(self, uniform: float) -> int:
        k, probability, ratio = self._law()
        total = probability
        while total < uniform and probability > 0:
            k += 1
            probability *= ratio(k)
            total += probability
        return k

    def _law(self) -> tuple[int, float, Callable[[int], float]]:
        """The least K, its probability, and Pr[K = k] over Pr[K = k - 1]."""
        if self.poisson:
            return 0, math.exp(-self.mean), lambda k: self.mean / k
        gamma, eta = self.gamma, self.shape
        scale = -math.log(gamma) if eta == 0 else math.expm1(-eta * math.log(gamma)) / eta
        return 1, (1 - gamma) / scale, lambda k: (1 - gamma) * (k - 1 + eta) / k


def _mean(eta: float, gamma: float) -> float:
    """E[K] of the truncated negative binomial."""
    if eta == 0:
        return (1 / gamma - 1) / -math.log(gamma)
    return eta * (1 - gamma) / (gamma * -math.expm1(eta * math.log(gamma)))


def selected_curve(event: Event, trials: Trials) -> RdpCurveEvent:
    """What the best of ``trials`` runs of ``event`` tells, and no other run.

    Args:
        event: one run, its score included.
        trials: the law of their number.

    Raises:
        ValueError: for an event whose RDP holds only outside of an event of probability delta, or
            that has none.
    """
    one = rdp_vector(event, event.relation, DEFAULT_ORDERS)
    if one.slack > 0:
        validation.fail("event", "a run with an RDP and no delta beside it", event.kind)
    orders = np.asarray(one.orders)
    if trials.poisson:
        mean, extra = trials.mean, _poisson(one, trials.mean)
    else:
        gamma = trials.gamma
        mean, extra = _mean(trials.shape, gamma), _binomial(one, trials.shape, gamma)
    values = one.values + extra + math.log(mean) / (orders - 1)
    values = np.minimum.accumulate(values[::-1])[::-1]  # a divergence grows with its order
    kept = np.isfinite(values)
    if not kept.any():
        validation.fail("event", "a run with a finite RDP", event.kind)
    found = [float(v) * (1 + _ROUNDING) for v in values[kept]]
    return RdpCurveEvent(
        tuple(orders[kept].tolist()), tuple(found), False, event.relation, event.unit_name
    )


def _binomial(one: RdpVector, eta: float, gamma: float) -> float:
    orders = np.asarray(one.orders)
    terms = (1 - 1 / orders) * one.values - math.log(gamma) / orders
    return (1 + eta) * float(np.min(terms))


def _poisson(one: RdpVector, mean: float) -> Floats:
    """E[K] times the delta of one run at e = ln(1 + 1/(a - 1)), order by order."""
    orders = np.asarray(one.orders)
    targets = np.log1p(1 / (orders - 1))
    return mean * np.array([_delta(orders, one.values, float(e)) for e in targets])


def _delta(orders: Floats, values: Floats, epsilon: float) -> float:
    """The delta that the RDP proves at ``epsilon``: proposition 12 of arXiv:2004.00010.

    Min over orders a of e^((a - 1)(v - epsilon)) (1 - 1/a)^a / (a - 1).
    """
    logs = (orders - 1) * (values - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    return min(1.0, math.exp(min(0.0, float(np.min(logs)))))
