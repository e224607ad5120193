"""Gaussian noise as tensors.

A source of noise gives independent normal numbers in a tensor's shape, type and place. It has a
``name``, which a run's record states, and says whether its noise may be called ``private``.

====================  ==========================================================================
:class:`CoinNoise`    Box-Muller from 64-bit words of the operating system's entropy
:class:`ChaChaNoise`  ChaCha20 on the GPU itself, under keys from that entropy
:class:`PlacedNoise`  the second for tensors on a CUDA device, the first for all others
:class:`TorchNoise`   torch's generators, for those who ask: not cryptographic
====================  ==========================================================================

:func:`default_noise` chooses. A step needs "sum plus noise, divided by the expected lot size":
:func:`noisy_mean` asks a source for it in one pass where the source has a way, and composes it of
``normal`` otherwise. ChaCha20 on a CUDA device updates a parameter in the same pass, too; what
sources may offer is said in :mod:`~sfumato.learning.dp_sgd.noise_source`.

All of it is floating point: the analysis assumes ideal Gaussian noise, and a record must say so.
The largest number that can come out is stated by each source, in standard deviations.

    >>> from sfumato.core.randomness import SeededCoins
    >>> CoinNoise(SeededCoins(1)).normal(torch.empty(2, 3), std=0.5).shape
    torch.Size([2, 3])
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins, SystemCoins
from sfumato.learning.dp_sgd.kernels import chacha, updates
from sfumato.learning.dp_sgd.kernels.updates import Update
from sfumato.learning.dp_sgd.noise_source import (
    FusedNoise,
    NoiseSource,
    UpdatingNoise,
    checked,
    checked_mean,
    noisy_mean,
)
from sfumato.learning.secret_coins import secret_generator

__all__ = [
    "LARGEST_COIN_NOISE",
    "ChaChaNoise",
    "CoinNoise",
    "FusedNoise",
    "NoiseSource",
    "PlacedNoise",
    "TorchNoise",
    "UpdatingNoise",
    "default_noise",
    "noisy_mean",
]

LARGEST_COIN_NOISE = math.sqrt(2 * 65 * math.log(2))
"""9.49 standard deviations: the smallest uniform is 2^-65. Beyond lie 2.3e-21 of the mass."""

_BLOCK = 1 << 15  # numbers at a time: they stay in a core's cache
_MANY = 1 << 18  # numbers from which several threads are worth starting
_MOST_THREADS = 16


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
        std = checked(like, std)
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
class ChaChaNoise:
    """Normal numbers from ChaCha20 in counter mode, made where the tensor is.

    On a CUDA device one Triton kernel computes keystream and numbers and adds them to the sum;
    without Triton, and on other devices, tensor operations do. The law, its precision and the
    largest magnitude, :data:`LARGEST_COIN_NOISE`, are stated in
    :mod:`~sfumato.learning.dp_sgd.kernels.chacha`. Numbers are float32, also for smaller types,
    which are rounded to last; a float64 tensor gets float64 numbers.

    No keystream is used twice: see :class:`~sfumato.learning.dp_sgd.kernels.chacha.KeyStream`. So
    a source cannot be copied or pickled, nor be called while a CUDA graph is captured.

    Args:
        coins: where keys come from.
    """

    def __init__(self, coins: Coins = SYSTEM) -> None:
        self.coins = coins
        self._stream = chacha.KeyStream(coins)

    @property
    def name(self) -> str:
        """The word "chacha20"."""
        return "chacha20"

    @property
    def private(self) -> bool:
        """Whether the coins are."""
        return self.coins.private

    def __repr__(self) -> str:
        return f"ChaChaNoise({self.coins!r})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        chacha.refuse_to_copy()

    @torch.no_grad()
    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh noise; see :class:`NoiseSource`."""
        std = checked(like, std)
        out = torch.empty(like.numel(), dtype=like.dtype, device=like.device)
        self._fill(out, std)
        return out.view(like.shape)

    @torch.no_grad()
    def noisy_mean(self, total: Tensor, std: float, size: float, out: Tensor) -> None:
        """``(total + noise) / size`` in one pass; see :func:`noisy_mean`."""
        std, size = checked(total, std), checked_mean(total, size, out)
        if total.is_contiguous() and out.is_contiguous():
            self._fill(out.view(-1), std, total.reshape(-1), size)
        else:
            flat = total.reshape(-1).clone()
            self._fill(flat, std, flat, size)
            out.copy_(flat.view(total.shape))

    def updates(self, total: Tensor) -> bool:
        """True where the kernel runs, for float32; see :class:`UpdatingNoise`."""
        return total.dtype == torch.float32 and _kernels_run(total)

    def noisy_update(self, by: Update, total: Tensor, std: float, size: float) -> None:
        """A noisy mean and what becomes of it; see :class:`UpdatingNoise`.

        The mean is the one that :meth:`noisy_mean` would have given of the numbers as they lie in
        memory, so the release is the same. Parameter, state and sum must be float32, in one place,
        laid out alike and without gaps.
        """
        std, size = checked(total, std), checked_mean(total, size, by.parameter)
        if not updates.alike(total, *by.written):
            needed = "float32, without gaps, laid out like what it updates"
            validation.fail("total", needed, (total.dtype, tuple(total.shape), total.stride()))
        segment = self._take(total, std, exact=False)
        if segment.blocks:
            _updater(total)(by, total, std, size, segment)

    def _fill(
        self, out: Tensor, std: float, total: Tensor | None = None, size: float = 1.0
    ) -> None:
        exact = torch.float64 in (out.dtype, out.dtype if total is None else total.dtype)
        segment = self._take(out, std, exact)
        if segment.blocks:
            _filler(out, exact)(out, std, segment, total, size)

    def _take(self, like: Tensor, std: float, exact: bool) -> chacha.Segment:
        """Blocks for one pass over ``like``."""
        if not exact and std and not _LEAST_STD <= std <= _MOST_STD:
            validation.fail("std", f"0, or from {_LEAST_STD:g} to {_MOST_STD:g} in float32", std)
        if like.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("a CUDA graph's replays would repeat its noise: draw it outside")
        return self._stream.take(like.numel())


_LEAST_STD, _MOST_STD = 1e-30, 1e30  # outside, noise would vanish or overflow


def _kernels_run(tensor: Tensor) -> bool:
    """Whether Triton's kernels do, where the tensor is."""
    from sfumato.learning.dp_sgd.kernels.here import triton_is_here

    return tensor.is_cuda and triton_is_here()


def _filler(out: Tensor, exact: bool) -> Callable[..., None]:
    """The kernel where it can run, its twin elsewhere."""
    if _kernels_run(out) and not exact:
        from sfumato.learning.dp_sgd.kernels.chacha_triton import fill

        return fill
    return chacha.fill


def _updater(total: Tensor) -> Callable[..., None]:
    """Likewise."""
    if _kernels_run(total):
        from sfumato.learning.dp_sgd.kernels.chacha_triton import update

        return update
    return updates.update


@final
class PlacedNoise:
    """ChaCha20 for tensors on a CUDA device, coins for all others.

    Args:
        coins: where words and keys come from.
    """

    def __init__(self, coins: Coins = SYSTEM) -> None:
        self.coins = coins
        self._near, self._far = CoinNoise(coins), ChaChaNoise(coins)

    @property
    def name(self) -> str:
        """The word "chacha20", though what is not on a GPU comes from coins directly."""
        return "chacha20"

    @property
    def private(self) -> bool:
        """Whether the coins are."""
        return self.coins.private

    def __repr__(self) -> str:
        return f"PlacedNoise({self.coins!r})"

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh noise; see :class:`NoiseSource`."""
        return self._for(like).normal(like, std)

    def noisy_mean(self, total: Tensor, std: float, size: float, out: Tensor) -> None:
        """``(total + noise) / size``; see :func:`noisy_mean`."""
        noisy_mean(self._for(total), total, std, size, out)

    def updates(self, total: Tensor) -> bool:
        """True on a CUDA device with Triton, for float32; see :class:`UpdatingNoise`."""
        return self._far.updates(total)

    def noisy_update(self, by: Update, total: Tensor, std: float, size: float) -> None:
        """By ChaCha20, wherever the sum is; see :class:`UpdatingNoise`."""
        self._far.noisy_update(by, total, std, size)

    def _for(self, tensor: Tensor) -> CoinNoise | ChaChaNoise:
        return self._far if tensor.is_cuda else self._near


def default_noise(coins: Coins, tensors: Iterable[Tensor]) -> CoinNoise | PlacedNoise:
    """Cryptographic noise for a run whose sums lie where ``tensors`` do."""
    return PlacedNoise(coins) if any(t.is_cuda for t in tensors) else CoinNoise(coins)


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
        std = checked(like, std)
        generator = self._generator or self._on(like.device)
        draws = torch.randn(
            like.shape, generator=generator, dtype=torch.float64, device=like.device
        )
        return draws.mul_(std).to(like.dtype)

    def _on(self, device: torch.device) -> torch.Generator:
        if device not in self._fresh:
            self._fresh[device] = secret_generator(device, self._coins)
        return self._fresh[device]


def _tensor(array: NDArray[Any]) -> Tensor:
    """The same memory as a tensor."""
    return torch.from_numpy(array)  # pyright: ignore[reportUnknownMemberType]
