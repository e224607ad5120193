"""A specimen: a privacy filter that lets a request pass if *some* Rényi order still fits.

Limits. (alpha, B)-RDP gives (epsilon, delta)-DP for

    B = epsilon - ln(1 - 1/alpha) + ln(alpha delta) / (alpha - 1)

(Canonne, Kamath and Steinke, arXiv:2004.00010, proposition 12). At one order fixed in advance this
is a valid filter, however requests are chosen (Feldman and Zrnic, arXiv:2008.11193). Here the order
may depend on the answers, and each order's limit uses all of delta.

The attack. Let L be the privacy loss so far.

1. Release one number with Gaussian noise of multiplier 1. It costs alpha / 2 at every order.
2. For each order let r be what is left of its limit, and take a coin that lands heads with
   probability p on the one data set and p e^-t on its neighbour, where

       t = epsilon - L + ln(alpha / (alpha - 1)),
       p = (e^((alpha - 1) r) - 1) / (e^((alpha - 1) t) - 1),    at most 1 - e^-r.

   It costs r at order alpha, and heads bring the loss to where the conversion
   is tight. Ask for the coin of the order that adds most to delta *given the answer so far*.

Were the order fixed, the expected gain would be delta at most; at epsilon 10, delta 1e-5 and order
3 it is 0.999 delta. The best of the gains, picked after the first answer, has an expectation of 1.7
delta. (That filters which look at whole privacy curves are not free either: Regehr et al., "Privacy
filters are captured by residues", arXiv:2602.15815.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sfumato.audit.exact import audit_finite, hockey_stick
from sfumato.audit.findings import Finding
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee

__all__ = ["ORDERS", "audit_filter", "limit", "transcript"]

ORDERS = (1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 16.0, 32.0, 64.0)
"""The finite orders of PrivateKube."""

_Floats = NDArray[np.float64]
_CELLS = 2_000
_MARGIN = 1e-9
"""By which a coin is fairer than it might be, so that rounding cannot make a request too dear."""


def limit(order: float, epsilon: float, delta: float) -> float:
    """The largest total that fits at ``order``; below 0 where the order is of no use."""
    return float(epsilon - np.log1p(-1 / order) + np.log(order * delta) / (order - 1))


def audit_filter(delta: float, claim: Guarantee, orders: tuple[float, ...] = ORDERS) -> Finding:
    """The attack on the filter whose orders each use ``delta``; exact, because all is finite."""
    p, q = transcript(claim.epsilon, delta, orders)
    facts = {"orders": len(orders), "delta_at_epsilon": hockey_stick(p, q, claim.epsilon)}
    return audit_finite(p, q, claim=claim, accuracy=1e-9, facts=facts)


def transcript(
    epsilon: float, delta: float, orders: tuple[float, ...] = ORDERS
) -> tuple[_Floats, _Floats]:
    """The law of (cell of the first answer, coin) on the two data sets.

    Reading only the cell of the first answer is post-processing; the whole answer is paid for.
    """
    left = {a: limit(a, epsilon, delta) - a / 2 for a in orders}
    useful = {a: room for a, room in left.items() if room > 0}
    if not useful:
        validation.fail("epsilon", "large enough for the first answer to pass", epsilon)
    first, second = _cells(1.0), _cells(0.0)
    losses = np.log(first / second)
    coins = [_coin(epsilon - losses, a, room) for a, room in useful.items()]
    gains = np.array([p - q * np.exp(epsilon - losses) for p, q in coins])
    best = np.argmax(gains, axis=0)
    p, q = (np.choose(best, side) for side in zip(*coins, strict=True))
    passes = np.any([_cost(p, q, a) <= room for a, room in useful.items()], axis=0)
    p, q = np.where(passes, p, 0.0), np.where(passes, q, 0.0)  # a refused coin is not thrown
    return (
        np.concatenate([first * p, first * (1 - p)]),
        np.concatenate([second * q, second * (1 - q)]),
    )


def _cells(mean: float) -> _Floats:
    """The mass of N(mean, 1) in each cell."""
    z = np.concatenate([[-np.inf], np.linspace(-8.0, 12.0, _CELLS - 1), [np.inf]]) - mean
    return np.where(z[1:] <= 0, np.diff(ndtr(z)), -np.diff(ndtr(-z)))


def _coin(missing: _Floats, order: float, room: float) -> tuple[_Floats, _Floats]:
    """Heads on either data set: see the module. No coin where the loss is there already."""
    t = np.maximum(missing + np.log(order / (order - 1)), 1e-3)
    rate = order - 1
    log_p = rate * (room - t) + np.log(np.expm1(-rate * room) / np.expm1(-rate * t))
    p = np.minimum(np.exp(np.minimum(log_p, 0.0)), -np.expm1(-room)) * (1 - _MARGIN)
    return p, p * np.exp(-t)


def _cost(p: _Floats, q: _Floats, order: float) -> _Floats:
    """The Rényi divergence of the two coins, the larger of both directions."""
    sides = [
        np.logaddexp(
            order * np.log(x) + (1 - order) * np.log(y),
            order * np.log1p(-x) + (1 - order) * np.log1p(-y),
        )
        for x, y in ((p, q), (q, p))
    ]
    return np.maximum(sides[0], sides[1]) / (order - 1)
