"""From an update to whole numbers modulo 2^b, and from their sum back to a sum of updates.

    clip to L2 norm c -> rotate -> divide by gamma -> round -> (noise) -> modulo 2^b
    sum modulo 2^b -> centre -> multiply by gamma -> rotate back

    >>> from sfumato.core.randomness import SeededCoins
    >>> encoding = Encoding(clip=1.0, granularity=2.0**-10, bits=16, dimension=3)
    >>> whole = [encoding.encode(x, seed=4, coins=SeededCoins(1)) for x in ([0.6, 0, 0], [9, 0, 0])]
    >>> encoding.decode(encoding.wrap(sum(whole)), seed=4).round(2).tolist()
    [1.6, 0.0, 0.0]

The second update was clipped from 9 to 1. Modulo 2^b is a function of the sum of noisy integers, so
it tells no more than they do: a sum that wraps around costs utility and never privacy. How likely
that is, :func:`wrap_probability` bounds from public numbers.

Reference: Kairouz, Liu and Steinke, arXiv:2102.06387, algorithms 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.federated.integer_noise.rotation import Rotation, padded_dimension
from sfumato.federated.integer_noise.rounding import REJECTION, round_within, squared_norm_bound
from sfumato.mechanisms.additive import as_floats

__all__ = ["Encoding", "clipped", "wrap_probability"]

Residues = NDArray[np.uint64]


@final
@dataclass(frozen=True)
class Encoding:
    """How updates become integers; all of it public.

    Formal guarantee: whatever the update is, :meth:`encode` returns a whole vector of squared L2
    norm at most ``squared_norm``. That is how far one client can move the sum from where it would
    be had she sent zeros.

    Attributes:
        clip: c, the L2 norm that updates are clipped to.
        granularity: gamma, the step of the grid.
        bits: b, of every number on the wire; 2 to 62.
        dimension: of an update. On the wire it is the next power of two.
        rejection: see :func:`~sfumato.federated.integer_noise.rounding.squared_norm_bound`.
    """

    clip: float
    granularity: float
    bits: int
    dimension: int
    rejection: float = REJECTION

    def __post_init__(self) -> None:
        validation.positive("clip", self.clip)
        validation.positive("granularity", self.granularity)
        if not 2 <= validation.count("bits", self.bits) <= 62:
            validation.fail("bits", "between 2 and 62", self.bits)
        validation.count("dimension", self.dimension)
        _ = self.squared_norm  # checks what is left

    @property
    def padded(self) -> int:
        """How many numbers a client sends."""
        return padded_dimension(self.dimension)

    @property
    def squared_norm(self) -> int:
        """The largest squared L2 norm of what a client encodes, in steps."""
        return squared_norm_bound(self.clip / self.granularity, self.padded, self.rejection)

    def encode(self, update: ArrayLike, *, seed: int, coins: Coins = SYSTEM) -> NDArray[np.int64]:
        """The update clipped, rotated, scaled and rounded. There is no noise in it yet.

        Args:
            update: ``dimension`` numbers; what is no finite number counts as 0.
            seed: of the rotation: public, the same for all clients, a fresh one each round.
            coins: for rounding.
        """
        held = as_floats(update).ravel()
        if held.shape != (self.dimension,):
            validation.fail("update", f"a vector of {self.dimension} numbers", held.shape)
        turned = Rotation(self.dimension, seed).forward(clipped(held, self.clip))
        return round_within(turned / self.granularity, self.squared_norm, coins=coins)

    def wrap(self, whole: NDArray[np.int64]) -> Residues:
        """Modulo 2^b."""
        return whole.astype(np.uint64) & np.uint64((1 << self.bits) - 1)

    def decode(self, total: ArrayLike, *, seed: int) -> NDArray[np.float64]:
        """The sum of updates, from the sum of what clients sent, modulo 2^b (or a power above).

        Without noise and wrap-around it is within n gamma sqrt(k) of the sum of the n clipped
        updates in L2, k the padded dimension, because rounding moves no number by a whole step.
        """
        held = np.asarray(total)
        if held.dtype.kind not in "iu" or held.shape != (self.padded,):
            validation.fail("total", f"a vector of {self.padded} whole numbers", held.shape)
        shift = np.uint64(64 - self.bits)
        centred = (held.astype(np.uint64) << shift).view(np.int64) >> shift.astype(np.int64)
        return Rotation(self.dimension, seed).backward(centred * self.granularity)


def clipped(update: NDArray[np.float64], clip: float) -> NDArray[np.float64]:
    """The update, scaled down to L2 norm ``clip`` where it is longer; no size overflows."""
    largest = float(np.abs(update).max(initial=0.0))
    if largest == 0.0:
        return np.zeros_like(update)
    direction = update / largest
    norm = float(np.linalg.norm(direction))
    return direction * min(largest, clip / norm)


def wrap_probability(
    encoding: Encoding,
    clients: int,
    share_variance: float,
    log_moment: Callable[[float], float],
) -> float:
    """A bound on the probability that some number of the sum wraps around.

    A number of the sum is at most n in size for rounding (less than a step for each client), plus
    the rotated sum of updates, plus noise. The second is sub-Gaussian over the rotation's signs
    with proxy variance (n c / gamma)^2 / k, if all n updates have norm c and point one way, the
    worst case. By Chernoff, with room R = 2^(b-1) - n and log_moment(s) = ln E e^(s Y) of one
    client's noise, for any s,

        Pr[number >= R] <= exp(-s R + s^2 (n c / gamma)^2 / 2k + n log_moment(s)),

    taken for both signs of all k numbers, at about the best s.

    Args:
        encoding: how updates become integers.
        clients: n, the most that may take part.
        share_variance: of one client's noise, in steps; where to look for s.
        log_moment: of one client's noise.
    """
    n = validation.count("clients", clients)
    room = 2.0 ** (encoding.bits - 1) - n - 1
    if room <= 0:
        return 1.0
    signal = (n * encoding.clip / encoding.granularity) ** 2 / encoding.padded

    def exponent(s: float) -> float:
        return -s * room + s * s * signal / 2 + n * log_moment(s)

    low, high = 0.0, min(room / (signal + n * share_variance), 500.0)
    for _ in range(60):  # the exponent is convex in s
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if exponent(one) < exponent(two) else (one, high)
    return min(1.0, math.exp(min(0.0, math.log(2 * encoding.padded) + exponent(high))))
