"""How the Triton kernels of per-example products are started: sizes of tiles, shares of the work.

What they compute is said in :mod:`~sfumato.learning.dp_sgd.kernels.products`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

__all__ = [
    "Shape",
    "direct",
    "equal_parts",
    "gram",
    "lengths",
    "row_facts",
    "scaled",
    "shape_of",
    "weighted",
    "weighted_rows",
]


class Shape(NamedTuple):
    """Sizes of one use of a weight."""

    units: int
    places: int  # T, copies included
    rows: int
    columns: int


def shape_of(x: Tensor, g: Tensor, geometry: list[int], units: int) -> Shape:
    """Of ``x`` (n, height, width, channels) and ``g`` (n, out height, out width, rows)."""
    places = g.shape[0] // max(units, 1) * g.shape[1] * g.shape[2]
    return Shape(units, places, g.shape[3], geometry[0] * geometry[1] * x.shape[3])


def _constants(x: Tensor, g: Tensor, geometry: list[int], shape: Shape) -> dict[str, Any]:
    kh, kw, sh, sw, ph, pw, dh, dw = geometry
    _, height, width, channels = x.shape
    plain = (kh, kw, sh, sw, ph, pw) == (1, 1, 1, 1, 0, 0) and x.shape[1:3] == g.shape[1:3]
    return {
        "T": shape.places, "PLACES": g.shape[1] * g.shape[2], "OUT_W": g.shape[2],
        "H": height, "W": width, "C": channels, "R": shape.rows, "COLUMNS": shape.columns,
        "KW": kw, "SH": sh, "SW": sw, "PH": ph, "PW": pw, "DH": dh, "DW": dw, "PLAIN": plain,
    }  # fmt: skip


def _block(size: int, least: int, most: int) -> int:
    """The power of two that holds ``size``, within bounds."""
    return max(least, min(most, 1 << max(0, size - 1).bit_length()))


def direct_blocks(shape: Shape) -> dict[str, int]:
    """Tile sizes of the direct kernel; found on an H200, as those below."""
    rows, columns = _block(shape.rows, 16, 128), _block(shape.columns, 16, 128)
    large = rows * columns == 128 * 128
    places = _block(shape.places, 16, 64 if large else 32)
    stages = 3 if large else 4
    return {"BR": rows, "BC": columns, "BT": places, "num_warps": 4, "num_stages": stages}


def weighted_blocks(shape: Shape) -> dict[str, int]:
    """Tile sizes of the weighted sum."""
    large = shape.rows * shape.columns >= 2**19
    rows, columns = _block(shape.rows, 16, 128 if large else 64), _block(shape.columns, 16, 128)
    places = _block(shape.places, 16, 64)
    warps = 8 if rows * columns == 128 * 128 else 4
    return {"BR": rows, "BC": columns, "BT": places, "num_warps": warps, "num_stages": 4}


def gram_blocks(shape: Shape) -> dict[str, int]:
    """Tile sizes of the Gram kernel."""
    places = _block(shape.places, 16, 128)
    depth = _block(max(shape.rows, shape.columns), 16, 64)
    warps, stages = (8, 4) if places == 128 else (4, 3)
    return {"BT": places, "BK": depth, "num_warps": warps, "num_stages": stages}


def direct(
    x: Tensor, g: Tensor, geometry: list[int], units: int, write: bool
) -> tuple[Tensor, Tensor]:
    """Squared norms in parts added up, and all products if asked for."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    shape = shape_of(x, g, geometry, units)
    blocks = direct_blocks(shape)
    tiles = -(-shape.rows // blocks["BR"]) * -(-shape.columns // blocks["BC"])
    squares = torch.empty((units, tiles), dtype=torch.float32, device=x.device)
    sizes = (units, shape.rows, shape.columns) if write else (0,)
    out = torch.empty(sizes, dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(products_triton.direct)[(units * tiles,)](
        *_in_a_row(x, g), squares, out, **_constants(x, g, geometry, shape),
        WRITE=write, **blocks,
    )  # fmt: skip
    return squares.sum(1), out


def row_facts(x: Tensor, g: Tensor, directions: Tensor, geometry: list[int], units: int) -> Tensor:
    """(units, rows, 3)."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    shape = shape_of(x, g, geometry, units)
    blocks = direct_blocks(shape)
    tall, wide = -(-shape.rows // blocks["BR"]), -(-shape.columns // blocks["BC"])
    facts = torch.empty((units, wide, shape.rows, 3), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(products_triton.row_facts)[(units * tall * wide,)](
        *_in_a_row(x, g, directions), facts, **_constants(x, g, geometry, shape), **blocks
    )
    return facts.sum(1)


def weighted(x: Tensor, g: Tensor, weights: Tensor, geometry: list[int], units: int) -> Tensor:
    """(rows, columns)."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    shape = shape_of(x, g, geometry, units)
    blocks = weighted_blocks(shape)
    tiles = -(-shape.rows // blocks["BR"]) * -(-shape.columns // blocks["BC"])
    at_once = _processors(x) * (1 if blocks["num_warps"] == 8 else 2)
    parts = equal_parts(tiles, units, at_once)
    programs = parts * tiles or min(at_once, tiles * units)
    new = torch.empty if parts else torch.zeros
    out = new((max(parts, 1), shape.rows, shape.columns), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(products_triton.weighted)[(programs,)](
        *_in_a_row(x, g, weights), out, units, programs, **_constants(x, g, geometry, shape),
        PARTS=parts, **blocks,
    )  # fmt: skip
    return out.sum(0) if parts > 1 else out[0]


_MOST_PARTS = 64
_A_PART = 0.1  # what adding up one more costs, in products of a unit and a tile
_SCALED = 2048


def equal_parts(tiles: int, units: int, at_once: int) -> int:
    """In how many parts to share out the units of each tile; 0 if there are too many tiles.

    Programs run ``at_once`` at a time, so that a last round of a few would leave most processors
    idle: the number is sought that leaves few, and is small itself.
    """
    if 2 * tiles > at_once:
        return 0
    most = max(1, min(units, _MOST_PARTS, 2 * at_once // tiles))

    def cost(parts: int) -> float:
        return -(-parts * tiles // at_once) * -(-units // parts) + _A_PART * parts

    return min(range(1, most + 1), key=cost)


def _processors(tensor: Tensor) -> int:
    """Of the GPU that holds it."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def weighted_rows(x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    """(rows, columns)."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    units, rows, columns = x.shape[0], g.shape[1], x.shape[1]
    tall, wide = _block(rows, 16, 64), _block(columns, 16, 128)
    tiles = -(-rows // tall) * -(-columns // wide)
    parts = max(1, min(-(-units // 64), 528 // tiles))
    each = -(-units // parts)
    out = torch.empty((parts, rows, columns), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(products_triton.weighted_rows)[(parts * tiles,)](
        *_in_a_row(x, g, weights), out, units, each, C=columns, R=rows, BR=tall, BC=wide, BT=64,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out.sum(0) if parts > 1 else out[0]


def gram(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """(units, 2) and (units, 4): see :func:`~sfumato.learning.dp_sgd.kernels.twins.gram`."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    shape = shape_of(x, g, geometry, units)
    blocks = gram_blocks(shape)
    many = -(-shape.places // blocks["BT"])
    pairs = many * (many + 1) // 2
    totals = torch.empty((units, pairs, 2), dtype=torch.float32, device=x.device)
    lengths = torch.empty((units, many, 4), dtype=torch.float32, device=x.device)
    tiny = torch.finfo(torch.float32).tiny
    torch.library.wrap_triton(products_triton.gram)[(units * pairs,)](
        *_in_a_row(x, g), totals, lengths, **_constants(x, g, geometry, shape),
        TINY_X=shape.columns * tiny, TINY_G=shape.rows * tiny, **blocks,
    )  # fmt: skip
    return totals.sum(1), lengths.sum(1)


def lengths(x: Tensor) -> Tensor:
    """(units,)."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    out = torch.empty(len(x), dtype=torch.float32, device=x.device)
    block = _block(x.shape[1], 32, 1024)
    torch.library.wrap_triton(products_triton.lengths)[(len(x),)](
        *_in_a_row(x), out, C=x.shape[1], BLOCK=block, num_warps=_block(block // 256, 1, 4)
    )
    return out


def scaled(x: Tensor, weights: Tensor, units: int) -> Tensor:
    """Each unit's numbers times its weight, rounded."""
    from sfumato.learning.dp_sgd.kernels import products_triton

    out, size = torch.empty_like(x), x.numel() // units
    start = cast("Any", products_triton.scaled)[(units * -(-size // _SCALED),)]
    start(*_in_a_row(x, weights), out, SIZE=size, BLOCK=_SCALED, num_warps=4)
    return out


def _in_a_row(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The same, whose numbers lie one after the other: kernels take that for granted."""
    for tensor in tensors:
        if not tensor.is_contiguous():
            raise ValueError(f"numbers must lie in a row, got strides {tensor.stride()}")
    return tensors
