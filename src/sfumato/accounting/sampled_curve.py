"""Poisson sampling on top of any release known by its RDP.

    >>> from sfumato.core.events import ZcdpEvent
    >>> step = ZcdpEvent(0.5, unit="client")
    >>> sampled = sampled_curve(step, 0.01, symmetric=True)
    >>> round(sampled.values[0], 6), round(2 * 0.5, 6)  # at order 2: sampled, and not
    (0.000172, 1.0)

Each unit is in the sample by its own coin of probability q, which no observer sees: neither the
coins nor anything that depends on them but the release. Let Q be the law of the release without
one unit and P with it; with sampling the two worlds are Q and M = (1 - q) Q + q P.

*M against Q*, whole orders a. The binomial theorem gives exactly

    E_Q[(M/Q)^a] = sum over l of C(a, l) (1 - q)^(a - l) q^l E_Q[(P/Q)^l],

with E_Q[(P/Q)^l] <= e^((l - 1) v(l)) for l >= 2 and 1 for l = 0, 1.

*Q against M.* In general three times the terms from l = 3 on are enough (Zhu and Wang, "Poisson
subsampled Rényi differential privacy", ICML 2019, theorem 6). If P and Q are mirror images, that is
if some involution of the outcomes carries one to the other, this direction is never the worse one
(Mironov, Talwar and Zhang, arXiv:1908.10530, theorem 5), and the sum above is enough: outcome by
outcome, with r = P/Q and its mirror 1/r, it says that

    (1 - q + q r)^a + r (1 - q + q/r)^a >= (1 - q + q r)^(1 - a) + r (1 - q + q/r)^(1 - a).

Noise that is symmetric about 0, added to a value that a unit moves by a fixed x, is such a pair
(mirror at x/2); a mixture of such pairs over x is no worse, by joint convexity.

The tests compare with the exact Poisson-sampled Gaussian (equal at whole orders, where symmetric),
and with random pairs of laws in both directions.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from sfumato.accounting.dpa import Floats
from sfumato.accounting.rdp import rdp_vector
from sfumato.core import validation
from sfumato.core.events import Leaf, RdpCurveEvent
from sfumato.core.neighbours import Neighbours

__all__ = ["sampled_curve"]

_ROUNDING = 1e-9
"""Relative; the logarithms of binomial coefficients are right to 10^-11."""


def sampled_curve(
    event: Leaf, sample_rate: float, *, symmetric: bool = False, largest_order: int = 512
) -> RdpCurveEvent:
    """What ``event`` amounts to when it is released from a Poisson sample of the units.

    Args:
        event: the release from the whole, for a unit that is there or not (add-remove) or sends
            nothing (zero-out).
        sample_rate: q, of every unit's own secret coin.
        symmetric: whether the two laws of a neighbouring pair are mirror images, as above.
        largest_order: up to which whole order to go.

    Raises:
        ValueError: for a replace-one event, and for one whose RDP holds only outside of an event of
            probability delta.
    """
    q = validation.sample_rate("sample_rate", sample_rate)
    largest = validation.at_least("largest_order", largest_order, 2)
    relation = event.relation
    if relation is Neighbours.REPLACE_ONE:
        validation.fail("event", "an add-remove or zero-out release to be sampled", relation.value)
    orders = tuple(float(order) for order in range(2, largest + 1))
    whole = rdp_vector(event, relation, orders)
    if whole.slack > 0:
        validation.fail("event", "a release with an RDP and no delta beside it", event.kind)
    values = [_sampled(whole.values, q, order, symmetric) for order in range(2, largest + 1)]
    usable = int(np.argmin(np.isfinite([*values, math.inf])))
    if usable == 0:
        validation.fail("event", "a release with a finite RDP at order 2", event.kind)
    return RdpCurveEvent.of_whole_orders(
        lambda order: values[order - 2], usable + 1, relation, event.unit_name
    )


def _sampled(values: Floats, q: float, order: int, symmetric: bool) -> float:
    """The RDP at ``order``, from those at 2, 3, ... up to it.

    The weights C(a, l) (1 - q)^(a - l) q^l sum to 1, so what exceeds 1 is the sum over l >= 2 of
    weight times (e^((l - 1) v(l)) - 1), in which nothing cancels.
    """
    full = float(values[order - 2])
    if q == 1 or not math.isfinite(full):
        return full
    terms = np.arange(2, order + 1, dtype=np.float64)
    weights = (
        gammaln(order + 1) - gammaln(terms + 1) - gammaln(order - terms + 1)
        + terms * math.log(q) + (order - terms) * math.log1p(-q)
    )  # fmt: skip
    exponents = (terms - 1) * values[: order - 1]
    with np.errstate(divide="ignore"):
        excess = exponents + np.log(-np.expm1(-exponents))  # ln(e^x - 1)
    parts = weights + excess
    if not symmetric:
        parts = np.append(parts, math.log(2) + (weights + exponents)[1:])
    total = float(logsumexp(parts))
    found = float(np.logaddexp(0.0, total)) / (order - 1) * (1 + _ROUNDING)
    return min(found, full)  # M lies between Q and P
