"""Normal numbers from ChaCha20 in counter mode: the definition, and its twin in plain PyTorch.

The block function is ChaCha20's (D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008; Y. Nir and
A. Langley, RFC 8439, section 2.3). The sixteen words of a state are

    4 constants | 8 words of key | block number, low and high | stream number, low and high

as in the original: 2^64 blocks of 64 bytes under each pair of key and stream. Whoever does not hold
the key cannot tell the blocks from coin tosses; that is the assumption the noise rests on.

A block is eight 64-bit words, low half first: four pairs (U, V), and by G. E. P. Box and M. E.
Muller ("A note on the generation of random normal deviates", 1958) eight normal numbers, in order

    r cos 2 pi v,  r sin 2 pi v   with   r = sqrt(-2 ln u),  u = (U + 1/2) / 2^64,  v likewise.

Guarantee, in float32: every number is within 2^-20 of the formula's value, *relatively*, at both
ends of both uniforms. None is 0, none is infinite, the largest is sqrt(130 ln 2) = 9.49. For that

- u above 1/2 is never rounded: 1 - u comes from the complemented word, and ln u = log1p(-(1 - u));
- v is split in integers into the nearest quarter of a turn and a rest of at most an eighth, which
  keeps its relative precision when it becomes a float;
- logarithm, sine and cosine are polynomials (minimax fits, coefficients below), the same here and
  in the kernel, so the two agree up to the rounding of a fused multiplication and addition.

In float64 the same words go through torch's own functions.

Where numbers go: :data:`LANES` blocks fill a tile of 8 LANES numbers, the j-th number of lane i at
place ``j * LANES + i``, so that neighbouring threads of a GPU write neighbouring addresses.

    >>> from sfumato.core.randomness import SeededCoins
    >>> out = torch.empty(3)
    >>> fill(out, 1.0, KeyStream(SeededCoins(1)).take(3))
    >>> bool(out.isfinite().all())
    True
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass, field
from typing import NoReturn

import torch
from torch import Tensor

from sfumato.core.randomness import Coins

__all__ = [
    "LANES",
    "MOST_BLOCKS",
    "PER_BLOCK",
    "KeyStream",
    "Segment",
    "block_words",
    "fill",
    "normals",
    "refuse_to_copy",
    "signed",
]

LANES = 128
"""Blocks in a tile: what one program of the kernel computes."""

PER_BLOCK = 8
"""Normal numbers from a block."""

MOST_BLOCKS = 1 << 48
"""Blocks under one key, 2^51 numbers. The counter itself would last 65,536 times as long."""

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
"""The text "expand 32-byte k"."""

LOG = (
    0.3333333134651184, -0.2500081956386566, 0.20001231133937836, -0.16623403131961823,
    0.1420171707868576, -0.1315975785255432, 0.12761618196964264, -0.07635539770126343,
)  # fmt: skip
"""Q in ln(1 + t) = t + t^2 (-1/2 + t Q(t)), for 1 + t from sqrt(1/2) to sqrt(2)."""

SIN = (6.2831854820251465, -41.3416633605957, 81.59235382080078, -75.39356231689453)
"""S in sin 2 pi z = z S(z^2), for z up to 1/8 either way."""

COS = (-19.739208221435547, 64.93932342529297, -85.443359375, 59.233123779296875)
"""C in cos 2 pi z = 1 + z^2 C(z^2), for z up to 1/8 either way."""

LN_2 = 0.6931471824645996  # in float32
ROOT_HALF_BITS = 0x3F3504F3  # of the float32 next to sqrt(1/2)

_SMALL_CHUNK = 1 << 13  # blocks at a time on a CPU: they stay in its cache
_LARGE_CHUNK = 1 << 20  # and elsewhere: about half a GiB of work at a time
_FORKS = [0]  # how many forks lie between this process and the first one


def _forked() -> None:
    _FORKS[0] += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_forked)


@dataclass(frozen=True)
class Segment:
    """Blocks that belong to one call alone.

    Attributes:
        words: eight words of key and two of stream number, as signed 32-bit numbers.
        counter: the number of the first block.
        blocks: how many there are.
    """

    words: tuple[int, ...] = field(repr=False)
    counter: int = field(repr=False)
    blocks: int


class _State:
    """One key and how far it is used up, in the process that drew it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process = _process()
        self.words: tuple[int, ...] = ()  # the first call draws a key
        self.counter = 0


def _process() -> tuple[int, int]:
    """Who we are: forks made by Python are counted, others change the process id."""
    return _FORKS[0], os.getpid()


class KeyStream:
    """Hands out blocks of keystream, each one once.

    Guarantee: no two segments share a block under the same key and stream number. The counter only
    grows, and has grown before a segment is handed out; threads wait for one another; a process
    that was forked draws a key of its own; so does every other stream, so ranks and resumed runs
    have nothing in common but chance (256 bits of key and 64 of stream number from ``coins``).
    After :data:`MOST_BLOCKS` blocks there is a fresh key. A stream cannot be copied, pickled or
    saved: a copy would give the same blocks again.
    """

    def __init__(self, coins: Coins) -> None:
        self._coins = coins
        self._state = _State()

    def __repr__(self) -> str:
        return "KeyStream()"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_to_copy()

    def take(self, numbers: int) -> Segment:
        """Fresh blocks for so many normal numbers, in whole tiles."""
        blocks = -(-numbers // (PER_BLOCK * LANES)) * LANES
        state = self._state
        if state.process != _process():
            state = self._state = _State()
        with state.lock:
            if not state.words or state.counter + blocks > MOST_BLOCKS:
                state.words, state.counter = _drawn(self._coins), 0
            first = state.counter
            state.counter += blocks
            return Segment(state.words, first, blocks)


def refuse_to_copy() -> NoReturn:
    """For copies and pickles of whatever holds a key."""
    raise TypeError(
        "keyed noise cannot be copied or pickled: the copy would repeat it. Make a new source "
        "where one is needed"
    )


def _drawn(coins: Coins) -> tuple[int, ...]:
    """A key and a stream number."""
    words = [int(word) for word in coins.words(5)]
    return tuple(signed(part) for word in words for part in (word & 0xFFFFFFFF, word >> 32))


def signed(word: int) -> int:
    """The 32-bit word as a number from -2^31."""
    return word - (1 << 32) if word >> 31 else word


# --- the twin ------------------------------------------------------------------------------------


def fill(
    out: Tensor, std: float, segment: Segment, total: Tensor | None = None, size: float = 1.0
) -> None:
    """Writes ``(total + std * normal) / size``, or ``std * normal`` without a total.

    The sum and the product are in float32, in float64 for float64 tensors; the division is a
    multiplication by 1 / ``size``, rounded once. The type of ``out`` comes last.

    Args:
        out: flat.
        std: standard deviation of the noise.
        segment: blocks for ``out.numel()`` numbers.
        total: flat, of the same length; may be ``out`` itself.
        size: what to divide by.
    """
    dtype = torch.float64 if torch.float64 in (out.dtype, _type(total)) else torch.float32
    chunk = _SMALL_CHUNK if out.device.type == "cpu" else _LARGE_CHUNK
    for at in range(0, segment.blocks, chunk):
        count = min(chunk, segment.blocks - at)
        words = block_words(segment.words, segment.counter + at, count, out.device)
        here = slice(at * PER_BLOCK, (at + count) * PER_BLOCK)
        part = out[here]
        noise = _tiled(normals(words, dtype))[: part.numel()] * std
        part.copy_(noise if total is None else (total[here].to(dtype) + noise) * (1.0 / size))


def _type(tensor: Tensor | None) -> torch.dtype | None:
    return None if tensor is None else tensor.dtype


def _tiled(numbers: Tensor) -> Tensor:
    """(8, blocks) to one row, tile by tile."""
    return numbers.view(PER_BLOCK, -1, LANES).transpose(0, 1).reshape(-1)


def block_words(words: tuple[int, ...], counter: int, count: int, device: torch.device) -> Tensor:
    """(16, count), int32: ``count`` blocks of keystream from number ``counter`` on.

    Args:
        words: eight of key and two of stream number, signed.
        counter: the first block's number, below 2^63.
        count: how many.
        device: where to compute.
    """
    numbers = torch.arange(counter, counter + count, dtype=torch.int64, device=device)
    fixed = [signed(word) for word in CONSTANTS] + list(words)
    column = torch.tensor(fixed, dtype=torch.int32, device=device)[:, None].expand(-1, count)
    halves = torch.stack([numbers, numbers >> 32]).to(torch.int32)
    start = torch.cat([column[:12], halves, column[12:]])
    a, b, c, d = start.view(4, 4, count).unbind()
    for _ in range(10):
        a, b, c, d = _quarter_rounds(a, b, c, d)  # of columns
        b, c, d = b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0)
        a, b, c, d = _quarter_rounds(a, b, c, d)  # of diagonals
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a, b, c, d]) + start


def _quarter_rounds(
    a: Tensor, b: Tensor, c: Tensor, d: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four at once, one in each row. Additions wrap around."""
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


def _rotated(x: Tensor, by: int) -> Tensor:
    """To the left; the sign that a shift to the right drags along is masked."""
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


def normals(words: Tensor, dtype: torch.dtype) -> Tensor:
    """(8, n) normal numbers from (16, n) words of keystream, in float32 or float64."""
    low_u, high_u, low_v, high_v = words.view(4, 4, -1).unbind(1)
    radius = _radius(high_u, low_u, dtype)
    cosine, sine = _turned(high_v, low_v, dtype)
    return torch.stack([radius * cosine, radius * sine], 1).flatten(0, 1)


def _radius(high: Tensor, low: Tensor, dtype: torch.dtype) -> Tensor:
    """sqrt(-2 ln u)."""
    near = _folded(high, low, dtype)  # the distance of u from 0 or from 1, whichever is nearer
    if dtype == torch.float64:
        return (-2.0 * torch.where(high < 0, torch.log1p(-near), torch.log(near))).sqrt()
    u = torch.where(high < 0, 1.0 - near, near)
    bits = u.view(torch.int32)
    power = (bits - ROOT_HALF_BITS) >> 23
    t = torch.where(power == 0, -near, (bits - (power << 23)).view(torch.float32) - 1.0)
    log = power.to(dtype) * LN_2 + (t * t * (t * _polynomial(LOG, t) - 0.5) + t)
    return (-2.0 * log).sqrt()


def _turned(high: Tensor, low: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The point of the unit circle: cos 2 pi v, sin 2 pi v."""
    quarter = ((high + (1 << 29)) >> 30) & 3
    rest = high - (quarter << 30)
    z = torch.where(rest < 0, -1.0, 1.0).to(dtype) * _folded(rest, low, dtype)
    if dtype == torch.float64:
        cosine, sine = torch.cos(2 * math.pi * z), torch.sin(2 * math.pi * z)
    else:
        square = z * z
        cosine, sine = square * _polynomial(COS, square) + 1.0, z * _polynomial(SIN, square)
    swapped = (quarter & 1) == 1
    across = torch.where(swapped, sine, cosine)
    up = torch.where(swapped, cosine, sine)
    return (
        torch.where(((quarter + 1) & 2) == 2, -across, across),
        torch.where((quarter & 2) == 2, -up, up),
    )


def _folded(high: Tensor, low: Tensor, dtype: torch.dtype) -> Tensor:
    """|word + 1/2| / 2^64 of signed 64-bit words: a negative one is complemented first."""
    sign = high >> 31
    small = ((low ^ sign).to(torch.int64) & 0xFFFFFFFF).to(dtype)
    return (high ^ sign).to(dtype) * 2.0**-32 + (small * 2.0**-64 + 2.0**-65)


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """By Horner's rule, lowest power first."""
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        value = value * x + coefficient
    return value
