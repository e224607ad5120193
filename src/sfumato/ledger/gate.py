"""The gate: a privacy filter that lets adaptive requests through while some order still fits.

**Setting.** Anyone asks for any release at any time, having seen all answers so far. The gate adds
up what was let through, at every order of a grid fixed when the dataset was made: infinity (where
pure epsilons add) and m finite Rényi orders. A request passes if afterwards the opaque deltas still
fit ``opaque_delta`` and at *some* order the total still fits that order's limit:

    limit at infinity   B = epsilon
    limit at alpha      the largest B for which (alpha, B)-RDP gives (epsilon, delta' / m)-DP,
                        delta' = delta - opaque_delta

by proposition 12 of Canonne, Kamath and Steinke, arXiv:2004.00010:

    B = epsilon - ln(1 - 1/alpha) + ln(alpha delta' / m) / (alpha - 1).

**Theorem.** Whatever is asked, all answers together are (epsilon, delta)-DP.

**Proof.** Fix neighbours D, D', let P and Q be the laws of the whole transcript under each, and
L = ln(P/Q) at the transcript. (epsilon, delta)-DP is E_P[(1 - e^(epsilon - L))_+] <= delta.

1. *Opaque releases.* An (e, d)-DP release is a post-processing of "with probability d reveal which
   of D, D' it is, else randomised response with e" (Kairouz, Oh and Viswanath, arXiv:1311.0776; for
   an interactive one, such as a plan, Lyu, arXiv:2207.09397). Their deltas never sum to more than
   ``opaque_delta``, so that the transcripts in which one of them reveals have at most that much
   mass under P. On the others the release is randomised response, whose Rényi divergence and pure
   epsilon are what was added up.
2. *Which order.* Totals never fall (a refund takes back steps never run, so the totals of what was
   run never fall), and the last request passed: at the end some order fits, and had fitted all
   along. Which ones is written in the transcript. Split the expectation by the first that does.
3. *Order alpha fits at the end.* Then the transcript is that of another process: one that stops
   before alpha would overflow. Its Rényi divergence of order alpha is at most B, however adaptively
   the releases were chosen (fully adaptive composition: Feldman and Zrnic, arXiv:2008.11193;
   Lécuyer, arXiv:2103.01379; interleaved as they may be: Haney et al., arXiv:2309.05901), so its
   whole expectation is at most delta'/m, hence this part is.
4. *Infinity fits at the end.* The same process, stopped before the epsilons exceed epsilon, has
   L <= epsilon always: this part is 0.

Together at most m delta'/m + opaque_delta = delta.

Without the division by m step 2 would be false: choosing the order after seeing the answers is
itself a choice made with the data. The cap is what is promised. The *reading* is what the totals so
far would convert to at the same delta' / m: at most epsilon exactly while some order fits. It is an
odometer's reading, for the operator, not a guarantee for someone who stops because of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from sfumato.ledger import amounts
from sfumato.ledger.amounts import SATURATED, Vector
from sfumato.ledger.budget import Budget

__all__ = ["Gate", "choose_orders"]

_LOWEST = 1.06
"""Closer to 1 the conversion to epsilon takes all of a budget, however large."""
_RATIOS = (0.52, 0.7, 1.0, 1.5, 3.0, 8.0)
"""Orders minus 1, over the best one for zCDP spending.

The lower ones are for sampled training, whose RDP grows faster than the order. The higher ones are
for caps of a fraction of the budget and for readings long before it is spent. Every further order
takes its share of delta from the others.
"""


def choose_orders(budget: Budget) -> tuple[float, ...]:
    """The finite orders for a budget: a function of public numbers alone.

    If all spending were rho-zCDP, epsilon = rho + 2 sqrt(rho L) with L = ln(m / delta'): exhausted
    at rho = (sqrt(L + epsilon) - sqrt(L))^2, and best converted at order 1 + sqrt(L / rho) (Bun and
    Steinke, arXiv:1605.02065, proposition 1.3). The grid lies around it.
    """
    delta = budget.conversion_delta
    if delta <= 0:
        return ()
    log = math.log(len(_RATIOS) / delta)
    rho = (math.sqrt(log + budget.epsilon) - math.sqrt(log)) ** 2
    best = math.sqrt(log / rho)
    orders = {_neat(max(1 + ratio * best, _LOWEST)) for ratio in _RATIOS}
    return tuple(sorted(orders))


def _neat(order: float) -> float:
    return float(round(order)) if order >= 4 else round(order, 2)


@dataclass(frozen=True)
class Gate:
    """The limits of one budget over one grid, in units.

    Attributes:
        epsilon: the cap.
        orders: the finite orders; infinity comes before them everywhere.
        limits: the largest total that fits, at infinity and at each finite order. Below zero where
            the budget is too small for an order.
        slack: the largest total of opaque deltas.
    """

    epsilon: int
    orders: tuple[float, ...]
    limits: tuple[int, ...]
    slack: int

    @classmethod
    def of(cls, budget: Budget, orders: tuple[float, ...]) -> Gate:
        """The gate of ``budget`` over the dataset's orders."""
        epsilon = amounts.epsilon_down(budget.epsilon)
        share = budget.conversion_delta / len(orders) if orders else 0.0
        finite = (_limit(budget.epsilon, order, share) for order in orders)
        return cls(epsilon, orders, (epsilon, *finite), amounts.delta_down(budget.opaque))

    def fits(self, spent: Vector) -> bool:
        """Whether this total may stand."""
        return spent.slack <= self.slack and any(
            total <= limit for total, limit in zip(spent.orders, self.limits, strict=True)
        )

    def reading(self, spent: Vector) -> float:
        """What the total so far converts to: at most epsilon exactly while some order fits."""
        return amounts.as_epsilon(self.reading_units(spent))

    def reading_units(self, spent: Vector) -> int:
        """The same in units. An order's constant is what its limit is short of epsilon."""
        pairs = zip(spent.orders, self.limits, strict=True)
        best = min(
            SATURATED if total >= SATURATED else total + self.epsilon - limit
            for total, limit in pairs
        )
        return min(best, SATURATED)

    def left(self, spent: Vector) -> float:
        """The largest epsilon of a pure release that will pass, rounded down."""
        if spent.slack > self.slack:
            return 0.0
        rooms = [
            limit - total if total < SATURATED else 0
            for total, limit in zip(spent.orders, self.limits, strict=True)
        ]
        finite = zip(self.orders, rooms[1:], strict=True)
        return max(
            [_pure_at_infinity(rooms[0]), *(_pure_within(order, room) for order, room in finite)]
        )


def _limit(epsilon: float, order: float, delta: float) -> int:
    if delta <= 0:
        return -SATURATED
    log = math.log(order) + math.log(delta)
    return amounts.rdp_down(epsilon - math.log1p(-1 / order) + log / (order - 1))


# --- how large a pure release still fits --------------------------------------------------------


def _pure_at_infinity(room: int) -> float:
    """The largest epsilon charged at most ``room`` units, stated as such or as noise 1/epsilon."""
    epsilon = amounts.as_epsilon(max(0, room))
    while epsilon > 0 and amounts.epsilon_up(max(epsilon, 1 / (1 / epsilon))) > room:
        epsilon = math.nextafter(epsilon, 0.0)
    return epsilon


@functools.lru_cache(maxsize=4096)
def _pure_within(order: float, room: int) -> float:
    """The largest epsilon whose worst case, randomised response, costs at most ``room`` units."""
    budget = amounts.as_epsilon(room) * (1 - 1e-9) - 1e-11
    if budget <= 0:
        return 0.0
    # Randomised response costs at least epsilon tanh(epsilon / 2), and at most epsilon.
    return _last_below(lambda epsilon: _response(epsilon, order), budget, budget + 2)


def _response(epsilon: float, order: float) -> float:
    """An upper bound, tight in both directions, of any epsilon-DP release's RDP."""
    quadratic = order * epsilon * epsilon / 2
    if order * epsilon < 1e-3:
        return quadratic
    # ln((e^(a e) + e^((1 - a) e)) / (e^e + 1)) / (a - 1), without overflow.
    log = (order - 1) * epsilon + math.log1p(math.exp((1 - 2 * order) * epsilon))
    return min(quadratic, (log - math.log1p(math.exp(-epsilon))) / (order - 1))


def _last_below(cost: Callable[[float], float], budget: float, high: float) -> float:
    low = 0.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low
