"""Triton kernels for per-example products of patches and output gradients.

Imported only where Triton is. What each computes, and why it is safe to use, is said beside its
twin in :mod:`~sfumato.learning.dp_sgd.kernels.products`.

Memory. ``x`` is (examples, height, width, channels) and ``g`` (examples, out height, out width,
rows), both contiguous. A column of a patch is a tap and a channel, taps first. Position t of a unit
runs over its copies, then over the output's places; gradients are read as they lie, patches are
gathered: no unfolded tensor exists.
"""

from __future__ import annotations

# pyright: reportMissingImports=false, reportIndexIssue=false
import triton
import triton.language as tl

__all__ = ["direct", "gram", "lengths", "row_facts", "scaled", "weighted", "weighted_rows"]


@triton.jit
def _nothing():
    """0, which no compiler knows, since launches have one dimension.

    Added to numbers of places and columns it keeps them 32 bits wide. Where they are known to fit
    in 8, LLVM packs them in pairs, and ptxas 12.8 gets divisions of such pairs wrong for sm_90: a
    few places of a unit would be missing from its sum. A multiple of 128 keeps loads aligned.
    """
    return tl.program_id(1) * 128


@triton.jit
def _tile(tile, wide, BR: tl.constexpr, BC: tl.constexpr):
    """Rows and columns of a tile."""
    rows = (tile // wide) * BR + tl.arange(0, BR)
    columns = _nothing() + (tile % wide) * BC + tl.arange(0, BC)
    return rows, columns


@triton.jit
def _patches(
    x, unit, t, columns, t_mask,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """[places, columns] of one unit's patches; 0 in the padding and outside."""
    if PLAIN:  # a matrix product: a place is a row of x
        at = x + unit * (T * C)
        where = at + t[:, None] * C + columns[None, :]
        if EVEN:
            return tl.load(where)
        return tl.load(where, mask=t_mask[:, None] & (columns < COLUMNS)[None, :], other=0.0)
    else:
        at = x + unit * ((T // PLACES) * H * W * C)
        copy = t // PLACES
        place = _nothing() + t % PLACES
        top = (place // OUT_W) * SH - PH
        left = (place % OUT_W) * SW - PW
        tap = _nothing() + columns // C
        down = (tap // KW) * DH
        along = (tap % KW) * DW
        channel = columns % C
        start = (copy * H + top) * W + left
        step = (down * W + along) * C + channel
        i = top[:, None] + down[None, :]
        j = left[:, None] + along[None, :]
        inside = (i >= 0) & (i < H) & (j >= 0) & (j < W)
        if not EVEN:
            inside &= t_mask[:, None] & (columns < COLUMNS)[None, :]
        return tl.load(at + (start * C)[:, None] + step[None, :], mask=inside, other=0.0)


@triton.jit
def _gradients(
    g, unit, t, rows, t_mask, T: tl.constexpr, R: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """[places, rows] of one unit's output gradients."""
    where = g + unit * (T * R) + t[:, None] * R + rows[None, :]
    if EVEN:
        return tl.load(where)
    return tl.load(where, mask=t_mask[:, None] & (rows < R)[None, :], other=0.0)


@triton.jit
def _product_tile(
    x, g, unit, rows, columns,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """A tile of one unit's gradient, in registers."""
    even_g: tl.constexpr = T % BT == 0 and R % BR == 0
    even_x: tl.constexpr = T % BT == 0 and COLUMNS % BC == 0
    total = tl.zeros((BR, BC), dtype=tl.float32)
    for first in range(0, T, BT):
        t = _nothing() + first + tl.arange(0, BT)
        left = _gradients(g, unit, t, rows, t < T, T, R, even_g)
        right = _patches(
            x, unit, t, columns, t < T, T, PLACES, OUT_W, H, W, C, COLUMNS, KW, SH, SW, PH, PW,
            DH, DW, PLAIN, even_x,
        )  # fmt: skip
        total = tl.dot(tl.trans(left), right, total, input_precision="ieee")
    return total


@triton.jit
def direct(
    x, g, squares, written,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr,
    WRITE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """A tile of one unit's gradient in registers: its sum of squares, and the tile if asked for."""
    tall: tl.constexpr = (R + BR - 1) // BR
    wide: tl.constexpr = (COLUMNS + BC - 1) // BC
    program = tl.program_id(0)
    unit = (program // (tall * wide)).to(tl.int64)
    tile = program % (tall * wide)
    rows, columns = _tile(tile, wide, BR, BC)
    total = _product_tile(
        x, g, unit, rows, columns, T, PLACES, OUT_W, H, W, C, R, COLUMNS, KW, SH, SW, PH, PW, DH,
        DW, PLAIN, BR, BC, BT,
    )  # fmt: skip
    tl.store(squares + program, tl.sum(total * total))
    if WRITE:
        where = (
            written + unit * R * COLUMNS + rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :]
        )
        tl.store(where, total, mask=(rows < R)[:, None] & (columns < COLUMNS)[None, :])


@triton.jit
def row_facts(
    x, g, directions, facts,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Of a tile in registers: each row's squares, sum, and product with a direction."""
    tall: tl.constexpr = (R + BR - 1) // BR
    wide: tl.constexpr = (COLUMNS + BC - 1) // BC
    program = tl.program_id(0)
    unit = (program // (tall * wide)).to(tl.int64)
    tile = program % (tall * wide)
    rows, columns = _tile(tile, wide, BR, BC)
    total = _product_tile(
        x, g, unit, rows, columns, T, PLACES, OUT_W, H, W, C, R, COLUMNS, KW, SH, SW, PH, PW, DH,
        DW, PLAIN, BR, BC, BT,
    )  # fmt: skip
    held = (rows < R)[:, None] & (columns < COLUMNS)[None, :]
    along = tl.load(
        directions + rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :], mask=held, other=0.0
    )  # fmt: skip
    at = facts + ((unit * wide + tile % wide) * R + rows) * 3
    tl.store(at, tl.sum(total * total, axis=1), mask=rows < R)
    tl.store(at + 1, tl.sum(total, axis=1), mask=rows < R)
    tl.store(at + 2, tl.sum(total * along, axis=1), mask=rows < R)


@triton.jit
def _weighted_tile(
    x, g, weights, rows, columns, begin, many,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The weighted sum of units ``begin`` to ``begin + many`` in one tile.

    Each unit's product is complete before it is weighted.
    """
    blocks: tl.constexpr = (T + BT - 1) // BT
    even_g: tl.constexpr = T % BT == 0 and R % BR == 0
    even_x: tl.constexpr = T % BT == 0 and COLUMNS % BC == 0
    total = tl.zeros((BR, BC), dtype=tl.float32)
    product = tl.zeros((BR, BC), dtype=tl.float32)
    for step in range(many * blocks):
        unit = (begin + step // blocks).to(tl.int64)
        t = _nothing() + (step % blocks) * BT + tl.arange(0, BT)
        weight = tl.load(weights + unit)
        left = _gradients(g, unit, t, rows, t < T, T, R, even_g)
        right = _patches(
            x, unit, t, columns, t < T, T, PLACES, OUT_W, H, W, C, COLUMNS, KW, SH, SW, PH, PW,
            DH, DW, PLAIN, even_x,
        )  # fmt: skip
        if blocks == 1:
            product = tl.dot(tl.trans(left), right, input_precision="ieee")
            total += tl.where(weight != 0.0, weight * product, 0.0)
        else:
            product = tl.dot(tl.trans(left), right, product, input_precision="ieee")
            if step % blocks == blocks - 1:
                total += tl.where(weight != 0.0, weight * product, 0.0)
                product = tl.zeros((BR, BC), dtype=tl.float32)
    return total


@triton.jit
def weighted(
    x, g, weights, out, units, programs,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr, PARTS: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """The weighted sum over all units, the work shared out evenly.

    With few tiles, programs share them in equal parts, each of which has a place of its own in
    ``out``. With many, each program does one after the other; of those that are left each is done
    by several, which add up what they have in ``out``, zero at first.
    """
    wide: tl.constexpr = (COLUMNS + BC - 1) // BC
    tiles: tl.constexpr = ((R + BR - 1) // BR) * wide
    program = tl.program_id(0)
    if PARTS > 0:
        part, tile = program // tiles, program % tiles
        rows, columns = _tile(tile, wide, BR, BC)
        begin = (part.to(tl.int64) * units // PARTS).to(tl.int32)
        end = ((part + 1).to(tl.int64) * units // PARTS).to(tl.int32)
        total = _weighted_tile(
            x, g, weights, rows, columns, begin, end - begin, T, PLACES, OUT_W, H, W, C, R,
            COLUMNS, KW, SH, SW, PH, PW, DH, DW, PLAIN, BR, BC, BT,
        )  # fmt: skip
        held = (rows < R)[:, None] & (columns < COLUMNS)[None, :]
        out += part.to(tl.int64) * R * COLUMNS
        tl.store(out + rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :], total, mask=held)
        return
    rounds = tiles // programs
    for number in range(rounds):
        tile = number * programs + program
        rows, columns = _tile(tile, wide, BR, BC)
        total = _weighted_tile(
            x, g, weights, rows, columns, program * 0, units, T, PLACES, OUT_W, H, W, C, R,
            COLUMNS, KW, SH, SW, PH, PW, DH, DW, PLAIN, BR, BC, BT,
        )  # fmt: skip
        held = (rows < R)[:, None] & (columns < COLUMNS)[None, :]
        tl.store(out + rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :], total, mask=held)
    left_over = (tiles - rounds * programs) * units
    item = (program.to(tl.int64) * left_over // programs).to(tl.int32)
    end = ((program + 1).to(tl.int64) * left_over // programs).to(tl.int32)
    while item < end:
        begin = item % units
        many = tl.minimum(units - begin, end - item)
        tile = rounds * programs + item // units
        rows, columns = _tile(tile, wide, BR, BC)
        total = _weighted_tile(
            x, g, weights, rows, columns, begin, many, T, PLACES, OUT_W, H, W, C, R, COLUMNS, KW,
            SH, SW, PH, PW, DH, DW, PLAIN, BR, BC, BT,
        )  # fmt: skip
        held = (rows < R)[:, None] & (columns < COLUMNS)[None, :]
        tl.atomic_add(
            out + rows.to(tl.int64)[:, None] * COLUMNS + columns[None, :], total, mask=held
        )
        item += many


@triton.jit
def weighted_rows(
    x, g, weights, parts, units, per_part,
    C: tl.constexpr, R: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """As :func:`weighted`, for one place a unit: units are the places, their gradients weighted.

    A weighted gradient is kept in two bfloat16 numbers, the second what the first leaves: sixteen
    bits, and float32's range, where float16 would lose small weights. A float16 activation is the
    sum of two bfloat16 numbers exactly.
    """
    tall: tl.constexpr = (R + BR - 1) // BR
    wide: tl.constexpr = (C + BC - 1) // BC
    program = tl.program_id(0)
    part = program // (tall * wide)
    tile = program % (tall * wide)
    rows, columns = _tile(tile, wide, BR, BC)
    total = tl.zeros((BR, BC), dtype=tl.float32)
    begin = part * per_part
    end = tl.minimum(begin + per_part, units)
    for first in range(0, per_part, BT):
        t = (begin + first + tl.arange(0, BT)).to(tl.int64)
        weight = tl.load(weights + t, mask=t < end, other=0.0)
        used = weight != 0.0
        held_g = used[:, None] & (rows < R)[None, :]
        held_x = used[:, None] & (columns < C)[None, :]
        left = tl.load(g + t[:, None] * R + rows[None, :], mask=held_g, other=0.0)
        right = tl.load(x + t[:, None] * C + columns[None, :], mask=held_x, other=0.0)
        exact = left.to(tl.float32) * weight[:, None]
        high = exact.to(tl.bfloat16)
        low = (exact - high.to(tl.float32)).to(tl.bfloat16)
        upper = right.to(tl.bfloat16)
        total = tl.dot(tl.trans(high), upper, total, input_precision="ieee")
        total = tl.dot(tl.trans(low), upper, total, input_precision="ieee")
        if right.dtype != tl.bfloat16:
            lower = (right.to(tl.float32) - upper.to(tl.float32)).to(tl.bfloat16)
            total = tl.dot(tl.trans(high), lower, total, input_precision="ieee")
            total = tl.dot(tl.trans(low), lower, total, input_precision="ieee")
    where = parts + part.to(tl.int64) * R * C + rows.to(tl.int64)[:, None] * C + columns[None, :]
    tl.store(where, total, mask=(rows < R)[:, None] & (columns < C)[None, :])


@triton.jit
def gram(
    x, g, totals, lengths,
    T: tl.constexpr, PLACES: tl.constexpr, OUT_W: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, R: tl.constexpr, COLUMNS: tl.constexpr,
    KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, PLAIN: tl.constexpr,
    TINY_X: tl.constexpr, TINY_G: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A tile of both Gram matrices in registers: the sum of their product.

    On the diagonal also the lengths that the rounding bound needs.
    """
    blocks: tl.constexpr = (T + BT - 1) // BT
    pairs: tl.constexpr = blocks * (blocks + 1) // 2
    program = tl.program_id(0)
    unit = (program // pairs).to(tl.int64)
    pair = program % pairs
    i = 0
    for row in range(1, blocks):  # pairs in rows: (0,0), (1,0), (1,1), (2,0) ...
        i += (pair >= row * (row + 1) // 2).to(tl.int32)
    j = pair - i * (i + 1) // 2
    t = _nothing() + i * BT + tl.arange(0, BT)
    s = _nothing() + j * BT + tl.arange(0, BT)
    even_t: tl.constexpr = T % BT == 0
    xx = tl.zeros((BT, BT), dtype=tl.float32)
    for first in range(0, COLUMNS, BK):
        columns = _nothing() + first + tl.arange(0, BK)
        one = _patches(
            x, unit, t, columns, t < T, T, PLACES, OUT_W, H, W, C, COLUMNS, KW, SH, SW, PH, PW,
            DH, DW, PLAIN, even_t and COLUMNS % BK == 0,
        )  # fmt: skip
        two = _patches(
            x, unit, s, columns, s < T, T, PLACES, OUT_W, H, W, C, COLUMNS, KW, SH, SW, PH, PW,
            DH, DW, PLAIN, even_t and COLUMNS % BK == 0,
        )  # fmt: skip
        xx = tl.dot(one, tl.trans(two), xx, input_precision="ieee")
    gg = tl.zeros((BT, BT), dtype=tl.float32)
    for first in range(0, R, BK):
        rows = first + tl.arange(0, BK)
        one = _gradients(g, unit, t, rows, t < T, T, R, even_t and R % BK == 0)
        two = _gradients(g, unit, s, rows, s < T, T, R, even_t and R % BK == 0)
        gg = tl.dot(one, tl.trans(two), gg, input_precision="ieee")
    times = tl.where(i == j, 1.0, 2.0)
    tl.store(totals + program * 2, times * tl.sum(xx * gg))
    tl.store(totals + program * 2 + 1, times * tl.sum(gg * gg))
    if i == j:
        diagonal = tl.arange(0, BT)[:, None] == tl.arange(0, BT)[None, :]
        held = t < T
        square_x = tl.sum(tl.where(diagonal, xx, 0.0), axis=1) + TINY_X
        len_x = tl.sqrt(square_x)
        len_g = tl.sqrt(tl.sum(tl.where(diagonal, gg, 0.0), axis=1) + TINY_G)
        at = lengths + (unit * blocks + i) * 4
        tl.store(at, tl.sum(tl.where(held, len_x * len_g, 0.0)))
        tl.store(at + 1, tl.sum(tl.where(held, len_x, 0.0)))
        tl.store(at + 2, tl.sum(tl.where(held, len_g, 0.0)))
        tl.store(at + 3, tl.sum(tl.where(held, square_x, 0.0)))


@triton.jit
def scaled(x, weights, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """A unit's numbers times its weight; zeros for weight 0."""
    blocks: tl.constexpr = (SIZE + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    unit = (program // blocks).to(tl.int64)
    at = program % blocks * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(weights + unit)
    used = at < tl.where(weight != 0.0, SIZE, 0)
    value = tl.load(x + unit * SIZE + at, mask=used, other=0.0).to(tl.float32) * weight
    tl.store(out + unit * SIZE + at, value.to(out.dtype.element_ty), mask=at < SIZE)


@triton.jit
def lengths(x, out, C: tl.constexpr, BLOCK: tl.constexpr):
    """A row's length, from the numbers in memory."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, C, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.load(x + row * C + at, mask=at < C, other=0.0).to(tl.float32)
        total += value * value
    tl.store(out + row, tl.sqrt(tl.sum(total)))
