"""Audits without sampling: laws that are known, compared event by event.

(epsilon, delta)-DP says Pr[S] <= e^epsilon Pr'[S] + delta for every event S, so every S shows

    epsilon >= ln((Pr[S] - delta) / Pr'[S]),

and the best S collects the outcomes whose probability ratio is highest (Neyman and Pearson). Where
both laws are finite, the largest of these over all S *is* epsilon at delta:

    >>> import math
    >>> keep = math.e / (1 + math.e)  # randomised response at epsilon 1
    >>> round(exact_epsilon([keep, 1 - keep], [1 - keep, keep], 0.0), 9)
    1.0
    >>> print(audit_finite([0.5, 0.5, 0.0], [0.5, 0.4, 0.1], delta=0.05))
    at least epsilon inf at delta 0.05 (exact)

Densities are integrated over cells first. To report only the cell is post-processing, which never
raises epsilon, so that what is shown for cells is shown for the mechanism.

Everything here is rounded down: a bound on epsilon from below that is a little too high would be a
false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.audit.findings import Finding
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee

__all__ = [
    "ACCURACY",
    "Bounds",
    "Density",
    "at_delta",
    "audit_density",
    "audit_finite",
    "audit_half_lines",
    "exact_epsilon",
    "hockey_stick",
    "integrate_cells",
]

ACCURACY = 2.0**-44
"""The relative error that probabilities are taken to have, unless said otherwise."""

Density = Callable[[NDArray[np.float64]], NDArray[Any]]
"""A density, or a survival function, evaluated at an array of points."""

_Floats = NDArray[np.float64]
_NEGLIGIBLE = 1e-290  # below, a probability may have lost its digits to underflow
_ROUNDING = 2.0**-50  # of a handful of operations on doubles


def hockey_stick(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """The least delta of p against q: the sum of max(p - e^epsilon q, 0), rounded down.

    Args:
        p: the probability of each outcome on one input.
        q: that of the same outcomes on the other. What is left out of both lists, such as a far
            tail, only lowers the result.
        epsilon: 0 or above; at infinity the mass of p on what is impossible under q.

    >>> round(hockey_stick([0.75, 0.25], [0.25, 0.75], 0.0), 12)
    0.5
    >>> round(hockey_stick([0.5, 0.5], [1.0, 0.0], math.inf), 12)
    0.5
    """
    first, second = _law("p", p), _law("q", q)
    _same_outcomes(first, second)
    if epsilon != math.inf:
        epsilon = validation.non_negative("epsilon", epsilon)
    factor = math.exp(epsilon) if epsilon < 709 else math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.where(second > 0, factor * second, 0.0) * (1 + _ROUNDING)
    return math.fsum(np.maximum(first - scaled, 0.0)) * (1 - 2.0**-53)


def exact_epsilon(p: ArrayLike, q: ArrayLike, delta: float, *, accuracy: float = ACCURACY) -> float:
    """The least epsilon >= 0 with ``hockey_stick`` at most ``delta`` both ways, rounded down.

    Args:
        p: as for :func:`hockey_stick`; a probability of 0 is taken as impossible.
        q: likewise.
        delta: at which.
        accuracy: the relative error that each probability may have. The result is a true lower
            bound for every pair of laws within it, and about twice this below the exact epsilon.

    Returns:
        Infinite where an event of more than ``delta`` on one input is impossible on the other.
    """
    return _compare(_finite_bounds(p, q, accuracy), validation.delta("delta", delta)).epsilon


def audit_finite(
    p: ArrayLike,
    q: ArrayLike,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    accuracy: float = ACCURACY,
    facts: Mapping[str, Any] | None = None,
) -> Finding:
    """What two laws on the same finite set of outcomes show about epsilon: all there is.

    Args:
        p: the probability of each outcome on one input.
        q: that of the same outcomes on its neighbour.
        delta: at which; by default the claim's, or 0.
        claim: what was promised.
        accuracy: see :func:`exact_epsilon`.
        facts: what else a reader should know.
    """
    at = at_delta(delta, claim)
    bounds = _finite_bounds(p, q, accuracy)
    best = _compare(bounds, at)
    known = {"outcomes": len(bounds.low_p), **best.facts(), **(facts or {})}
    return Finding(best.epsilon, at, 1.0, "exact", claim, known)


def audit_density(
    p: Density,
    q: Density,
    support: tuple[float, float],
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    breaks: Sequence[float] = (),
    cells: int = 4096,
    facts: Mapping[str, Any] | None = None,
) -> Finding:
    """What two densities on the line show about epsilon.

    Each cell's probability is integrated by two rules, and what they differ by is charged against
    the result (see :func:`integrate_cells`): it is a true lower bound where the densities are
    smooth between the breaks, as far as that difference bounds the error. At delta 0 it is the
    supremum of the log ratio, over cells.

    Args:
        p: the density on one input. Atoms must be audited apart, by :func:`audit_finite`.
        q: that on its neighbour.
        support: a finite interval. What lies outside is left out, which only lowers the result.
        delta: at which; by default the claim's, or 0.
        claim: what was promised.
        breaks: where a density has a kink or a jump.
        cells: how many at first; those that decide are then split twice into 64.
        facts: what else a reader should know.
    """
    at = at_delta(delta, claim)
    edges = _edges(support, breaks, validation.at_least("cells", cells, 2))
    for _ in range(2):
        edges = _finer(edges, _compare(integrate_cells(p, q, edges), at).chosen)
    bounds = integrate_cells(p, q, edges)
    best = _compare(bounds, at)
    error = float(np.sum(bounds.high_p - bounds.low_p + bounds.high_q - bounds.low_q))
    known = {"cells": len(edges) - 1, "integration_error": error, **best.facts(), **(facts or {})}
    return Finding(best.epsilon, at, 1.0, "exact, by cells", claim, known)


def audit_half_lines(
    survival_p: Density,
    survival_q: Density,
    thresholds: ArrayLike,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    accuracy: float = ACCURACY,
) -> Finding:
    """What the events "above t" and "at most t" show, by survival functions Pr[X > t].

    Where the likelihood ratio is monotone, as for noise with a log-concave density, half-lines are
    the best events there are; and a survival function is accurate far out where 1 - cdf is not.

    Args:
        survival_p: Pr[X > t] on one input.
        survival_q: that on its neighbour.
        thresholds: the t to try. Nothing is drawn, so trying many costs nothing.
        delta: at which; by default the claim's, or 0.
        claim: what was promised.
        accuracy: the relative error that a survival function may have.
    """
    at = at_delta(delta, claim)
    tried = np.asarray(thresholds, np.float64).ravel()
    above = [
        _probabilities("survival_p", survival_p(tried)),
        _probabilities("survival_q", survival_q(tried)),
    ]
    found = [(0.0, 0, "above", 0)]
    for side in (0, 1):
        inside, outside = above[side], above[1 - side]
        for where, low, high in (
            ("above", inside * (1 - accuracy), outside * (1 + accuracy)),
            ("at most", 1 - inside - accuracy, 1 - outside + accuracy),
        ):
            shown = _log_ratio(low * (1 - _ROUNDING), high * (1 + _ROUNDING), at)
            place = int(np.argmax(shown))
            found.append((float(shown[place]), place, where, side))
    epsilon, place, where, side = max(found)
    facts = {
        "thresholds": len(tried), "event": f"{where} {tried[place]:.6g}",
        "likelier_on": ("first", "second")[side],
    }  # fmt: skip
    return Finding(_down(epsilon), at, 1.0, "exact, half-lines", claim, facts)


def at_delta(delta: float | None, claim: Guarantee | None) -> float:
    """The delta of an audit: as given, or the claim's, or 0."""
    if delta is None:
        return 0.0 if claim is None else claim.delta
    return validation.delta("delta", delta)


@dataclass(frozen=True, eq=False)
class Bounds:
    """Between what the probabilities of each outcome lie, on both inputs."""

    low_p: _Floats
    high_p: _Floats
    low_q: _Floats
    high_q: _Floats


@dataclass(frozen=True, eq=False)
class _Best:
    """The event that shows most."""

    epsilon: float
    chosen: NDArray[np.bool_]
    inside: float
    outside: float
    on_first: bool

    def facts(self) -> dict[str, Any]:
        return {
            "outcomes_in_event": int(self.chosen.sum()),
            "inside": self.inside,
            "outside": self.outside,
            "likelier_on": "first" if self.on_first else "second",
        }


def _epsilon_of(best: _Best) -> float:
    return best.epsilon


def _compare(bounds: Bounds, delta: float) -> _Best:
    """The better of p against q and q against p."""
    forward = _best_event(bounds.low_p, bounds.high_q, delta, True)
    backward = _best_event(bounds.low_q, bounds.high_p, delta, False)
    return max(forward, backward, key=_epsilon_of)


def _best_event(low: _Floats, high: _Floats, delta: float, on_first: bool) -> _Best:
    """The set of outcomes of highest ratio whose (Pr[S] - delta) / Pr'[S] is largest.

    Which set is chosen need not be exact, because every set gives a bound; what it shows is.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratio = np.where(low > _NEGLIGIBLE, low / high, -1.0)
    order = np.argsort(-ratio, kind="stable")
    order = order[ratio[order] >= 0]
    chosen = np.zeros(len(low), np.bool_)
    if not len(order):
        return _Best(0.0, chosen, 0.0, 0.0, on_first)
    shown = _log_ratio(np.cumsum(low[order]), np.cumsum(high[order]), delta)
    chosen[order[: int(np.argmax(shown)) + 1]] = True
    inside = math.fsum(low[chosen]) * (1 - _ROUNDING)
    outside = math.fsum(high[chosen]) * (1 + _ROUNDING)
    epsilon = float(_log_ratio(np.array([inside]), np.array([outside]), delta)[0])
    return _Best(_down(epsilon), chosen, inside, outside, on_first)


def _log_ratio(inside: _Floats, outside: _Floats, delta: float) -> _Floats:
    """The ln((inside - delta) / outside), -inf where nothing is shown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(inside - delta) - np.log(outside)
    return np.where(inside > delta, logs, -np.inf)


def _down(epsilon: float) -> float:
    """``epsilon`` less the rounding of two logarithms, and at least 0."""
    if math.isinf(epsilon):
        return max(epsilon, 0.0)
    return max(0.0, epsilon - 1500 * 2.0**-53 - epsilon * _ROUNDING)


def _probabilities(name: str, values: ArrayLike) -> _Floats:
    found = np.asarray(values, np.float64).ravel()
    if not len(found) or not bool(np.all((found >= 0) & (found <= 1 + 1e-9))):
        validation.fail(name, "at least one probability, each from 0 to 1", values)
    return found


def _law(name: str, values: ArrayLike) -> _Floats:
    """The probabilities of some or all outcomes."""
    law = _probabilities(name, values)
    if (total := math.fsum(law)) > 1 + 1e-9:
        validation.fail(name, "probabilities that add up to 1 at most", f"a sum of {total!r}")
    return law


def _same_outcomes(first: _Floats, second: _Floats) -> None:
    if len(first) != len(second):
        validation.fail("q", f"a probability for each of the {len(first)} outcomes", len(second))


def _finite_bounds(p: ArrayLike, q: ArrayLike, accuracy: float) -> Bounds:
    error = validation.delta("accuracy", accuracy)
    first, second = _law("p", p), _law("q", q)
    _same_outcomes(first, second)
    less, more = 1 - error, 1 + error
    return Bounds(first * less, first * more, second * less, second * more)


def _edges(support: tuple[float, float], breaks: Sequence[float], cells: int) -> _Floats:
    """Equal cells between the breaks, about ``cells`` in all."""
    lower, upper = validation.interval("support", *support)
    marks = [validation.finite("breaks", mark) for mark in breaks]
    corners = np.unique([lower, upper, *(mark for mark in marks if lower < mark < upper)])
    shares = np.ceil(cells * np.diff(corners) / (upper - lower)).astype(int)
    limits = zip(corners[:-1].tolist(), corners[1:].tolist(), shares.tolist(), strict=True)
    pieces: list[_Floats] = [np.linspace(low, high, count + 16) for low, high, count in limits]
    return np.unique(np.concatenate(pieces))


def _finer(edges: _Floats, chosen: NDArray[np.bool_]) -> _Floats:
    """The cells on either side of every boundary of the event, split into 64."""
    turns = np.flatnonzero(np.diff(chosen.astype(np.int8)))
    split = np.unique(np.concatenate([turns, turns + 1]))[:256]
    starts, stops = edges[split], edges[split + 1]
    inner = starts[:, None] + (stops - starts)[:, None] * (np.arange(1, 64) / 64)
    return np.unique(np.concatenate([edges, inner.ravel()]))


_FINE = np.polynomial.legendre.leggauss(15)
_ROUGH = np.polynomial.legendre.leggauss(10)


def integrate_cells(p: Density, q: Density, edges: _Floats) -> Bounds:
    """The probability of each cell under two densities, between bounds.

    By Gauss and Legendre's rule of 15 points. The error is taken to be the difference to the rule
    of 10 points, which is far more where a density is smooth, and a relative :data:`ACCURACY`; in a
    cell where it is not (the two differ by a billionth), the density's range over the 15 points.
    """
    return Bounds(*_integral("p", p, edges), *_integral("q", q, edges))


def _integral(name: str, density: Density, edges: _Floats) -> tuple[_Floats, _Floats]:
    """Of each cell, from below and from above."""
    width = np.diff(edges)
    values = _evaluated(name, density, edges, _FINE[0])
    fine = values @ _FINE[1] * width / 2
    rough = _evaluated(name, density, edges, _ROUGH[0]) @ _ROUGH[1] * width / 2
    error = np.abs(fine - rough) + ACCURACY * fine
    smooth = error <= 1e-9 * fine
    low = np.where(smooth, fine - error, np.minimum(values.min(axis=1) * width, fine - error))
    high = np.where(smooth, fine + error, np.maximum(values.max(axis=1) * width, fine + error))
    if (total := math.fsum(low)) > 1 + 1e-6:
        validation.fail(name, "a density, whose integral is at most 1", f"an integral of {total!r}")
    return np.maximum(low, 0.0), high


def _evaluated(name: str, density: Density, edges: _Floats, nodes: _Floats) -> _Floats:
    """At the nodes of each cell."""
    points = edges[:-1, None] + np.diff(edges)[:, None] * (1 + nodes) / 2
    values = np.asarray(density(points.ravel()), np.float64).reshape(points.shape)
    if not bool(np.all((values >= 0) & np.isfinite(values))):
        validation.fail(name, "a density: finite and never below 0", density)
    return values
