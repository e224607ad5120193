"""Noise in shares: every client adds a little, the server sees the sum, and the sum is private.

    >>> from sfumato.accounting import account
    >>> noise = DistributedSkellam.calibrate(
    ...     epsilon=2.0, delta=1e-6, rounds=10, clip=1.0, dimension=1000, clients=50, n_min=40,
    ...     bits=20)
    >>> account(noise.event(10), 1e-6, accountant="rdp")
    Guarantee: epsilon 2, delta 1e-06, blank out the data of one client
    >>> updates = np.random.default_rng(1).normal(size=(50, 1000)) / 100
    >>> sent = [noise.message(update, seed=1) for update in updates]
    >>> total = np.sum(sent, axis=0)  # what a secure sum shows the server, and nothing else
    >>> noise.release(total, survivors=50, colluders=10, seed=1).shape
    (1000,)

**What is compared** (zero-out): one client's update against zeros. In either case she takes part
and adds her share of noise. Whether she takes part is not hidden: without her there is a share less
in the sum, which over k numbers of n shares shows by a divergence of about a k / 4 n^2 at order a.
The list of participants is public in a secure sum anyway.

**n_min** is the fewest shares of honest clients in any sum that is released: survivors less
colluders, the one who is protected included. The sum of more is no worse: it is the sum of n_min
honest ones, her own among them, plus something independent of her. Colluders know their own noise,
so theirs does not count.

**The observer** sees sums modulo 2^b: the server, colluding clients and everyone after them. If the
secure sum fails, what is left is one share, n_min times less variance. A secure sum must never be
opened for fewer than n_min + colluders clients: whoever opens it has seen it, so that the clients'
own threshold has to say so, and :meth:`DistributedNoise.release` is only the last line.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import RdpCurveEvent, ZcdpEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.core.sensitivity import Sensitivity
from sfumato.federated.integer_noise import gaussian_sums
from sfumato.federated.integer_noise.distributed import DistributedNoise
from sfumato.mechanisms import discrete_gaussian_law, skellam_law
from sfumato.mechanisms.sampling import discrete_gaussian, skellam
from sfumato.mechanisms.sampling.skellam import check_variance
from sfumato.mechanisms.skellam import skellam_curve

__all__ = ["DistributedGaussian", "DistributedSkellam"]

_CLIENT = Sensitivity(1.0, neighbours=Neighbours.ZERO_OUT, unit="client")
_LEAST_SIGMA, _LARGEST_SIGMA = 2.0**-20, 2.0**40


@final
@dataclass(frozen=True)
class DistributedGaussian(DistributedNoise):
    """Shares of discrete Gaussian noise N_Z(sigma^2), sigma = z c / (gamma sqrt(n_min)).

    Formal guarantee: rho-zCDP for one client's update against zeros, with rho of
    :mod:`~sfumato.federated.integer_noise.gaussian_sums` for integer vectors at most
    ``encoding.squared_norm`` apart (squared L2), to whoever sees the sum of n_min or more shares.
    """

    def _check_share(self) -> None:
        if not _LEAST_SIGMA <= self.share_deviation <= _LARGEST_SIGMA:
            validation.fail(
                "noise_multiplier",
                "such that a share's noise is between 2^-20 and 2^40 steps: change the granularity",
                self.noise_multiplier,
            )

    def _noise(self, size: int, coins: Coins) -> NDArray[np.int64]:
        return discrete_gaussian(self.share_deviation, size, coins)

    def _share_variance(self) -> float:
        return discrete_gaussian_law.standard_deviation(self.share_deviation) ** 2

    def _log_moment(self, s: float) -> float:
        """At most s^2 sigma^2 / 2: e^(that) theta(s sigma^2) / theta(0), and theta peaks at 0."""
        return s * s * self.share_deviation**2 / 2

    def _round_event(self) -> ZcdpEvent:
        encoding = self.encoding
        rho = gaussian_sums.rho(
            self.share_deviation, self.n_min, encoding.squared_norm, encoding.padded
        )
        return ZcdpEvent(rho, _CLIENT.neighbours, _CLIENT.unit)


@final
@dataclass(frozen=True)
class DistributedSkellam(DistributedNoise):
    """Shares of Skellam noise of variance (z c / gamma)^2 / n_min.

    Formal guarantee: the RDP of :func:`~sfumato.mechanisms.skellam_law.rdp` for one client's update
    against zeros, because n_min shares sum to exactly one Skellam number of n_min times the
    variance, and integer vectors are at most ``encoding.squared_norm`` apart (squared L2); to
    whoever sees the sum of n_min or more shares.
    """

    def _check_share(self) -> None:
        check_variance("noise_multiplier's share of variance", self.share_deviation**2)

    def _noise(self, size: int, coins: Coins) -> NDArray[np.int64]:
        return skellam(self.share_deviation**2, size, coins)

    def _share_variance(self) -> float:
        return self.share_deviation**2

    def _log_moment(self, s: float) -> float:
        """Exactly v (cosh s - 1)."""
        return 2 * self.share_deviation**2 * math.sinh(s / 2) ** 2

    def _round_event(self) -> RdpCurveEvent:
        encoding = self.encoding
        squared = float(encoding.squared_norm)
        l1 = skellam_law.largest_l1(math.sqrt(squared), encoding.padded)
        return skellam_curve(self.n_min * self.share_deviation**2, squared, l1, _CLIENT)
