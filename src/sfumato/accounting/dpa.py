"""The one door to dp-accounting: untyped, slow to import, with defects we stay clear of.

What is used: its discretised privacy loss distributions with their composition, and its RDP of
sampled Gaussians. What is *not* used, because it is wrong or missing in 0.6.0, each with a test:

* ``PLDAccountant`` forgets ``count`` for randomised response; it is never called. Distributions are
  built here and composed by :mod:`sfumato.accounting.pld`, which counts atoms itself.
* ``RdpAccountant`` charges ``GaussianDpEvent`` the same under replace-one as under add/remove, and
  its fixed-size sampling takes the noise over the sensitivity without doubling the latter. Our
  atoms already hold the distance between neighbours, so it is only ever asked about that.
* ``from_privacy_parameters`` rounds both losses up to the grid, which over many events adds up;
  :func:`from_losses` connects the dots instead.
* Its discrete Gaussian refuses a sensitivity beyond 23 sigma and cannot see one close to it; its
  discrete Laplace overflows below a scale of 1/700. Both are built from losses here.
* Composition by FFT rounds, by about 10^-16 a step, which is not charged there. Distributions are
  composed by :mod:`sfumato.accounting.convolution`, which charges a proved bound.
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
    "from_losses",
    "from_masses",
    "from_profiles",
    "identity",
    "infinite_mass",
    "laplace",
    "masses",
    "nothing_left",
    "rdp_fixed_size_gaussian",
    "rdp_poisson_gaussian",
]

_FEW = 1000

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


def nothing_left(grid: float) -> Pld:
    """No privacy: every loss infinite."""
    return from_masses([LossMasses(0, np.zeros(1), 1.0, grid)])


def infinite_mass(distribution: Pld) -> float:
    """The probability of infinite loss, in the worse direction."""
    return float(max(distribution._pmf_remove._infinity_mass, distribution._pmf_add._infinity_mass))


def from_masses(directions: Sequence[LossMasses]) -> Pld:
    """A distribution given as arrays: one entry if symmetric, else (removed, added)."""
    return pld.PrivacyLossDistribution(
        *(
            pld_pmf.DensePLDPmf(d.grid, d.lowest, d.probs, d.infinite, pessimistic_estimate=True)
            for d in directions
        )
    )


def laplace(noise_multiplier: float, grid: float, sample_rate: float = 1.0) -> Pld:
    """Laplace noise; with ``sample_rate``, on a Poisson sample (added or removed)."""
    return pld.from_laplace_mechanism(
        noise_multiplier, value_discretization_interval=grid, sampling_prob=sample_rate
    )


def from_losses(*directions: tuple[Floats, Floats, float], grid: float) -> Pld:
    """The distribution of a pair with finitely many losses, moved onto the grid.

    Each loss's mass goes to the grid points around it in the one way that keeps it under P and
    under Q: the same as connecting the dots, without taking differences of delta.

    Args:
        directions: one if symmetric, else (removed, added): losses, their probabilities, and that
            of infinite loss.
        grid: spacing.
    """
    return pld.PrivacyLossDistribution(*(_moved(*direction, grid) for direction in directions))


def _moved(losses: Floats, probs: Floats, infinite: float, grid: float) -> Any:
    below = np.floor(losses / grid)
    up = np.clip(probs * (np.expm1(below * grid - losses) / math.expm1(-grid)), 0.0, probs)
    lowest = int(below.min())
    cells = (below - lowest).astype(np.int64)
    size = int(cells.max()) + 2
    dense = np.zeros(size)
    dense += np.bincount(cells, probs - up, size)
    dense += np.bincount(cells + 1, up, size)
    return _pmf(LossMasses(lowest, dense, infinite, grid))


def from_profiles(*curves: tuple[NDArray[np.int64], Profile], grid: float) -> Pld:
    """The pessimistic distribution whose hockey-stick curve passes through given points.

    Doroshenko et al., arXiv:2207.04380, algorithm 1.

    Args:
        curves: for a symmetric pair one, else (removed, added): neighbouring points, as losses in
            units of ``grid``, and delta as a function of epsilon. It must be convex in e^epsilon,
            as a hockey-stick curve or a maximum of several is, and 1 - e^epsilon at the lowest
            point. What is left at the highest becomes infinite loss.
        grid: spacing.
    """
    return pld.PrivacyLossDistribution(
        *(_connected(points, profile, grid) for points, profile in curves)
    )


def _connected(points: NDArray[np.int64], profile: Profile, grid: float) -> Any:
    with np.errstate(over="ignore"):  # e^epsilon may be infinite, where delta is 0
        deltas = profile(points.astype(np.float64) * grid)
    deltas = np.clip(np.minimum.accumulate(deltas), 0.0, 1.0)
    fall = -np.diff(deltas)
    up, down = fall / -math.expm1(-grid), fall / math.expm1(grid)
    probs = np.maximum(0.0, np.append(1 - deltas[0], up) - np.append(down, 0.0))
    return _pmf(LossMasses(int(points[0]), probs, float(deltas[-1]), grid))


def _pmf(m: LossMasses) -> Any:
    """Sparse where few losses occur: the library composes those without a Fourier transform."""
    filled = np.flatnonzero(m.probs)
    if len(filled) > _FEW:
        return pld_pmf.DensePLDPmf(m.grid, m.lowest, m.probs, m.infinite, pessimistic_estimate=True)
    few = dict(zip((m.lowest + filled).tolist(), m.probs[filled].tolist(), strict=True))
    return pld_pmf.SparsePLDPmf(few or {0: 0.0}, m.grid, m.infinite, pessimistic_estimate=True)


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
