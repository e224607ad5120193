"""The Triton kernel for ChaCha20 noise: keystream, normal numbers, sum and division in one pass.

Imported only where Triton is. What it computes is defined beside its twin in
:mod:`~sfumato.learning.dp_sgd.kernels.chacha`; the numbers are the same up to rounding (products
and sums may be fused here, and the square root is the GPU's approximation, within 2^-23).

Each thread computes one block: sixteen words in sixteen registers, additions, exclusive ors and
rotations, no multiplication, no memory. Key and counter are arguments by value: they reach the
device with the launch itself, so no copy can come late, and no value is compiled in.
"""

from __future__ import annotations

# pyright: reportMissingImports=false, reportIndexIssue=false
import torch
import triton
import triton.language as tl
from torch import Tensor

from sfumato.learning.dp_sgd.kernels import chacha
from sfumato.learning.dp_sgd.kernels.chacha import LANES, PER_BLOCK, Segment, signed

__all__ = ["block_words", "fill"]

_A, _B, _C, _D = (tl.constexpr(word) for word in chacha.CONSTANTS)
_L0, _L1, _L2, _L3, _L4, _L5, _L6, _L7 = (tl.constexpr(value) for value in chacha.LOG)
_S0, _S1, _S2, _S3 = (tl.constexpr(value) for value in chacha.SIN)
_C0, _C1, _C2, _C3 = (tl.constexpr(value) for value in chacha.COS)
_LN_2 = tl.constexpr(chacha.LN_2)
_ROOT_HALF_BITS = tl.constexpr(chacha.ROOT_HALF_BITS)
_WORDS = ("k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "s0", "s1")
_VALUES = ("numel", "count", "low", "high", *_WORDS)
_WARPS = 4


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
    lane = tl.arange(0, N)
    number = _first(low, high) + tile * N + lane
    w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, wa, wb, wc, wd, we, wf = _block(
        number.to(tl.uint32), (number >> 32).to(tl.uint32), _word(k0), _word(k1), _word(k2),
        _word(k3), _word(k4), _word(k5), _word(k6), _word(k7), _word(s0), _word(s1), N,
    )  # fmt: skip
    at = tile * TILE
    left = tl.minimum(numel - at, TILE).to(tl.int32)
    total += at
    out += at
    _pair(total, out, lane, left, std, inverse, w0, w1, w2, w3, SUM, N)
    _pair(total, out, lane + 2 * N, left, std, inverse, w4, w5, w6, w7, SUM, N)
    _pair(total, out, lane + 4 * N, left, std, inverse, w8, w9, wa, wb, SUM, N)
    _pair(total, out, lane + 6 * N, left, std, inverse, wc, wd, we, wf, SUM, N)


@triton.jit(do_not_specialize=_VALUES)
def _write_words(
    out, count, low, high, k0, k1, k2, k3, k4, k5, k6, k7, s0, s1, N: tl.constexpr
):  # fmt: skip
    """The keystream itself, sixteen rows."""
    at = tl.program_id(0) * N + tl.arange(0, N)
    number = _first(low, high) + at
    words = _block(
        number.to(tl.uint32), (number >> 32).to(tl.uint32), _word(k0), _word(k1), _word(k2),
        _word(k3), _word(k4), _word(k5), _word(k6), _word(k7), _word(s0), _word(s1), N,
    )  # fmt: skip
    for row in tl.static_range(16):
        tl.store(out + row * count + at, words[row].to(tl.int32, bitcast=True), mask=at < count)


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
def _pair(
    total, out, at, left, std, inverse, low_u, high_u, low_v, high_v,
    SUM: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Two numbers of each lane, to two rows of the tile."""
    radius = _radius(high_u, low_u)
    cosine, sine = _turned(high_v, low_v)
    _write(total, out, at, left, std, inverse, radius * cosine, SUM)
    _write(total, out, at + N, left, std, inverse, radius * sine, SUM)


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
