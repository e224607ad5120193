"""Where noise is added, and so against whom it protects.

=====================  ============================  ============================================
noise                  added by                      protects against
=====================  ============================  ============================================
:class:`NoNoise`       nobody                        nobody: for comparison
:class:`CentralNoise`  the server, to the sum        those who see released models; the server is
                                                     trusted with everybody's contribution
:class:`LocalNoise`    each participant, in full     the server, too, and everyone
:class:`SharedNoise`   each participant, a share     the server, too, if it sees nothing but sums
=====================  ============================  ============================================

With n participants and noise of z C where it is added, the noisy sum has a standard deviation of
z C (central), sqrt(n) z C (local) and, with shares of z C / sqrt(least), sqrt(n / least) z C: the
server's trust is worth a factor of sqrt(n), and a secure sum wins nearly all of it back.

All noise is drawn from the operating system's entropy; floating-point noise assumes ideal Gaussian
numbers, and a record says so. Integer shares are exact.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.kinds import ByKind
from sfumato.core.randomness import Coins

__all__ = ["CentralNoise", "Law", "LocalNoise", "NoNoise", "Noise", "SharedNoise", "noisy"]

Numbers = NDArray[np.float64]


class Noise(ByKind, ABC, family=True):
    """Who adds how much. Subclasses are frozen dataclasses named by ``kind`` in JSON."""

    @property
    def strength(self) -> float:
        """z, the standard deviation of the noise over the clip norm, where it is added."""
        return 0.0

    def at_participant(self, contribution: Numbers, scales: Numbers, coins: Coins) -> Numbers:
        """What a participant sends, for her contribution."""
        return contribution

    def at_server(self, total: Numbers, scales: Numbers, coins: Coins) -> Numbers:
        """What the server releases, for the sum it has."""
        return total


@final
@dataclass(frozen=True)
class NoNoise(Noise):
    """None: no guarantee, a baseline."""

    kind: ClassVar[str] = "none"


@final
@dataclass(frozen=True)
class CentralNoise(Noise):
    """The server adds N(0, (z C)^2) to every number of the sum, once.

    Attributes:
        multiplier: z.
    """

    kind: ClassVar[str] = "central"
    multiplier: float

    @property
    def strength(self) -> float:
        """The multiplier."""
        return self.multiplier

    def __post_init__(self) -> None:
        validation.positive("multiplier", self.multiplier)

    def at_server(self, total: Numbers, scales: Numbers, coins: Coins) -> Numbers:
        """With noise."""
        return noisy(total, scales, coins)


@final
@dataclass(frozen=True)
class LocalNoise(Noise):
    """Each participant adds N(0, (z C)^2) to every number before she sends it.

    Attributes:
        multiplier: z, of one contribution.
        least: how many participants' noise, unknown to who looks, is in every released sum. What
            released models promise rests on it.
        colluders: how many participants may look, together, and know their own noise; a round
            with fewer than ``least + colluders`` participants is thrown away. 1 at least: each
            participant sees models.
    """

    kind: ClassVar[str] = "local"
    multiplier: float
    least: int = 1
    colluders: int = 1

    @property
    def strength(self) -> float:
        """The multiplier."""
        return self.multiplier

    def __post_init__(self) -> None:
        validation.positive("multiplier", self.multiplier)
        validation.count("least", self.least)
        validation.count("colluders", self.colluders)

    def at_participant(self, contribution: Numbers, scales: Numbers, coins: Coins) -> Numbers:
        """With noise."""
        return noisy(contribution, scales, coins)


class Law(StrEnum):
    """Of integer noise in shares."""

    GAUSSIAN = "gaussian"
    SKELLAM = "skellam"


@final
@dataclass(frozen=True)
class SharedNoise(Noise):
    """Each participant adds integers of variance (z C / gamma)^2 / least, under a secure sum.

    What a participant sends is rounded to multiples of gamma, and the sum is taken modulo 2^bits;
    see :mod:`~sfumato.federated.integer_noise`.

    Attributes:
        multiplier: z, of the sum of ``least`` shares.
        least: the fewest shares in a sum that are unknown to who looks: survivors less colluders.
        law: of a share.
        bits: of every number that is summed.
        colluders: how many participants may look together, or tell the server; 1 at least, since
            each participant sees models. A masked sum must open for no fewer than
            ``least + colluders``.
    """

    kind: ClassVar[str] = "shared"
    multiplier: float
    least: int
    law: Law = Law.SKELLAM
    bits: int = 32
    colluders: int = 1

    @property
    def strength(self) -> float:
        """The multiplier."""
        return self.multiplier

    def __post_init__(self) -> None:
        validation.positive("multiplier", self.multiplier)
        validation.count("least", self.least)
        validation.count("colluders", self.colluders)
        object.__setattr__(self, "law", validation.choice("law", self.law, Law))
        if not 8 <= validation.count("bits", self.bits) <= 62:
            validation.fail("bits", "between 8 and 62", self.bits)

    def _plain(self, value: Any) -> Any:
        return value.value if isinstance(value, Law) else value

    def at_participant(self, contribution: Numbers, scales: Numbers, coins: Coins) -> Numbers:
        """Never as floats: shares are integers, added where contributions are encoded."""
        raise ValueError("a share of noise is added to integers under a masked sum, nowhere else")


def noisy(values: Numbers, scales: Numbers, coins: Coins) -> Numbers:
    """Each number plus fresh normal noise of its own standard deviation."""
    import torch

    from sfumato.learning.dp_sgd.noise import CoinNoise

    drawn = CoinNoise(coins).normal(torch.empty(len(values), dtype=torch.float64), 1.0)
    return values + scales * drawn.numpy()
