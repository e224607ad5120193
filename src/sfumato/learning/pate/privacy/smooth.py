"""Publishing a data-dependent cost: smooth sensitivity and Gaussian noise (GNSS).

The data-dependent RDP f of a run of answers is a function of private votes. Published here is

    f + S (sigma Z + c) with Z ~ N(0, 1),     S = max_d e^(-beta d) L(d),

at **one** order, fixed in public before the votes are read. L(d) bounds f's local sensitivity at
distance d (:mod:`.local`), so that S is at least f's change by one step and changes itself by at
most a factor e^beta.

What the release costs. For neighbours the published numbers are N(m, (S sigma)^2) and N(m', (S'
sigma)^2) with r = S'/S in [e^-beta, e^beta]. The means differ by at most

    |f - f'| + c |S - S'| <= min(S, S') (1 + c (e^beta - 1)) = min(S, S') w,

as |f - f'| is at most S and at most S', and |S - S'| at most (e^beta - 1) min(S, S'). The Rényi
divergence of two Gaussians is

    alpha (m - m')^2 / (2 sigma^2 S^2 v) + (alpha ln r - ln(v) / 2) / (alpha - 1),
    v = 1 - alpha + alpha r^2, finite if v > 0.

For r <= 1 both terms grow as r falls (derivatives: r^2 / v falls in r, and the second term's is
-alpha (1 - r^2) / (r v)). For r >= 1 the first is at most its value at r = 1, the second at most
its value at e^beta. So the cost at order alpha is the larger of

    alpha w^2 / (2 sigma^2) e^(-2 beta) / v + (-alpha beta - ln(v) / 2) / (alpha - 1),
      v = 1 - alpha (1 - e^(-2 beta)),
    alpha w^2 / (2 sigma^2) + (alpha beta - ln(1 + alpha (e^(2 beta) - 1)) / 2) / (alpha - 1).

The paper's theorem 23 (no margin, c = 0) states alpha e^(2 beta) / sigma^2 + (alpha beta - ln(1 - 2
alpha beta) / 2) / (alpha - 1) for alpha < 1 / (2 beta). That is more than needed for usual
parameters (about three times at beta = 0.02, sigma = 20, order 10), and **too little** near the end
of its range with small sigma: its first term stays bounded where the divergence does not. See
:func:`printed_cost`; nothing is charged by it.

What the published number means. Let R be the sum, over a run's checks and answers, of a bound on
each one's own RDP at this order: D_alpha(its outcome on these data || on any neighbour's). With
c = sigma Phi^-1(confidence) the number is at least R with that probability over its own noise.
Without the margin (c = 0) it is an estimate that is too low half of the time. It speaks of **the
data at hand**, not of all data sets; of one direction of the divergence; and of one order. Budgets
are charged by the data-independent cost, whatever is published here, and by this release's own cost
besides.

*Without checks* (GNMax), and with questions that were fixed beforehand, R bounds the RDP of the
mechanism: every run gives the same answers' noise, and costs add.

*With checks* (Confident and Interactive GNMax) R is read off the run, by which questions were
answered: an odometer's reading. It is **not** a bound on D_alpha(run || run on a neighbour), in
which other runs, with more answers, count as well. What holds instead, with P the law of the run, Q
its law on any neighbour, and eps(r) what r converts to at delta:

    P(S) <= e^eps(r) Q(S) + delta  for every set S of runs with R <= r.

Proof: what the next check or answer adds to R is known before it is made. Let the run be stopped
where R would pass r. The stopped run has RDP at most r (composition, one outcome after another),
and the runs in S are not stopped. The same holds where earlier answers choose the questions, and
with the published number and its own cost in the place of R, but for a further 1 - confidence.

Noise is the exact sampler's on a public grid; S is raised by one grid step, which keeps it smooth,
covers the rounding of f, and keeps the noise from vanishing.

References: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", arXiv:1802.08908, appendix B; Nissim, Raskhodnikova and Smith, "Smooth sensitivity and
sampling in private data analysis", STOC 2007; van Erven and Harremoës, "Rényi divergence and
Kullback-Leibler divergence", arXiv:1206.2459 (between Gaussians).

    >>> release = Sanitiser(order=10, beta=0.02, sigma=20)
    >>> float(release.cost([10])[0].round(4)), round(release.margin, 2)
    (0.1053, 61.8)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from scipy import special

from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import epsilon_from_rdp
from sfumato.core import validation
from sfumato.core.events import RdpCurveEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.pate.privacy.local import Checks, Part
from sfumato.learning.pate.privacy.votes import Floats, as_orders
from sfumato.mechanisms.sampling import add_gaussian, grid_for

__all__ = [
    "PublishedCost",
    "Sanitiser",
    "choose_sanitiser",
    "printed_cost",
    "smooth_sensitivity",
]


def smooth_sensitivity(parts: Sequence[Part], order: float, beta: float, teachers: int) -> float:
    """S = max over d of e^(-beta d) L(d), with L the sum of the parts' bounds. Private.

    From the number of teachers on, L is taken for the public bound that nothing exceeds: what one
    step away is a bound at d is one at d + 1, also there, so that S is smooth.

    Args:
        parts: answers and checks of one run.
        order: the one order.
        beta: how smooth.
        teachers: their public number: after so many steps every vote may have changed.
    """
    beta = validation.positive("beta", beta)
    teachers = validation.count("teachers", teachers)
    limit = sum(part.most_change(order) for part in parts)
    best = 0.0
    for distance in range(teachers + 1):
        fade = math.exp(-beta * distance)
        if fade * limit <= best:
            break  # nothing further away can matter more
        best = max(best, fade * sum(part.changes(order, distance) for part in parts))
    return max(best, math.exp(-beta * teachers) * limit)


def printed_cost(orders: Sequence[float] | Floats, beta: float, sigma: float) -> Floats:
    """Theorem 23 as printed, for comparison; infinite from order 1 / (2 beta) on.

    >>> float(printed_cost([10], beta=0.02, sigma=20)[0].round(7))
    0.0766217
    """
    alpha = as_orders(orders)
    left = 1 - 2 * alpha * validation.positive("beta", beta)
    first = alpha * math.exp(2 * beta) / validation.positive("sigma", sigma) ** 2
    logs = np.log(np.where(left > 0, left, 1.0))
    return np.where(left > 0, first + (alpha * beta - logs / 2) / (alpha - 1), math.inf)


@final
@dataclass(frozen=True)
class PublishedCost:
    """A data-dependent cost as it may be published.

    Attributes:
        order: the RDP order it is for.
        value: the published number: with ``confidence`` at least the sum of the data-dependent RDP
            of the checks and answers that there were.
        confidence: over the release's own noise.
        own_cost: the RDP of the release itself at this order, for all data; not part of ``value``.
        private: False if seeded test coins made the noise.
        checked: whether checks decided what was answered. Then ``value`` is a reading of this run,
            not the RDP of the mechanism. Older records do not say, and count as checked.
    """

    order: float
    value: float
    confidence: float
    own_cost: float
    private: bool = True
    checked: bool = True

    def epsilon(self, delta: float) -> float:
        """What value and own cost together say at ``delta``, of these data, by this order alone.

        Where checks decided, it is the epsilon of this run: see the module.
        """
        delta = validation.open_probability("delta", delta)
        total = np.asarray([max(self.value, 0.0) + self.own_cost])
        return epsilon_from_rdp((self.order,), total, delta)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with what the number means."""
        said = f"with probability {self.confidence:g} at least the "
        if self.checked:
            said += (
                f"sum of what each check and each answer of this run cost at order {self.order:g}: "
                "a reading of this run, in which other questions may be answered next time, and "
                "not the RDP of the mechanism"
            )
        else:
            said += (
                f"RDP at order {self.order:g} of answers to these questions, if they were fixed "
                "beforehand"
            )
        said += "; for these data and not for all; not what a budget is charged"
        return asdict(self) | {"meaning": said}


@final
@dataclass(frozen=True)
class Sanitiser:
    """How a data-dependent cost is published. All of it is public and chosen beforehand.

    Attributes:
        order: the one RDP order.
        beta: smoothness; order (1 - e^(-2 beta)) must be below 1.
        sigma: noise in units of the smooth sensitivity.
        confidence: with which probability the published number is an upper bound; 0.5 for none of
            the margin.
    """

    order: float
    beta: float
    sigma: float
    confidence: float = 0.999

    def __post_init__(self) -> None:
        as_orders([validation.finite("order", self.order)])
        validation.positive("beta", self.beta)
        validation.positive("sigma", self.sigma)
        confidence = validation.open_probability("confidence", self.confidence)
        if confidence < 0.5:
            validation.fail("confidence", "at least 0.5", self.confidence)
        if self.order * -math.expm1(-2 * self.beta) >= 1:
            most = -math.log1p(-1 / self.order) / 2
            validation.fail("beta", f"below {most:.6g} for order {self.order:g}", self.beta)

    @property
    def margin(self) -> float:
        """c: so many smooth sensitivities are added to the cost."""
        return self.sigma * float(special.ndtri(self.confidence))

    def cost(self, orders: Sequence[float] | Floats) -> Floats:
        """RDP of the release itself, for all data; infinite at orders too large for beta."""
        alpha = as_orders(orders)
        shift = alpha * (1 + self.margin * math.expm1(self.beta)) ** 2 / (2 * self.sigma**2)
        left = 1 + alpha * math.expm1(-2 * self.beta)
        v = np.where(left > 0, left, 1.0)
        shrinks = shift * math.exp(-2 * self.beta) / v + (-alpha * self.beta - np.log(v) / 2) / (
            alpha - 1
        )
        grown = np.log1p(alpha * math.expm1(2 * self.beta))
        grows = shift + (alpha * self.beta - grown / 2) / (alpha - 1)
        return np.where(left > 0, np.maximum(shrinks, grows), math.inf)

    def event(self, unit: str = "record") -> RdpCurveEvent:
        """The release's own cost, for a ledger: it does not depend on the data."""
        orders = np.unique([*DEFAULT_ORDERS, self.order])
        costs = np.maximum.accumulate(self.cost(orders))
        kept = np.isfinite(costs)
        return RdpCurveEvent(
            tuple(orders[kept].tolist()),
            tuple(costs[kept].tolist()),
            neighbours=Neighbours.ADD_REMOVE,
            unit=unit,
        )

    def publish(self, parts: Sequence[Part], teachers: int, coins: Coins = SYSTEM) -> PublishedCost:
        """The cost of all ``parts`` together, fit to be published once its own cost is charged.

        Args:
            parts: the run's answers and checks. Private, but for how many there are.
            teachers: their public number.
            coins: where the noise comes from.
        """
        grid = self._grid(parts)
        spread = smooth_sensitivity(parts, self.order, self.beta, teachers) + grid
        cost = sum(part.cost(self.order) for part in parts)
        own = float(self.cost([self.order])[0])
        value = self._noised(cost, spread, grid, coins)
        checked = any(isinstance(part, Checks) for part in parts)
        return PublishedCost(self.order, value, self.confidence, own, coins.private, checked)

    def _noised(self, cost: float, spread: float, grid: float, coins: Coins) -> float:
        """One grid step more than needed makes up for rounding to the grid."""
        centre = cost + self.margin * spread + grid
        return float(add_gaussian([centre], self.sigma * spread, grid, coins)[0])

    def _grid(self, parts: Sequence[Part]) -> float:
        """A public power of two, fit for every smooth sensitivity these parts can have."""
        largest = sum(part.most_change(self.order) for part in parts)
        return grid_for(2.0**-8 * self.sigma * max(largest, 1e-9))


def choose_sanitiser(
    assumed: Sequence[Part], teachers: int, order: float, confidence: float = 0.999
) -> Sanitiser:
    """The beta and sigma for which the margin and the release's own cost add up to least.

    Whether publishing pays is a matter of numbers: with the cost itself, the sum may well exceed
    the data-independent cost, above all for few teachers. Compare before asking for it. (Where the
    margin is below one standard deviation of the noise, that counts instead.)

    Args:
        assumed: parts made of **assumed** votes. What is chosen is public, so it may not be chosen
            by the real ones.
        teachers: their public number.
        order: the one order.
        confidence: as for :class:`Sanitiser`.
    """
    order = float(as_orders([order])[0])
    changes = np.array(
        [sum(part.changes(order, d) for part in assumed) for d in range(teachers + 1)]
    )
    most = -math.log1p(-1 / order) / 2
    best, least = Sanitiser(order, most / 2, 10.0, confidence), math.inf
    for beta in most * np.linspace(0.05, 0.95, 19):
        spread = float((changes * np.exp(-beta * np.arange(len(changes)))).max())
        for sigma in np.geomspace(0.5, 500, 61):
            candidate = Sanitiser(order, float(beta), float(sigma), confidence)
            total = max(candidate.margin, sigma) * spread + float(candidate.cost([order])[0])
            if total < least:
                best, least = candidate, total
    return best
