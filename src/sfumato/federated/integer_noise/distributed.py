"""What integer noise in shares has in common, whatever its law; see :mod:`.shares`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.accounting import calibrate as calibrated
from sfumato.accounting import sampled_curve
from sfumato.core import validation
from sfumato.core.events import Event, Leaf, repeat
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.federated.integer_noise.encoding import Encoding, Residues, wrap_probability
from sfumato.federated.integer_noise.rounding import REJECTION
from sfumato.mechanisms.sampling import bernoulli

__all__ = ["DistributedNoise", "TooFewShares"]

_FINEST_SHARE = 2.0**12
_FINEST_CLIP = 2.0**24


class TooFewShares(ValueError):  # noqa: N818 - the name operators read
    """A sum with less noise than was promised."""


@dataclass(frozen=True)
class DistributedNoise(ABC):
    """Integer noise in shares, under a secure sum; every field is public.

    Attributes:
        clip: c, the L2 norm that updates are clipped to.
        granularity: gamma, the step of the grid.
        bits: b, of every number on the wire.
        dimension: of an update.
        clients: the most that may take part in a round; decides how likely a sum wraps around.
        n_min: the fewest shares of honest clients in a released sum: survivors less colluders.
        noise_multiplier: z, the standard deviation of n_min shares together over the clip norm.
        rejection: see :mod:`~sfumato.federated.integer_noise.rounding`.
    """

    clip: float
    granularity: float
    bits: int
    dimension: int
    clients: int
    n_min: int
    noise_multiplier: float
    rejection: float = REJECTION

    def __post_init__(self) -> None:
        validation.positive("noise_multiplier", self.noise_multiplier)
        validation.count("clients", self.clients)
        if validation.count("n_min", self.n_min) > self.clients:
            validation.fail("n_min", f"at most clients ({self.clients})", self.n_min)
        _ = self.encoding
        self._check_share()

    @classmethod
    def with_bits(
        cls,
        *,
        clip: float,
        dimension: int,
        clients: int,
        n_min: int,
        bits: int,
        noise_multiplier: float,
        wrap: float = 1e-6,
    ) -> Self:
        """On the finest grid on which a round wraps around with probability at most ``wrap``.

        Never finer than a 2^-12th of a share's noise, or a 2^-24th of the clip norm: beyond, a
        finer grid gains nothing.

        Raises:
            ValueError: if ``bits`` are too few for any grid.
        """
        validation.open_probability("wrap", wrap)

        def on(granularity: float) -> Self:
            return cls(clip, granularity, bits, dimension, clients, n_min, noise_multiplier)

        share = noise_multiplier * clip / math.sqrt(n_min)
        low = max(share / _FINEST_SHARE, clip / _FINEST_CLIP)
        if on(low).wrap_probability <= wrap:
            return on(low)
        high = 2 * low
        while on(high).wrap_probability > wrap:
            low, high = high, 2 * high
            if high > 64 * max(share, clip):
                validation.fail("bits", f"more for {clients} clients of norm {clip!r}", bits)
        for _ in range(24):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if on(middle).wrap_probability <= wrap else (middle, high)
        return on(high)

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float,
        delta: float,
        rounds: int = 1,
        clip: float,
        dimension: int,
        clients: int,
        n_min: int,
        bits: int,
        sample_rate: float = 1.0,
        wrap: float = 1e-6,
    ) -> Self:
        """The least noise with which ``rounds`` rounds are within the target, by RDP.

        For ``sample_rate`` see :meth:`event`.
        """

        def with_noise(z: float) -> Self:
            return cls.with_bits(
                clip=clip, dimension=dimension, clients=clients, n_min=n_min, bits=bits,
                noise_multiplier=z, wrap=wrap,
            )  # fmt: skip

        validation.open_probability("delta", delta)
        try:
            z = calibrated(
                lambda z: with_noise(z).event(rounds, sample_rate), epsilon, delta, accountant="rdp"
            )
        except ValueError as error:  # more noise needs a coarser grid, which needs more noise
            raise ValueError(f"{error} (or take more bits than {bits})") from error
        return with_noise(z)

    @cached_property
    def encoding(self) -> Encoding:
        """How updates become integers."""
        return Encoding(self.clip, self.granularity, self.bits, self.dimension, self.rejection)

    @property
    def share_deviation(self) -> float:
        """The share's parameter in steps, z c / (gamma sqrt(n_min)): its standard deviation."""
        return self.noise_multiplier * self.clip / (self.granularity * math.sqrt(self.n_min))

    # --- a client ---------------------------------------------------------------------------------

    @final
    def message(
        self, update: ArrayLike, *, seed: int, sample_rate: float = 1.0, coins: Coins = SYSTEM
    ) -> Residues:
        """What a client gives to the secure sum: her update in integers, with her share of noise.

        Args:
            update: ``dimension`` numbers; what is no finite number counts as 0.
            seed: of the rotation: public, the same for all clients, a fresh one each round.
            sample_rate: with which probability the update is in it, by a secret coin tossed here;
                see :meth:`event`.
            coins: for sampling, rounding and noise.
        """
        sample_rate = validation.sample_rate("sample_rate", sample_rate)
        whole = self.encoding.encode(update, seed=seed, coins=coins)
        if sample_rate < 1 and not bernoulli(sample_rate, 1, coins)[0]:
            whole = np.zeros_like(whole)
        return self.encoding.wrap(whole + self._noise(whole.size, coins))

    @final
    def blank(self, *, coins: Coins = SYSTEM) -> Residues:
        """What a client sends who has nothing to send: her share of noise alone."""
        return self.encoding.wrap(self._noise(self.encoding.padded, coins))

    # --- the server -------------------------------------------------------------------------------

    @final
    def require_enough(self, survivors: int, colluders: int = 0) -> None:
        """Refuses a sum with fewer than ``n_min`` shares of honest clients.

        Raises:
            TooFewShares: if ``survivors`` less ``colluders`` is below ``n_min``.
        """
        honest = validation.at_least("survivors", survivors, 0)
        honest -= validation.at_least("colluders", colluders, 0)
        if honest < self.n_min:
            raise TooFewShares(
                f"a sum of {survivors} with up to {colluders} colluders has {honest} shares of "
                f"noise that nobody knows, and {self.n_min} were promised: it must not be released"
            )

    @final
    def release(
        self, total: ArrayLike, *, survivors: int, colluders: int = 0, seed: int
    ) -> NDArray[np.float64]:
        """The noisy sum of updates, from the secure sum; or :class:`TooFewShares`."""
        self.require_enough(survivors, colluders)
        return self.encoding.decode(total, seed=seed)

    # --- what it amounts to -----------------------------------------------------------------------

    @final
    def event(self, rounds: int = 1, sample_rate: float = 1.0) -> Event:
        """``rounds`` rounds as the server, colluders and everyone after them see them.

        Args:
            rounds: in each of which a client sends one message.
            sample_rate: with which probability a client's update is in her message, by a secret
                coin of her own. **Everyone sends noise in every round** (:meth:`blank`): if those
                who are not sampled stayed away, the missing shares and the list of participants
                would show who was, and nothing would be amplified.
        """
        step = self._round_event()
        if validation.sample_rate("sample_rate", sample_rate) < 1:
            step = sampled_curve(step, sample_rate, symmetric=True)
        return repeat(step, rounds)

    @property
    def wrap_probability(self) -> float:
        """Bounds the probability that a round with all ``clients`` wraps around."""
        variance = self.share_deviation**2
        return wrap_probability(self.encoding, self.clients, variance, self._log_moment)

    def least_bits(self, wrap: float = 1e-6) -> int:
        """The fewest bits with which this grid wraps around with probability at most ``wrap``."""
        validation.open_probability("wrap", wrap)
        for bits in range(2, 63):
            if replace(self, bits=bits).wrap_probability <= wrap:
                return bits
        raise ValueError(f"granularity must be coarser for any number of bits: {self.granularity}")

    def standard_deviation(self, survivors: int = 0) -> float:
        """Of every number of the decoded sum: noise, and at most gamma / 2 a client for rounding.

        Args:
            survivors: whose shares are in the sum; n_min by default. (Where draws of the rounding
                are rejected, rounding may do a little more.)
        """
        n = validation.at_least("survivors", survivors, 0) or self.n_min
        return self.granularity * math.sqrt(n * (self._share_variance() + 0.25))

    @abstractmethod
    def _check_share(self) -> None:
        """Refuses a share that the sampler does not draw."""

    @abstractmethod
    def _noise(self, size: int, coins: Coins) -> NDArray[np.int64]:
        """One client's share for ``size`` numbers."""

    @abstractmethod
    def _share_variance(self) -> float:
        """Of a share, in steps."""

    @abstractmethod
    def _log_moment(self, s: float) -> float:
        """A bound on ln E e^(s Y) of a share."""

    @abstractmethod
    def _round_event(self) -> Leaf:
        """One round in which everybody's update counts."""
