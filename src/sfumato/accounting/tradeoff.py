"""The whole guarantee: the trade-off curve (f-DP), and epsilon at several deltas, from one call.

An attacker who must tell one data set from a neighbour, and whose false positive rate is alpha, has
a false negative rate of at least f(alpha). The curve f says everything that (epsilon, delta) pairs
say, for all of them at once:

    f(alpha) = max over eps of  1 - delta(eps) - e^eps alpha,  e^-eps (1 - delta(eps) - alpha).

Dong, Roth and Su, "Gaussian differential privacy", arXiv:1905.02383, proposition 2.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sfumato.accounting.account import account_many, as_event, resolve_relation
from sfumato.accounting.atoms import flatten
from sfumato.accounting.dpa import DEFAULT_ORDERS, Floats
from sfumato.accounting.pld import loss_distribution, merged
from sfumato.accounting.rdp import RdpVector, rdp_vector
from sfumato.accounting.support import UnsupportedError
from sfumato.core import validation
from sfumato.core.events import Event, GaussianEvent
from sfumato.core.gaussian_profile import gaussian_delta
from sfumato.core.guarantee import Guarantee, round_up
from sfumato.core.html import facts_table
from sfumato.core.neighbours import Neighbours

_LEAST_NOISE = 1e-100  # below it squares of 1 / noise leave floating point

__all__ = ["DEFAULT_DELTAS", "PrivacyProfile", "privacy_profile"]

DEFAULT_DELTAS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class PrivacyProfile:
    """Everything an event promises.

    Attributes:
        guarantees: epsilon at each delta asked for.
        alphas: false positive rates, increasing from 0 to 1.
        betas: at each, the least false negative rate any attacker can have.
        advantage: the largest true minus false positive rate of any attacker: delta at epsilon 0,
            the total variation distance.
    """

    guarantees: tuple[Guarantee, ...]
    alphas: Floats = field(repr=False)
    betas: Floats = field(repr=False)
    advantage: float

    def power_at(self, false_positive_rate: float) -> float:
        """The largest true positive rate an attacker can have at this false positive rate."""
        rate = validation.open_probability("false_positive_rate", false_positive_rate)
        # The curve falls, so its value at the next larger rate is a lower bound here.
        above = int(np.searchsorted(self.alphas, rate, side="left"))
        return float(1 - self.betas[min(above, len(self.betas) - 1)])

    def _repr_html_(self) -> str:
        rows = [
            (f"{one.delta:g}", _shown(one.epsilon), one.neighbours.describe(one.unit))
            for one in self.guarantees
        ]
        note = (
            "Any attacker's true positive rate is above its false positive rate by at most "
            f"{_shown(self.advantage)}, and is at most {_shown(self.power_at(0.01))} where that is "
            "0.01."
        )
        headings = ("delta", "epsilon", "neighbours")
        return facts_table("Privacy profile", rows, headings=headings, note=note)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "guarantees": [guarantee.to_dict() for guarantee in self.guarantees],
            "advantage": self.advantage,
            "trade_off": {"alpha": self.alphas.tolist(), "beta": self.betas.tolist()},
        }


def _shown(value: float) -> str:
    return "infinite" if np.isinf(value) else f"{round_up(value):.10g}"


def privacy_profile(
    event: Event | Sequence[Event],
    deltas: Sequence[float] = DEFAULT_DELTAS,
    *,
    neighbours: Neighbours | str | None = None,
    points: int = 201,
    rates: Sequence[float] = (),
    largest_epsilon: float | None = None,
) -> PrivacyProfile:
    """Epsilon at each of ``deltas`` and the trade-off curve at ``points`` false positive rates.

    Between those rates the curve is read from above; name ``rates`` where it shall be exact. The
    curve is a lower bound on the true one, as every epsilon is an upper bound.

    An event that is valid for statements up to ``largest_epsilon`` alone (lots that were cut, see
    :meth:`sfumato.learning.dp_sgd.lots.Lots.events`) is asked for nothing above it: deltas that
    would need more are left out, and so are the lines of the curve.

    Example:
        >>> from sfumato.core.events import dp_sgd
        >>> profile = privacy_profile(dp_sgd(4, 0.01, 10_000), deltas=[1e-5])
        >>> profile.guarantees[0], round(profile.power_at(0.01), 3)
        (Guarantee: epsilon 0.947, delta 1e-05, add or remove one record, 0.02)
    """
    whole = as_event(event)
    relation = resolve_relation(whole, neighbours)
    guarantees = tuple(account_many(whole, deltas, neighbours=relation))
    epsilons, deltas_at = _delta_curve(whole, relation)
    if largest_epsilon is not None:
        largest = validation.non_negative("largest_epsilon", largest_epsilon)
        guarantees = tuple(one for one in guarantees if one.epsilon <= largest)
        valid = epsilons <= largest
        epsilons, deltas_at = epsilons[valid], deltas_at[valid]
    asked = [validation.open_probability("rates", rate) for rate in rates]
    alphas = np.union1d(_rates(validation.at_least("points", points, 3)), asked)
    betas = _trade_off(epsilons, deltas_at, alphas)
    return PrivacyProfile(guarantees, alphas, betas, advantage=float(deltas_at[0]))


def _rates(points: int) -> Floats:
    """Rates from 0 to 1, half of them close to 0 where attacks are judged."""
    small = np.geomspace(1e-8, 0.1, points // 2)
    return np.concatenate([[0.0], small, np.linspace(0.1, 1.0, points - points // 2)[1:]])


def _delta_curve(event: Event, relation: Neighbours) -> tuple[Floats, Floats]:
    """Delta at many epsilons >= 0, by the best means there are."""
    atoms = merged(flatten(event, relation))
    if not atoms:
        return np.zeros(1), np.zeros(1)
    if len(atoms) == 1 and isinstance(atoms[0][0], GaussianEvent):
        noise = atoms[0][0].noise_multiplier
        if noise < _LEAST_NOISE:
            validation.fail("noise_multiplier", f"at least {_LEAST_NOISE:g}", noise)
        mu = 1 / noise
        epsilons = np.linspace(0.0, mu**2 / 2 + 9 * mu, 4001)
        return epsilons, np.array([gaussian_delta(1 / mu, float(e)) for e in epsilons])
    try:
        losses = loss_distribution(event, relation)
    except UnsupportedError:
        return _rdp_curve(rdp_vector(event, relation, DEFAULT_ORDERS))
    top = max(float(d.losses[-1]) for d in losses.directions)
    epsilons = np.linspace(0.0, max(top, 1e-6), 20_001)
    return epsilons, losses.delta(epsilons)


def _rdp_curve(vector: RdpVector) -> tuple[Floats, Floats]:
    orders = np.asarray(vector.orders)
    usable = (orders > 1.01) & np.isfinite(vector.values)
    a, v = orders[usable], vector.values[usable]
    epsilons = np.linspace(0.0, vector.epsilon(1e-12 + vector.slack), 4001)
    log = np.min((a - 1) * (v - epsilons[:, None] + np.log1p(-1 / a)) - np.log(a), axis=1)
    return epsilons, np.minimum(1.0, np.exp(np.minimum(log, 0.0)) + vector.slack)


def _trade_off(epsilons: Floats, deltas: Floats, alphas: Floats) -> Floats:
    """The upper envelope of the two families of lines that (epsilon, delta) pairs draw."""
    kept = epsilons <= 700
    eps, room = epsilons[kept], 1 - deltas[kept]
    steep = room[None, :] - np.exp(eps)[None, :] * alphas[:, None]
    flat = np.exp(-eps)[None, :] * (room[None, :] - alphas[:, None])
    return np.clip(np.maximum(steep, flat).max(axis=1), 0.0, 1.0)
