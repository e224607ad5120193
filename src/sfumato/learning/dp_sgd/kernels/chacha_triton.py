"""The Triton kernels for ChaCha20 noise: keystream, normal numbers, sum, division, update at once.

Imported only where Triton is. What they compute is defined beside their twins in
:mod:`~sfumato.learning.dp_sgd.kernels.chacha` and :mod:`~sfumato.learning.dp_sgd.kernels.updates`;
the numbers are the same up to rounding (products and sums may be fused here, and the square root
is the GPU's approximation, within 2^-23).

Each thread computes one block: sixteen words in sixteen registers, additions, exclusive ors and
rotations, no multiplication, no memory. Key and counter are arguments by value: they reach the
device with the launch itself, so no copy can come late, and no value is compiled in. An update
reads and writes memory while other threads compute their blocks, so it costs little more than the
noise does.
"""

from __future__ import annotations

# pyright: reportMissingImports=false, reportIndexIssue=false
import math

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.graph import increment_version

from sfumato.learning.dp_sgd.kernels import chacha
from sfumato.learning.dp_sgd.kernels.chacha import LANES, PER_BLOCK, Segment, signed
from sfumato.learning.dp_sgd.kernels.updates import Descent, Moments, Update

__all__ = ["block_words", "fill", "update"]

_A, _B, _C, _D = (tl.constexpr(word) for word in chacha.CONSTANTS)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7 = (tl.constexpr(value) for value in chacha.LOG)
_S0, _S1, _S2, _S3 = (tl.constexpr(value) for value in chacha.SIN)
_C0, _C1, _C2, _C3 = (tl.constexpr(value) for value in chacha.COS)
_LN_2 = tl.constexpr(chacha.LN_2)
_ROOT_HALF_BITS = tl.constexpr(chacha.ROOT_HALF_BITS)
_WORDS = ("k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "s0", "s1")
_VALUES = ("numel", "count", "low", "high", *_WORDS)
_MOVED = ("total", "parameter", "buffer", "average", "square")
_WARPS = 4
_LOG_OF_ZERO = -1000.0  # of a beta that is 0: its powers vanish


def fill(
    out: Tensor, std: float, segment: Segment, total: Tensor | None = None, size: float = 1.0
) -> None:
    """As :func:`sfumato.learning.dp_sgd.kernels.chacha.fill`; float64 tensors are not for it."""
    low, high = signed(segment.counter & 0xFFFFFFFF), signed(segment.counter >> 32)
    with torch.cuda.device(out.device if out.is_cuda else -1):
        _fill[(segment.blocks // LANES,)](
            out if total is None else total, out, out.numel(), std, 1.0 / size,
            low, high, *segment.words,
            SUM=total is not None, N=LANES, TILE=LANES * PER_BLOCK, num_warps=_WARPS,
        )  # fmt: skip


def update(by: Update, total: Tensor, std: float, size: float, segment: Segment) -> None:
    """As :func:`sfumato.learning.dp_sgd.kernels.updates.update`; never waits for the device."""
    with torch.cuda.device(total.device if total.is_cuda else -1):
        if isinstance(by, Descent):
            _launch_descent(by, total, std, 1.0 / size, segment)
        else:
            _launch_moments(by, total, std, 1.0 / size, segment, by.step.is_cuda)
    increment_version(by.written)  # as every change in place does


def _launch_descent(
    by: Descent, total: Tensor, std: float, inverse: float, segment: Segment
) -> None:
    buffer = by.parameter if by.buffer is None else by.buffer
    keep, enter = by.shares
    low, high = signed(segment.counter & 0xFFFFFFFF), signed(segment.counter >> 32)
    _descend[(segment.blocks // LANES,)](
        total, by.parameter, buffer, total.numel(), std, inverse,
        by.lr, by.weight_decay, by.momentum, keep, enter, low, high, *segment.words,
        DECAY=by.weight_decay != 0, MOMENTUM=by.buffer is not None, NESTEROV=by.nesterov,
        N=LANES, TILE=LANES * PER_BLOCK, num_warps=_WARPS,
    )  # fmt: skip


def _launch_moments(
    by: Moments, total: Tensor, std: float, inverse: float, segment: Segment, counted: bool
) -> None:
    rate, root = (by.lr, 1.0) if counted else by.corrections()
    log1, log2 = (math.log(b) if b else _LOG_OF_ZERO for b in (by.beta1, by.beta2))
    decay = by.weight_decay * (by.lr if by.decoupled else 1.0)
    low, high = signed(segment.counter & 0xFFFFFFFF), signed(segment.counter >> 32)
    _adapt[(segment.blocks // LANES,)](
        total, by.parameter, by.average, by.square, by.step if counted else by.parameter,
        total.numel(), std, inverse, rate, root, log1, log2, 1.0 - by.beta1, by.beta2,
        1.0 - by.beta2, by.eps, decay, low, high, *segment.words,
        COUPLED=by.weight_decay != 0 and not by.decoupled,
        DECOUPLED=by.weight_decay != 0 and by.decoupled,
        COUNTED=counted, N=LANES, TILE=LANES * PER_BLOCK, num_warps=_WARPS,
    )  # fmt: skip


def block_words(words: tuple[int, ...], counter: int, count: int, device: torch.device) -> Tensor:
    """As :func:`sfumato.learning.dp_sgd.kernels.chacha.block_words`: to check the kernel by."""
    out = torch.empty(16, count, dtype=torch.int32, device=device)
    low, high = signed(counter & 0xFFFFFFFF), signed(counter >> 32)
    with torch.cuda.device(out.device if out.is_cuda else -1):
        _write_words[(-(-count // LANES),)](out, count, low, high, *words, N=LANES)
    return out


@triton.jit(do_not_specialize=_VALUES, do_not_specialize_on_alignment=("total", "out"))
def _fill(
    total, out, numel, std, inverse, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1,
    SUM: tl.constexpr, N: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One tile."""
    tile = tl.program_id(0).to(tl.int64)
    words = _tile_words(tile, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N)
    at = tile * TILE
    left = tl.minimum(numel - at, TILE).to(tl.int32)
    for row in tl.static_range(0, 8, 2):
        here = row * N + tl.arange(0, N)
        one, two = _point(words, row)
        _write(total + at, out + at, here, left, std, inverse, one, SUM)
        _write(total + at, out + at, here + N, left, std, inverse, two, SUM)


@triton.jit(do_not_specialize=_VALUES, do_not_specialize_on_alignment=_MOVED)
def _descend(
    total, parameter, buffer, numel, std, inverse, rate, decay, momentum, keep, enter,
    low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1,
    DECAY: tl.constexpr, MOMENTUM: tl.constexpr, NESTEROV: tl.constexpr,
    N: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One tile of gradient descent."""
    tile = tl.program_id(0).to(tl.int64)
    words = _tile_words(tile, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N)
    at = tile * TILE
    left = tl.minimum(numel - at, TILE).to(tl.int32)
    total, parameter, buffer = total + at, parameter + at, buffer + at
    for row in tl.static_range(0, 8, 2):
        one = row * N + tl.arange(0, N)
        two = one + N
        # Both rows are loaded before either is stored: the stores would hold the loads back.
        g1, g2 = _load(total, one, left), _load(total, two, left)
        p1, p2 = _load(parameter, one, left), _load(parameter, two, left)
        b1, b2 = p1, p2
        if MOMENTUM:
            b1, b2 = _load(buffer, one, left) * keep, _load(buffer, two, left) * keep
        z1, z2 = _point(words, row)
        g1, g2 = (g1 + z1 * std) * inverse, (g2 + z2 * std) * inverse
        if DECAY:
            g1, g2 = g1 + decay * p1, g2 + decay * p2
        if MOMENTUM:
            b1, b2 = b1 + enter * g1, b2 + enter * g2
            tl.store(buffer + one, b1, mask=one < left)
            tl.store(buffer + two, b2, mask=two < left)
            if NESTEROV:
                g1, g2 = g1 + momentum * b1, g2 + momentum * b2
            else:
                g1, g2 = b1, b2
        tl.store(parameter + one, p1 - rate * g1, mask=one < left)
        tl.store(parameter + two, p2 - rate * g2, mask=two < left)


@triton.jit(do_not_specialize=_VALUES, do_not_specialize_on_alignment=_MOVED)
def _adapt(
    total, parameter, average, square, step, numel, std, inverse, rate, root, log1, log2,
    enter1, beta2, enter2, eps, decay, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1,
    COUPLED: tl.constexpr, DECOUPLED: tl.constexpr, COUNTED: tl.constexpr,
    N: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One tile of an update by moments."""
    tile = tl.program_id(0).to(tl.int64)
    words = _tile_words(tile, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N)
    if COUNTED:
        t = tl.load(step).to(tl.float32)
        rate = rate / _one_less_power(log1 * t)
        root = 1.0 / tl.sqrt(_one_less_power(log2 * t))
    at = tile * TILE
    left = tl.minimum(numel - at, TILE).to(tl.int32)
    total, parameter, average, square = total + at, parameter + at, average + at, square + at
    for row in tl.static_range(0, 8, 2):
        one = row * N + tl.arange(0, N)
        two = one + N
        g1, g2 = _load(total, one, left), _load(total, two, left)
        p1, p2 = _load(parameter, one, left), _load(parameter, two, left)
        u1, u2 = _load(average, one, left), _load(average, two, left)
        v1, v2 = _load(square, one, left), _load(square, two, left)
        z1, z2 = _point(words, row)
        g1, g2 = (g1 + z1 * std) * inverse, (g2 + z2 * std) * inverse
        if COUPLED:
            g1, g2 = g1 + decay * p1, g2 + decay * p2
        u1, u2 = u1 + enter1 * (g1 - u1), u2 + enter1 * (g2 - u2)
        v1, v2 = beta2 * v1 + enter2 * g1 * g1, beta2 * v2 + enter2 * g2 * g2
        tl.store(average + one, u1, mask=one < left)
        tl.store(average + two, u2, mask=two < left)
        tl.store(square + one, v1, mask=one < left)
        tl.store(square + two, v2, mask=two < left)
        u1, u2 = u1 / (tl.sqrt(v1) * root + eps), u2 / (tl.sqrt(v2) * root + eps)
        if DECOUPLED:
            g1, g2 = rate * u1 + decay * p1, rate * u2 + decay * p2
        else:
            g1, g2 = rate * u1, rate * u2
        tl.store(parameter + one, p1 - g1, mask=one < left)
        tl.store(parameter + two, p2 - g2, mask=two < left)


@triton.jit
def _load(pointer, at, left):
    """A row of a tile that may end before."""
    return tl.load(pointer + at, mask=at < left, other=0.0)


@triton.jit
def _one_less_power(x):
    """1 - e^x for x < 0, to a relative precision of 2^-21 also where e^x is nearly 1."""
    series = 1.0 + x * (1.0 / 8.0)
    for n in tl.static_range(7, 1, -1):
        series = 1.0 + x * series * (1.0 / n)
    return tl.where(x > -0.5, -x * series, 1.0 - tl.exp(x))


@triton.jit(do_not_specialize=_VALUES)
def _write_words(
    out, count, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N: tl.constexpr
):  # fmt: skip
    """The keystream itself, sixteen rows."""
    tile = tl.program_id(0).to(tl.int64)
    at = tile * N + tl.arange(0, N)
    words = _tile_words(tile, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N)
    for row in tl.static_range(16):
        tl.store(out + row * count + at, words[row].to(tl.int32, bitcast=True), mask=at < count)


@triton.jit
def _tile_words(tile, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N: tl.constexpr):
    """The keystream of one tile: sixteen words for each lane."""
    number = _first(low, high) + tile * N + tl.arange(0, N)
    return _block(
        number.to(tl.uint32), (number >> 32).to(tl.uint32), _word(k0), _word(k1), _word(k2),
        _word(k3), _word(k4), _word(k5), _word(k6), _word(k7), _word(s0), _word(s1), N,
    )  # fmt: skip


@triton.jit
def _first(low, high):
    """The first block's number from its halves."""
    return (high.to(tl.int64) << 32) | _word(low).to(tl.int64)


@triton.jit
def _word(value):
    """A signed argument as the 32 bits it stands for."""
    return value.to(tl.uint32, bitcast=True)


@triton.jit
def _block(low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N: tl.constexpr):
    """Sixteen words of keystream for each lane."""
    zero = tl.zeros((N,), tl.uint32)
    x0, x1, x2, x3 = zero + _A, zero + _B, zero + _C, zero + _D
    x4, x5, x6, x7 = zero + k0, zero + k1, zero + k2, zero + k3
    x8, x9, xa, xb = zero + k4, zero + k5, zero + k6, zero + k7
    xc, xd, xe, xf = low, high, zero + s0, zero + s1
    for _ in range(10):
        x0, x4, x8, xc = _quarter_round(x0, x4, x8, xc)
        x1, x5, x9, xd = _quarter_round(x1, x5, x9, xd)
        x2, x6, xa, xe = _quarter_round(x2, x6, xa, xe)
        x3, x7, xb, xf = _quarter_round(x3, x7, xb, xf)
        x0, x5, xa, xf = _quarter_round(x0, x5, xa, xf)
        x1, x6, xb, xc = _quarter_round(x1, x6, xb, xc)
        x2, x7, x8, xd = _quarter_round(x2, x7, x8, xd)
        x3, x4, x9, xe = _quarter_round(x3, x4, x9, xe)
    return (
        x0 + _A, x1 + _B, x2 + _C, x3 + _D, x4 + k0, x5 + k1, x6 + k2, x7 + k3,
        x8 + k4, x9 + k5, xa + k6, xb + k7, xc + low, xd + high, xe + s0, xf + s1,
    )  # fmt: skip


@triton.jit
def _quarter_round(a, b, c, d):
    """RFC 8439, 2.1."""
    a += b
    d = _rotated(d ^ a, 16)
    c += d
    b = _rotated(b ^ c, 12)
    a += b
    d = _rotated(d ^ a, 8)
    c += d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _rotated(x, BY: tl.constexpr):
    """To the left: one instruction of the GPU."""
    return (x << BY) | (x >> (32 - BY))


@triton.jit
def _point(words, ROW: tl.constexpr):
    """Two numbers of each lane, for two rows of the tile, from four words."""
    radius = _radius(words[2 * ROW + 1], words[2 * ROW])
    cosine, sine = _turned(words[2 * ROW + 3], words[2 * ROW + 2])
    return radius * cosine, radius * sine


@triton.jit
def _write(total, out, at, left, std, inverse, normal, SUM: tl.constexpr):
    """Noise, or sum and noise, divided."""
    inside = at < left
    value = normal * std
    if SUM:
        value = (tl.load(total + at, mask=inside, other=0.0).to(tl.float32) + value) * inverse
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _folded(high, low):
    """|word + 1/2| / 2^64 of signed words, a negative one complemented, and its sign as bits."""
    sign = high.to(tl.int32, bitcast=True) >> 31
    large = (high.to(tl.int32, bitcast=True) ^ sign).to(tl.float32)
    small = (low ^ sign.to(tl.uint32, bitcast=True)).to(tl.float32)
    return large * 2.0**-32 + (small * 2.0**-64 + 2.0**-65), sign


@triton.jit
def _radius(high, low):
    """sqrt(-2 ln u)."""
    near, above = _folded(high, low)
    u = tl.where(above != 0, 1.0 - near, near)
    bits = u.to(tl.int32, bitcast=True)
    power = (bits - _ROOT_HALF_BITS) >> 23
    t = tl.where(power == 0, -near, (bits - (power << 23)).to(tl.float32, bitcast=True) - 1.0)
    q = t * _L7 + _L6
    q = q * t + _L5
    q = q * t + _L4
    q = q * t + _L3
    q = q * t + _L2
    q = q * t + _L1
    q = q * t + _L0
    log = power.to(tl.float32) * _LN_2 + (t * t * (t * q - 0.5) + t)
    return tl.sqrt(-2.0 * log)


@triton.jit
def _turned(high, low):
    """The point of the unit circle: cos 2 pi v, sin 2 pi v."""
    quarter = (high + 0x20000000) >> 30
    size, sign = _folded(high - (quarter << 30), low)
    square = size * size
    cosine = ((square * _C3 + _C2) * square + _C1) * square + _C0
    cosine = square * cosine + 1.0
    sine = ((square * _S3 + _S2) * square + _S1) * square + _S0
    sine = _flipped(size * sine, sign.to(tl.uint32, bitcast=True))
    swapped = (quarter & 1) != 0
    across = _flipped(tl.where(swapped, sine, cosine), (quarter + 1) << 30)
    up = _flipped(tl.where(swapped, cosine, sine), quarter << 30)
    return across, up


@triton.jit
def _flipped(x, bits):
    """The other sign where the highest bit is set."""
    flipped = x.to(tl.uint32, bitcast=True) ^ (bits & 0x80000000)
    return flipped.to(tl.float32, bitcast=True)
