"""Composition and amplification theorems for opaque (epsilon, delta) guarantees.

Notation: a step is (eps, del)-DP; T steps; q the sample rate; slack the delta a theorem adds.

======================  ==========================================================================
:func:`basic`           (T eps, T del)
:func:`strong`          (eps sqrt(2 T ln 1/slack) + T eps (e^eps - 1), T del + slack)
:func:`strong_tanh`     (eps sqrt(2 T ln 1/slack) + T eps (e^eps - 1)/(e^eps + 1), T del + slack)
:func:`optimal`         the exact answer for T steps of which only (eps, del) is known
:func:`amplify`         ln(1 + q (e^eps - 1)), with del becoming q del
======================  ==========================================================================

These speak of worst-case mechanisms. A Gaussian step composes far better than its (eps, del) alone
would allow, which is what the moments, RDP and PLD accountants use.

References: Dwork, Rothblum and Vadhan, "Boosting and differential privacy" (FOCS 2010), theorem
III.3; Kairouz, Oh and Viswanath, arXiv:1311.0776, theorems 3.3 and 3.4; Balle, Barthe and
Gaboardi, arXiv:1807.01647, theorems 8 and 9; Dwork and Roth (2014), theorems 3.16 and 3.20.

**Parallel composition**: releases from parts that no unit shares cost, under add/remove, the worst
part alone. It needs a partition fixed without looking at the data; see
:class:`sfumato.core.events.ParallelEvent`. **Post-processing** costs nothing. **Group privacy**:
:meth:`sfumato.core.guarantee.Guarantee.for_group`.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special, stats

from sfumato.core import validation

__all__ = ["amplify", "basic", "optimal", "strong", "strong_tanh"]


def basic(epsilon: float, delta: float, steps: int) -> tuple[float, float]:
    """(T eps, T del). Always valid, and for pure worst-case steps at delta 0 it is exact."""
    return steps * epsilon, min(1.0, steps * delta)


def strong(epsilon: float, delta: float, steps: int, slack: float) -> tuple[float, float]:
    """Dwork, Rothblum and Vadhan with all its terms; worse than :func:`basic` for large eps.

    The second term is what slides leave out: at eps 1.2 and T 10,000 it is 27,841 of 28,417.
    """
    spread = epsilon * math.sqrt(2 * steps * math.log(1 / slack))
    drift = steps * epsilon * (math.expm1(epsilon) if epsilon < 700 else math.inf)
    return spread + drift, min(1.0, steps * delta + slack)


def strong_tanh(epsilon: float, delta: float, steps: int, slack: float) -> tuple[float, float]:
    """The same with the exact mean loss of the worst step, eps tanh(eps/2) (Kairouz et al.)."""
    spread = epsilon * math.sqrt(2 * steps * math.log(1 / slack))
    drift = steps * epsilon * math.tanh(epsilon / 2)
    return min(spread + drift, steps * epsilon), min(1.0, steps * delta + slack)


def optimal(epsilon: float, delta: float, steps: int, target_delta: float) -> float:
    """The least epsilon at ``target_delta`` for T steps known only to be (eps, del)-DP.

    Kairouz, Oh and Viswanath, theorem 3.3: the worst step has loss infinite with probability del,
    else +eps or -eps; so after T steps the finite loss is eps (T - 2 Bin(T, 1/(1 + e^eps))), and
    delta(x) = 1 - (1 - del)^T (1 - E[(1 - e^(x - loss))_+]).

    Returns:
        The exact value; ``inf`` where T steps of del alone exceed the target.
    """
    log_kept = steps * math.log1p(-delta)
    left = target_delta + math.expm1(log_kept)
    if left < -1e-15 * target_delta or log_kept < -700:
        return math.inf
    room = max(0.0, left) / math.exp(log_kept)
    p = float(special.expit(-epsilon))
    # Forty standard deviations around the mean: e^-400 of the larger losses lies outside.
    mean, reach = steps * p, 40 * math.sqrt(steps * p * (1 - p)) + 40
    flips = np.arange(max(0, math.floor(mean - reach)), min(steps, math.ceil(mean + reach)) + 1)
    losses = epsilon * (steps - 2 * flips)
    probabilities = stats.binom.pmf(flips, steps, p)

    def excess(x: float) -> float:
        above = losses > x
        return float(np.dot(-np.expm1(x - losses[above]), probabilities[above])) - room

    if excess(0.0) <= 0:
        return 0.0
    if room == 0:
        return steps * epsilon
    # The answer lies between neighbouring losses, where the curve is linear in e^x.
    root = optimize.brentq(excess, 0.0, steps * epsilon, xtol=1e-12, rtol=1e-14)
    return min(steps * epsilon, float(root) * (1 + 1e-13) + 1e-12)


def amplify(epsilon: float, sample_rate: float) -> float:
    """ln(1 + q (e^eps - 1)): a release from a random sample of the data; delta becomes q delta.

    Holds for Poisson sampling under add/remove and for a fixed size without replacement under
    replace-one, against observers who do not see the sample. "At most 2 q eps" is true for eps up
    to 1.2564 only, and "(q T eps, q T delta) for T steps" is false.
    """
    q = validation.sample_rate("sample_rate", sample_rate)
    if epsilon > 500:
        return epsilon + math.log(q + (1 - q) * math.exp(-epsilon))
    return math.log1p(q * math.expm1(epsilon))
