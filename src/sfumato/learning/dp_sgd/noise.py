"""Gaussian noise as tensors.

A source of noise gives independent normal numbers in a tensor's shape, type and place. It has a
``name``, which a run's record states, and says whether its noise may be called ``private``.

==================  ==========================================================================
:class:`CoinNoise`  the default: Box-Muller from 64-bit words of the operating system's entropy
:class:`TorchNoise` torch's generators, for those who ask: quicker on a GPU, not cryptographic
==================  ==========================================================================

A generator on the GPU itself is one more class with these three members.

All of it is floating point: the analysis assumes ideal Gaussian noise, and a record must say so.
The largest number that can come out is stated by each source, in standard deviations.

    >>> from sfumato.core.randomness import SeededCoins
    >>> CoinNoise(SeededCoins(1)).normal(torch.empty(2, 3), std=0.5).shape
    torch.Size([2, 3])
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins, SystemCoins

__all__ = ["LARGEST_COIN_NOISE", "CoinNoise", "NoiseSource", "TorchNoise"]

LARGEST_COIN_NOISE = math.sqrt(2 * 65 * math.log(2))
"""9.49 standard deviations: the smallest uniform is 2^-65. Beyond lie 2.3e-21 of the mass."""

_BLOCK = 1 << 15  # numbers at a time: they stay in a core's cache
_MANY = 1 << 18  # numbers from which several threads are worth starting
_MOST_THREADS = 16


class NoiseSource(Protocol):
    """Where the noise of a run comes from."""

    @property
    def name(self) -> str:
        """For the record."""
        ...

    @property
    def private(self) -> bool:
        """Whether the noise may be called private."""
        ...

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh independent N(0, std^2) numbers in the shape, type and place of ``like``."""
        ...


@final
class CoinNoise:
    """Normal numbers in float64 from two 64-bit words a pair, by Box and Muller's transform.

    u = (word + 1/2) / 2^64, and sqrt(-2 ln u) (cos 2 pi v, sin 2 pi v). The magnitude is at most
    :data:`LARGEST_COIN_NOISE` standard deviations. The standard deviation multiplies in float64;
    the tensor's own type comes last. Every word is used once.

    Args:
        coins: where the words come from.
    """

    def __init__(self, coins: Coins = SYSTEM) -> None:
        self.coins = coins

    @property
    def name(self) -> str:
        """The word "coins"."""
        return "coins"

    @property
    def private(self) -> bool:
        """Whether the coins are."""
        return self.coins.private

    def __repr__(self) -> str:
        return f"CoinNoise({self.coins!r})"

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh noise; see :class:`NoiseSource`."""
        std = _checked(like, std)
        out = torch.empty(like.numel(), dtype=like.dtype)

        def fill(start: int) -> None:
            part = out[start : start + _BLOCK]
            _box_muller(part, std, self.coins)

        _for_all(fill, range(0, out.numel(), _BLOCK), self.coins)
        return out.view(like.shape).to(like.device)


def _for_all(fill: Callable[[int], None], starts: range, coins: Coins) -> None:
    """Every block; the operating system's coins, whose order means nothing, in several threads."""
    threads = min(len(starts) * _BLOCK // _MANY, os.cpu_count() or 1, _MOST_THREADS)
    if threads > 1 and isinstance(coins, SystemCoins):
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(fill, starts):
                pass
        return
    for start in starts:
        fill(start)


def _box_muller(out: Tensor, std: float, coins: Coins) -> None:
    """Fills ``out``, on the CPU, with fresh N(0, std^2) numbers.

    Both coordinates from one tangent, t = tan(pi v): cos 2 pi v = (1 - t^2) / (1 + t^2) and
    sin 2 pi v = 2t / (1 + t^2), six times as quick in NumPy. A float is never so close to pi / 2
    that t^2 overflows, and the error stays near 10^-16 of the radius.
    """
    pairs = -(-out.numel() // 2)
    uniform = coins.words(2 * pairs).astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-64
    radius, t = uniform[:pairs], uniform[pairs:]
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    radius *= std
    t *= math.pi
    np.tan(t, out=t)
    square = t * t
    cosine = 1.0 - square
    square += 1.0
    radius /= square
    cosine *= radius
    t *= radius
    t *= 2.0
    out[:pairs] = _tensor(cosine)
    out[pairs:] = _tensor(t)[: out.numel() - pairs]


@final
class TorchNoise:
    """Normal numbers from torch's own generators, drawn in float64.

    For those who ask: these generators are not cryptographic (on the CPU a Mersenne twister, on
    CUDA Philox with a 64-bit key), and a uniform of 53 bits ends the tail at about 8.6 standard
    deviations. torch's *global* generator is never used: a script that calls ``manual_seed`` would
    make the noise known. Without a ``generator``, one is made for each device and started from
    ``coins``. With one, the noise is not called private: whoever made it may know its state, which
    is the same in every process if it was not started by hand.

    Args:
        generator: to draw from; by default fresh ones.
        coins: what starts fresh ones.
    """

    def __init__(self, generator: torch.Generator | None = None, coins: Coins = SYSTEM) -> None:
        self._generator = generator
        self._coins = coins
        self._fresh: dict[torch.device, torch.Generator] = {}

    @property
    def name(self) -> str:
        """The word "torch"."""
        return "torch"

    @property
    def private(self) -> bool:
        """True for generators started from private coins, which no one has seen."""
        return self._generator is None and self._coins.private

    def __repr__(self) -> str:
        return "TorchNoise()" if self._generator is None else "TorchNoise(generator)"

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh noise; see :class:`NoiseSource`."""
        std = _checked(like, std)
        generator = self._generator or self._on(like.device)
        draws = torch.randn(
            like.shape, generator=generator, dtype=torch.float64, device=like.device
        )
        return draws.mul_(std).to(like.dtype)

    def _on(self, device: torch.device) -> torch.Generator:
        if device not in self._fresh:
            self._fresh[device] = _started(device, self._coins)
        return self._fresh[device]


_STATE_AT, _STATE_WORDS = 24, 624


def _started(device: torch.device, coins: Coins) -> torch.Generator:
    """A generator in a state that only ``coins`` determine."""
    generator = torch.Generator(device)
    generator.manual_seed(int(coins.words(1)[0]))
    if device.type == "cpu":
        # A seed sets 32 bits of the twister, which can be tried out: set all of its words.
        state = generator.get_state()
        words = coins.words(_STATE_WORDS) & np.uint64(0xFFFFFFFF)
        filled = _tensor(words.view(np.uint8))
        state[_STATE_AT : _STATE_AT + len(filled)] = filled
        generator.set_state(state)
    return generator


def _tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor."""
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]


def _checked(like: Tensor, std: float) -> float:
    if not like.is_floating_point():
        validation.fail("like", "a tensor of floating-point numbers", like.dtype)
    return validation.non_negative("std", std)
