"""The one door to dp-accounting: untyped, slow to import, with defects we stay clear of.

What is used: its discretised privacy loss distributions with their composition, and its RDP of
sampled Gaussians. What is *not* used, because it is wrong or missing in 0.6.0, each with a test:

* ``PLDAccountant`` forgets ``count`` for randomised response; it is never called. Distributions are
  built here and composed by :mod:`sfumato.accounting.pld`, which counts atoms itself.
* ``RdpAccountant`` charges ``GaussianDpEvent`` the same under replace-one as under add/remove, and
  its fixed-size sampling takes the noise over the sensitivity without doubling the latter. Our
  atoms already hold the distance between neighbours, so it is only ever asked about that.
* ``from_privacy_parameters`` rounds both losses up to the grid, which over many events adds up;
  :func:`two_point` connects the dots instead.
* A negative RDP, from numerical trouble, is turned there into epsilon 0; see
  :func:`sfumato.accounting.rdp.epsilon_from_rdp`.
"""

# pyright: reportMissingTypeStubs=false, reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dp_accounting import dp_event
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from numpy.typing import NDArray

__all__ = [
    "DEFAULT_ORDERS",
    "GRID",
    "Floats",
    "LossMasses",
    "Pld",
    "Profile",
    "discrete_gaussian",
    "discrete_laplace",
    "from_masses",
    "from_profiles",
    "gaussian_mixture",
    "identity",
    "laplace",
    "masses",
    "rdp_fixed_size_gaussian",
    "rdp_poisson_gaussian",
    "two_point",
]

Floats = NDArray[np.float64]
Pld = Any
"""A ``PrivacyLossDistribution``: has compose, self_compose, get_epsilon_for_delta, ..."""

Profile = Callable[[Floats], Floats]
"""delta as a function of epsilon."""

GRID = 1e-4
"""Spacing of privacy losses. 1e-2 would turn 0.947 into 1.758."""

DEFAULT_ORDERS: tuple[float, ...] = tuple(float(order) for order in rdp.DEFAULT_RDP_ORDERS)


@dataclass(frozen=True)
class LossMasses:
    """Privacy losses in one direction: ``probs[i]`` at loss ``(lowest + i) * grid``."""

    lowest: int
    probs: Floats
    infinite: float
    grid: float

    @property
    def losses(self) -> Floats:
        """The losses, increasing."""
        return (self.lowest + np.arange(len(self.probs), dtype=np.float64)) * self.grid


def masses(distribution: Pld) -> list[LossMasses]:
    """The distribution as arrays: one entry if symmetric, else (removed, added)."""
    directions = [distribution._pmf_remove]
    if not distribution._symmetric:
        directions.append(distribution._pmf_add)
    dense = [direction.to_dense_pmf() for direction in directions]
    return [
        LossMasses(
            int(d._lower_loss), np.asarray(d._probs), float(d._infinity_mass), d._discretization
        )
        for d in dense
    ]


def identity(grid: float) -> Pld:
    """Nothing released."""
    return pld.identity(grid)


def from_masses(directions: Sequence[LossMasses]) -> Pld:
    """A distribution given as arrays: one entry if symmetric, else (removed, added)."""
    return pld.PrivacyLossDistribution(
        *(
            pld_pmf.DensePLDPmf(d.grid, d.lowest, d.probs, d.infinite, pessimistic_estimate=True)
            for d in directions
        )
    )


def gaussian_mixture(
    noise_multiplier: float, sizes: Sequence[float], weights: Sequence[float], grid: float
) -> Pld:
    """Gaussian noise on a sum that moves by a random one of ``sizes``."""
    return pld.from_mixture_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        sensitivities=list(sizes),
        sampling_probs=list(weights),
        value_discretization_interval=grid,
    )


def laplace(noise_multiplier: float, grid: float, sample_rate: float = 1.0) -> Pld:
    """Laplace noise; with ``sample_rate``, on a Poisson sample (added or removed)."""
    return pld.from_laplace_mechanism(
        noise_multiplier, value_discretization_interval=grid, sampling_prob=sample_rate
    )


def discrete_laplace(scale: float, sensitivity: int, grid: float) -> Pld:
    """Discrete Laplace noise on one integer."""
    return pld.from_discrete_laplace_mechanism(
        1 / scale,
        sensitivity=sensitivity,
        value_discretization_interval=grid,
        use_connect_dots=True,
    )


def discrete_gaussian(sigma: float, sensitivity: int, grid: float) -> Pld:
    """Discrete Gaussian noise on one integer."""
    return pld.from_discrete_gaussian_mechanism(
        sigma,
        sensitivity=sensitivity,
        value_discretization_interval=grid,
        use_connect_dots=True,
    )


def two_point(epsilon: float, delta: float, grid: float) -> Pld:
    """The worst (epsilon, delta)-DP pair: Kairouz, Oh and Viswanath, arXiv:1311.0776, section 3.

    Loss infinite with probability delta, else +epsilon or -epsilon with odds e^epsilon.
    """

    def profile(at: Floats) -> Floats:
        up = (1 - delta) / (1 + math.exp(-epsilon))
        down = (1 - delta) / (1 + math.exp(epsilon))
        above = up * np.maximum(0.0, -np.expm1(at - epsilon))
        below = down * np.maximum(0.0, -np.expm1(at + epsilon))
        return delta + above + below

    edge = math.ceil(epsilon / grid)
    inner = math.floor(epsilon / grid)
    points = np.array(sorted({-edge, -inner, inner, edge}))
    return from_profiles((points, profile), grid=grid)


def from_profiles(*curves: tuple[NDArray[np.int64], Profile], grid: float) -> Pld:
    """The pessimistic distribution whose hockey-stick curve passes through given points.

    Args:
        curves: for a symmetric pair one, else (removed, added): the points, as losses in units of
            ``grid``, and delta as a function of epsilon. It must be convex in e^epsilon, as a
            hockey-stick curve or a maximum of several is, and 1 - e^epsilon at the lowest point.
            What is left at the highest becomes infinite loss.
        grid: spacing.
    """
    pmfs = [
        pld_pmf.create_pmf_pessimistic_connect_dots(
            grid,
            points,
            np.clip(np.minimum.accumulate(profile(points.astype(np.float64) * grid)), 0.0, 1.0),
        )
        for points, profile in curves
    ]
    return pld.PrivacyLossDistribution(*pmfs)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Without the library's warnings about orders it drops, which are infinite in its answer."""
    logger = logging.getLogger("absl")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@functools.lru_cache(maxsize=256)
def rdp_poisson_gaussian(
    noise_multiplier: float, sample_rate: float, orders: tuple[float, ...]
) -> Floats:
    """RDP of the Poisson-sampled Gaussian, add/remove: Mironov, Talwar, Zhang, arXiv:1908.10530."""
    event = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise_multiplier))
    with _quiet():
        return rdp.RdpAccountant(orders).compose(event).rdp


@functools.lru_cache(maxsize=256)
def rdp_fixed_size_gaussian(
    noise_multiplier: float, sample_size: int, population: int, orders: tuple[float, ...]
) -> Floats:
    """RDP of a Gaussian on a sample without replacement: Wang, Balle, Kasiviswanathan, thm 27.

    arXiv:1808.00087. ``noise_multiplier`` is over the distance a replaced record moves the sum.
    """
    event = dp_event.SampledWithoutReplacementDpEvent(
        population, sample_size, dp_event.GaussianDpEvent(noise_multiplier)
    )
    accountant = rdp.RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    return accountant.compose(event).rdp
