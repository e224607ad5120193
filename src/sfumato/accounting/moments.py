"""The moments accountant as Abadi et al. published it, for comparison and for old records.

alpha(lambda) = lambda times the RDP at order lambda + 1, for whole lambda from 1 to 32; moments
add, and epsilon = min over lambda of (alpha(lambda) + ln(1/delta)) / lambda.

"Deep learning with differential privacy", arXiv:1607.00133, theorem 2. Valid, and looser than RDP
(whose conversion is better) by about a fifth.
"""

from __future__ import annotations

import math

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours

__all__ = ["LARGEST_MOMENT", "moments_delta", "moments_epsilon"]

LARGEST_MOMENT = 32


def _log_moments(event: Event, neighbours: Neighbours, largest: int) -> tuple[list[float], float]:
    orders = tuple(float(moment + 1) for moment in range(1, largest + 1))
    vector = rdp_vector(event, neighbours, orders)
    return [
        (order - 1) * float(value) for order, value in zip(orders, vector.values, strict=True)
    ], vector.slack


def moments_epsilon(
    event: Event, delta: float, neighbours: Neighbours, largest: int = LARGEST_MOMENT
) -> float:
    """Epsilon at ``delta`` by the classic accountant."""
    moments, slack = _log_moments(event, neighbours, largest)
    if not any(moments) and slack == 0:
        return 0.0
    if slack >= delta:
        return math.inf
    log = math.log(1 / (delta - slack))
    return max(0.0, min((moment + log) / k for k, moment in enumerate(moments, start=1)))


def moments_delta(
    event: Event, epsilon: float, neighbours: Neighbours, largest: int = LARGEST_MOMENT
) -> float:
    """The other direction: delta = min over lambda of e^(alpha(lambda) - lambda epsilon)."""
    moments, slack = _log_moments(event, neighbours, largest)
    best = min(moment - k * epsilon for k, moment in enumerate(moments, start=1))
    return min(1.0, math.exp(min(best, 0.0)) + slack)
