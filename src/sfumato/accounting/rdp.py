"""Rényi differential privacy: additive over any adaptive composition, at every order.

    D_alpha(P || Q) = 1/(alpha - 1) ln E_Q[(P/Q)^alpha]

A mechanism's RDP at order alpha bounds D_alpha in both directions for every pair of neighbours.
Some releases (an opaque (epsilon, delta) one) have RDP only outside an event of probability delta;
that part is kept beside the vector as ``slack`` and taken off the target delta.

Mironov, arXiv:1702.07476; the conversion to (epsilon, delta) is proposition 12 of Canonne, Kamath
and Steinke, arXiv:2004.00010.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from scipy import special, stats

from sfumato.accounting import dpa
from sfumato.accounting.atoms import (
    Atom,
    FixedSizeAtom,
    Multiset,
    ParallelAtom,
    PoissonAtom,
    flatten,
    pure_epsilon,
)
from sfumato.accounting.dpa import DEFAULT_ORDERS, Floats
from sfumato.accounting.support import UnsupportedError
from sfumato.accounting.theorems import amplify
from sfumato.core.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    EpsilonDeltaEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    Leaf,
    NotPrivateEvent,
    RandomizedResponseEvent,
    RdpCurveEvent,
    ZcdpEvent,
)
from sfumato.core.neighbours import Neighbours

__all__ = ["RdpVector", "epsilon_from_rdp", "rdp_vector"]

_ROUNDING = 1e-15
"""Added to an RDP that is computed as the logarithm of a number close to 1."""
_MOST_NOISE = 1e50
"""More counts as this much, whose square does not overflow."""
_LEAST_NOISE = 1e-100
"""Less hides nothing, and its square underflows."""


@dataclass(frozen=True)
class RdpVector:
    """RDP ``values`` at ``orders``, outside an event of probability ``slack``."""

    orders: tuple[float, ...]
    values: Floats
    slack: float = 0.0

    def times(self, count: int) -> RdpVector:
        """The vector of ``count`` such releases."""
        values = count * self.values if count else np.zeros(len(self.orders))
        return RdpVector(self.orders, values, count * self.slack)

    def plus(self, other: RdpVector) -> RdpVector:
        """The vector of both, at the same orders."""
        assert self.orders == other.orders
        return RdpVector(self.orders, self.values + other.values, self.slack + other.slack)

    def epsilon(self, delta: float) -> float:
        """The least epsilon these values prove at ``delta``; ``inf`` if the slack exceeds it."""
        if self.slack > 0 and self.slack >= delta:
            return math.inf
        return epsilon_from_rdp(self.orders, self.values, delta - self.slack)


def rdp_vector(
    event: Event, neighbours: Neighbours, orders: tuple[float, ...] = DEFAULT_ORDERS
) -> RdpVector:
    """The RDP of ``event`` at ``orders`` under ``neighbours``."""
    return _sum(flatten(event, neighbours), orders)


def _sum(atoms: Multiset, orders: tuple[float, ...]) -> RdpVector:
    values, slack = np.zeros(len(orders)), 0.0
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows promises nothing
        for atom, count in atoms:
            one = atom_rdp(atom, orders)
            values = values + count * one.values
            slack += count * one.slack
    return RdpVector(orders, values, slack)


def epsilon_from_rdp(orders: tuple[float, ...], values: Floats, delta: float) -> float:
    """Min over orders a of v + ln(1 - 1/a) - ln(delta a)/(a - 1), never below 0.

    Orders at 1.01 and below, where the bound is unstable, are passed over, and so is an order whose
    RDP is negative or not a number: dp-accounting reads such a value as "no privacy loss".
    """
    a = np.asarray(orders)
    usable = (a > 1.01) & (values >= 0) & np.isfinite(values)
    if not usable.any() or delta <= 0:
        return 0.0 if len(orders) and bool(np.all(values == 0)) else math.inf
    a, v = a[usable], values[usable]
    if delta**2 + math.expm1(-float(v.min())) > 0:
        return 0.0  # delta <= sqrt(1 - e^-KL), and KL is at most the RDP at any order
    return max(0.0, float(np.min(v + np.log1p(-1 / a) - np.log(delta * a) / (a - 1))))


# --- one atom -----------------------------------------------------------------------------------


@singledispatch
def atom_rdp(atom: Atom, orders: tuple[float, ...]) -> RdpVector:
    """The RDP of one atom."""
    raise UnsupportedError(f"no RDP is known for {type(atom).__name__}")


@atom_rdp.register
def _(atom: GaussianEvent, orders: tuple[float, ...]) -> RdpVector:
    return RdpVector(orders, _quadratic(1 / atom.noise_multiplier, orders))


@atom_rdp.register
def _(atom: DiscreteGaussianEvent, orders: tuple[float, ...]) -> RdpVector:
    return RdpVector(orders, _quadratic(atom.sensitivity / atom.sigma, orders))


@atom_rdp.register
def _(atom: ZcdpEvent, orders: tuple[float, ...]) -> RdpVector:
    return RdpVector(orders, atom.rho * np.asarray(orders))


@atom_rdp.register
def _(atom: LaplaceEvent, orders: tuple[float, ...]) -> RdpVector:
    """Mironov (2017), proposition 6, as a sum of e^(...) so that nothing overflows."""
    a, eps = np.asarray(orders), 1 / atom.noise_multiplier
    logs = np.stack([np.log(a) + (a - 1) * eps, np.log(a - 1) - a * eps])
    values = (special.logsumexp(logs, axis=0) - np.log(2 * a - 1)) / (a - 1)
    return RdpVector(orders, _small(eps, values, orders))


@atom_rdp.register
def _(atom: DiscreteLaplaceEvent, orders: tuple[float, ...]) -> RdpVector:
    """Sum over the integers of p^a q^(1-a): two geometric tails and the stretch between them."""
    a, t, steps = np.asarray(orders)[:, None], 1 / atom.scale, atom.sensitivity
    if steps > 10_000:
        return _pure(steps * t, orders)
    tail = -math.log(-math.expm1(-t))
    between = np.arange(1, steps)[None, :]
    logs = np.concatenate(
        [
            steps * t * (a - 1) + tail,
            -steps * t * a + tail,
            -t * between * a - t * (steps - between) * (1 - a),
        ],
        axis=1,
    )
    total = special.logsumexp(logs, axis=1) + math.log(math.tanh(t / 2))
    rounding = 8 * _ROUNDING * (1 + abs(tail)) / (a[:, 0] - 1)
    return RdpVector(orders, _small(steps * t, total / (a[:, 0] - 1) + rounding, orders))


@atom_rdp.register
def _(atom: RandomizedResponseEvent, orders: tuple[float, ...]) -> RdpVector:
    return RdpVector(orders, _response(atom.epsilon, atom.categories, orders))


@atom_rdp.register
def _(atom: ExponentialEvent, orders: tuple[float, ...]) -> RdpVector:
    """(eps^2/8)-zCDP by bounded range, and never more than any eps-DP mechanism."""
    bounded_range = np.asarray(orders) * atom.epsilon**2 / 8
    return RdpVector(orders, np.minimum(bounded_range, _response(atom.epsilon, 2, orders)))


@atom_rdp.register
def _(atom: EpsilonDeltaEvent, orders: tuple[float, ...]) -> RdpVector:
    return _pure(atom.epsilon, orders, atom.delta)


@atom_rdp.register
def _(atom: NotPrivateEvent, orders: tuple[float, ...]) -> RdpVector:
    return RdpVector(orders, np.full(len(orders), math.inf))


@atom_rdp.register
def _(atom: RdpCurveEvent, orders: tuple[float, ...]) -> RdpVector:
    """At an order between two of the curve's own, the larger one's value (RDP grows with order)."""
    at = np.searchsorted(np.asarray(atom.orders), np.asarray(orders), side="left")
    values = np.append(np.asarray(atom.values), math.inf)
    return RdpVector(orders, values[at])


@atom_rdp.register
def _(atom: PoissonAtom, orders: tuple[float, ...]) -> RdpVector:
    leaf, q = atom.leaf, atom.sample_rate
    if isinstance(leaf, GaussianEvent):
        noise = min(leaf.noise_multiplier, _MOST_NOISE)
        if noise < _LEAST_NOISE:
            return RdpVector(orders, np.full(len(orders), math.inf))
        if atom.records == 1 and not atom.replace:
            values = dpa.rdp_poisson_gaussian(noise, q, orders) + _ROUNDING
        else:
            values = _mixture_rdp(noise, q, atom.records, atom.replace, orders)
        return RdpVector(orders, values)
    if atom.replace or atom.records > 1:
        raise UnsupportedError(
            f"a Poisson-sampled {leaf.kind} release is accounted for one record added or removed"
        )
    return _amplified(leaf, q, orders)


@atom_rdp.register
def _(atom: FixedSizeAtom, orders: tuple[float, ...]) -> RdpVector:
    leaf, q = atom.leaf, atom.sample_rate
    if isinstance(leaf, GaussianEvent):
        noise = min(leaf.noise_multiplier, _MOST_NOISE)
        if noise < _LEAST_NOISE:
            return RdpVector(orders, np.full(len(orders), math.inf))
        values = dpa.rdp_fixed_size_gaussian(noise, atom.sample_size, atom.population, orders)
        return RdpVector(orders, values + _ROUNDING)
    return _amplified(leaf, q, orders)


@atom_rdp.register
def _(atom: ParallelAtom, orders: tuple[float, ...]) -> RdpVector:
    """Pointwise the worst part; under replace-one also the two parts a unit moves between."""
    options = [_sum(part, orders) for part in atom.stays]
    if atom.moves:
        moved = _worst([_sum(part, orders) for part in atom.moves], orders)
        options.append(RdpVector(orders, 2 * moved.values, 2 * moved.slack))
    worst = _worst(options, orders)
    return RdpVector(orders, atom.groups * worst.values, atom.groups * worst.slack)


def _worst(options: list[RdpVector], orders: tuple[float, ...]) -> RdpVector:
    values = np.max([option.values for option in options], axis=0)
    return RdpVector(orders, values, max(option.slack for option in options))


# --- formulas -----------------------------------------------------------------------------------


def _pure(epsilon: float, orders: tuple[float, ...], slack: float = 0.0) -> RdpVector:
    """Any epsilon-DP release is dominated by binary randomised response."""
    return RdpVector(orders, _response(epsilon, 2, orders), slack)


def _amplified(leaf: Leaf, sample_rate: float, orders: tuple[float, ...]) -> RdpVector:
    """An (epsilon, delta) release from a random sample, by :func:`theorems.amplify`."""
    epsilon = leaf.epsilon if isinstance(leaf, EpsilonDeltaEvent) else pure_epsilon(leaf)
    if epsilon is None:
        raise UnsupportedError(f"no RDP is known for a {leaf.kind} release from a random sample")
    delta = leaf.delta if isinstance(leaf, EpsilonDeltaEvent) else 0.0
    return _pure(amplify(epsilon, sample_rate), orders, sample_rate * delta)


def _response(epsilon: float, categories: int, orders: tuple[float, ...]) -> Floats:
    """RDP of k-ary randomised response between two different answers, without cancellation.

    With e^eps + k - 1 in the denominator, P and Q differ in two answers, and

        E_Q[(P/Q)^a] = 1 + (1 - e^(-(a - 1) eps)) (e^(a eps) - 1) / (e^eps + k - 1).

    Computed as a sum of logarithms of size ln k it would lose a small RDP among many categories.
    """
    a = np.asarray(orders)
    if epsilon == 0:
        return np.zeros(len(a))
    log_denominator = np.logaddexp(epsilon, math.log(categories - 1))
    with np.errstate(over="ignore"):  # infinite, as the bound is then
        log_excess = (
            np.log(-np.expm1(-(a - 1) * epsilon))
            + a * epsilon
            + np.log(-np.expm1(-a * epsilon))
            - log_denominator
        )
    values = np.logaddexp(0.0, log_excess) / (a - 1)
    return np.where(values > 0, values * (1 + 1e-13), _quadratic(epsilon, orders))


def _quadratic(ratio: float, orders: tuple[float, ...]) -> Floats:
    """(ratio^2 / 2)-zCDP: alpha ratio^2 / 2."""
    return np.asarray(orders) * (ratio * ratio / 2)


def _small(epsilon: float, values: Floats, orders: tuple[float, ...]) -> Floats:
    """``values``, but where an epsilon-DP release's would be lost in rounding, their bound.

    Pure epsilon-DP is (epsilon^2 / 2)-zCDP (Bun and Steinke, arXiv:1605.02065, proposition 1.4),
    which is tight as epsilon goes to 0.
    """
    a = np.asarray(orders)
    exact = np.maximum(values, 0.0) + _ROUNDING * a / (a - 1)
    return np.where(a * epsilon < 1e-4, _quadratic(epsilon, orders), exact)


@functools.lru_cache(maxsize=64)
def _mixture_rdp(
    noise_multiplier: float,
    sample_rate: float,
    records: int,
    replace: bool,
    orders: tuple[float, ...],
) -> Floats:
    """RDP of a Poisson-sampled Gaussian for several records, or a replaced one, by quadrature.

    One unit's sampled records number Bin(k, q), and the worst case lines them up in one direction.
    Added or removed: P = sum_j Bin(j) N(j, sigma^2) against N(0, sigma^2), both ways round.
    Replaced (k = 1): P against its mirror image. The integrands are analytic in a strip of width
    pi sigma^2, for which the trapezoid rule is exact to about 10^-10. Orders that would take too
    many points are left out.
    """
    if replace and records > 1:
        raise UnsupportedError(
            "a Poisson-sampled release for units of several records is accounted under add-remove "
            "or zero-out, not replace-one"
        )
    counts = np.arange(records + 1)
    log_weights = np.asarray(stats.binom.logpmf(counts, records, sample_rate))

    def log_p(x: Floats) -> Floats:
        shifts = (x[:, None] - counts[None, :]) / noise_multiplier
        return np.asarray(special.logsumexp(log_weights - shifts**2 / 2, axis=1))

    def log_q(x: Floats) -> Floats:
        return log_p(-x) if replace else -((x / noise_multiplier) ** 2) / 2

    values = [_both_ways(log_p, log_q, order, noise_multiplier, records) for order in orders]
    return np.asarray(values)


def _both_ways(
    log_p: Callable[[Floats], Floats],
    log_q: Callable[[Floats], Floats],
    order: float,
    sigma: float,
    reach: int,
) -> float:
    """Max of D_order(P || Q) and D_order(Q || P) by the trapezoid rule over all that matters."""
    width = 2 * order * reach + 40 * sigma
    step = min(sigma / 12, 0.8 * sigma**2)
    if width > 1e5 * step:
        return math.inf
    x = np.arange(-width, width + step, step)
    p, q = log_p(x), log_q(x)
    norm = math.log(step) - math.log(sigma) - 0.5 * math.log(2 * math.pi)
    forward = float(special.logsumexp(order * p + (1 - order) * q)) + norm
    backward = float(special.logsumexp(order * q + (1 - order) * p)) + norm
    return max(forward, backward, 0.0) / (order - 1) + 100 * _ROUNDING * order / (order - 1)
