"""The standard deviation of the noise on every number of a sum, where it is added."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.federation import Federation
from sfumato.federated.noises import CentralNoise
from sfumato.federated.sums import MaskedSum
from sfumato.federated.works import ClientUpdates

__all__ = ["noise_scales"]


def noise_scales(federation: Federation, clip: float, size: int) -> NDArray[np.float64]:
    """Z C for each of ``size`` parameters.

    Where C adapts, a count stands behind them, with noise sigma_b of its own, and the parameters
    have the multiplier z_g > z: both together are one Gaussian release of multiplier z (see
    :class:`~sfumato.learning.dp_sgd.clipping.Adaptive`).
    """
    work, z = federation.work, federation.noise.strength
    clip = clip + _rounding(federation, size)
    adaptive = work.adaptive(federation.expected) if isinstance(work, ClientUpdates) else None
    if adaptive is None:
        return np.full(size, z * clip)
    if z == 0:
        return np.zeros(size + 1)
    assert adaptive.count_noise is not None
    (scale,) = adaptive.noise_scales(z, (clip,))
    return np.append(np.full(size, scale), adaptive.count_noise)


def _rounding(federation: Federation, size: int) -> float:
    """How much further one unit may move a sum that is made on a grid, before the server's noise.

    Two vectors that are rounded to multiples of 2^-f, number by number, are at most sqrt(d) 2^-f
    further apart than before.
    """
    sums = federation.sums
    if not isinstance(sums, MaskedSum) or not isinstance(federation.noise, CentralNoise):
        return 0.0
    return math.sqrt(size) * 2.0**-sums.fraction_bits
