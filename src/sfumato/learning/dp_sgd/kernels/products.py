"""Products of patches and output gradients, example by example: norms and weighted sums.

The gradient of a matrix or of a convolution's kernel, for one unit, is a product of two factors:

    G_u = sum over places t of g_t x_t^T,    g_t: output gradient (rows), x_t: patch (columns)

Six operators, each one Triton kernel on a GPU and plain PyTorch elsewhere (its twin):

======================  ==========================================================================
:func:`direct_norms`    |G_u|^2, G_u formed tile by tile in registers and never written
:func:`written`         the same, and G_u for all units
:func:`gram_norms`      |G_u|^2 = sum_{t,s} (g_t . g_s)(x_t . x_s), with a bound of its rounding
:func:`row_facts`       of each row of G_u its squares, its sum, and its product with a direction
:func:`weighted_sum`    sum_u w_u G_u, each unit's product formed first and weighted afterwards
:func:`weighted_rows`   the same for units of one place, G_u = g x^T: w_u g is formed first
======================  ==========================================================================

What is promised of rounding. Factors are bfloat16 or float16. The product of two such numbers is
exact in float32, in which all sums are kept. So norms and sums speak of the *same* vectors G_u,
up to float32's own error, and a unit's contribution w_u G_u is at most C (1 + 2^-14) long for the
w_u that clipping chose, the allowance that clipping takes off. That is why the weight multiplies
the finished product: a gradient times its weight, rounded to bfloat16 first as an ordinary weight
gradient would have it, is off by 2^-9 of sum_t |g_t| |x_t|, which may be many times |G_u|.

A unit of one place is the exception: |(w g) x^T| = |w g| |x|, nothing can cancel, and w g is kept
in sixteen bits with float32's range.

A unit of weight 0 contributes exactly nothing, whatever its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.kernels.here import triton_is_here

__all__ = [
    "Shape",
    "direct_norms",
    "gram_norms",
    "row_facts",
    "shape_of",
    "weighted_rows",
    "weighted_sum",
    "written",
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


# --- operators ----------------------------------------------------------------------------------


def _operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers an operator that ``torch.compile`` sees into where there is Triton."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if triton_is_here():
            return torch.library.triton_op(f"sfumato::{name}", function, mutates_args=())
        made = torch.library.custom_op(f"sfumato::{name}", function, mutates_args=())
        made.register_fake(function)
        return made

    return register


@_operator("product_norms")
def _product_norms(
    x: Tensor, g: Tensor, geometry: list[int], units: int, write: bool
) -> tuple[Tensor, Tensor]:
    if _by_kernel(x):
        return _launch_direct(x, g, geometry, units, write)
    all_written = _written_twin(x, g, geometry, units)
    squares = all_written.flatten(1).double().square().sum(1).float()
    return squares, all_written if write else all_written.new_empty(0)


@_operator("product_gram")
def _product_gram(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    if _by_kernel(x):
        return _launch_gram(x, g, geometry, units)
    return _gram_twin(x, g, geometry, units)


@_operator("product_sum")
def _product_sum(x: Tensor, g: Tensor, weights: Tensor, geometry: list[int], units: int) -> Tensor:
    if _by_kernel(x):
        return _launch_weighted(x, g, weights, geometry, units)
    all_written = _written_twin(x, g, geometry, units)
    shaped = weights.view(-1, 1, 1)
    return torch.where(shaped == 0, 0.0, shaped * all_written).sum(0)


@_operator("product_row_facts")
def _product_row_facts(
    x: Tensor, g: Tensor, directions: Tensor, geometry: list[int], units: int
) -> Tensor:
    if _by_kernel(x):
        return _launch_row_facts(x, g, directions, geometry, units)
    every = _written_twin(x, g, geometry, units)
    facts = every.square(), every, every * directions
    return torch.stack([fact.sum(2) for fact in facts], 2)


@_operator("product_rows")
def _product_rows(x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    if _by_kernel(x):
        return _launch_rows(x, g, weights)
    shaped = weights.view(-1, 1)
    left = torch.where(shaped == 0, 0.0, shaped * g.float())
    return left.mT @ torch.where(shaped == 0, 0.0, x.float())


def direct_norms(x: Tensor, g: Tensor, geometry: list[int], units: int) -> Tensor:
    """(units,): squared norms of all products.

    Args:
        x: (n, height, width, channels), contiguous; consecutive rows belong to one unit.
        g: (n, out height, out width, rows), contiguous, of the same type.
        geometry: kernel, stride, padding before, and dilation, two numbers each.
        units: U.
    """
    squares, _ = _product_norms(x, g, geometry, units, False)
    return _not_too_small(squares, shape_of(x, g, geometry, units))


def written(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """Squared norms, and (units, rows, columns) in float32: every unit's product."""
    squares, products = _product_norms(x, g, geometry, units, True)
    return _not_too_small(squares, shape_of(x, g, geometry, units)), products


def gram_norms(x: Tensor, g: Tensor, geometry: list[int], units: int) -> Tensor:
    """(units,): the same from Gram matrices, never below the truth.

    Terms may cancel where their rounding does not. With n-term inner products the error is about
    sqrt(n) u S^2, S = sum_t |g_t| |x_t| (Higham and Mary, "A new approach to probabilistic rounding
    error analysis", 2019); four times that is added, and what vanished below the smallest number.
    """
    totals, lengths = _product_gram(x, g, geometry, units)
    shape = shape_of(x, g, geometry, units)
    tiny, eps = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).eps
    slack = 4 * math.sqrt(shape.places + shape.rows + shape.columns) * eps / 2
    both, of_x, of_g = lengths.unbind(1)
    lost = shape.columns * tiny * of_g.square() + shape.rows * tiny * of_x.square()
    return totals.clamp(min=0) + slack * both.square() + lost


def weighted_sum(
    x: Tensor,
    g: Tensor,
    weights: Tensor,
    geometry: list[int],
    units: int,
) -> Tensor:
    """(rows, columns) in float32: the sum over units of weight times product."""
    return _product_sum(x, g, weights.float(), geometry, units)


def row_facts(x: Tensor, g: Tensor, directions: Tensor, geometry: list[int], units: int) -> Tensor:
    """(units, rows, 3): each row's sum of squares, sum, and product with its direction.

    Args:
        x: as for :func:`direct_norms`.
        g: as for :func:`direct_norms`.
        directions: (rows, columns) in float32, contiguous.
        geometry: as for :func:`direct_norms`.
        units: U.
    """
    return _product_row_facts(x, g, directions, geometry, units)


def weighted_rows(x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    """(rows, columns) in float32, from (units, columns) and (units, rows)."""
    return _product_rows(x, g, weights.float())


def _not_too_small(squares: Tensor, shape: Shape) -> Tensor:
    """With what squares below the smallest number may have lost."""
    lost = math.sqrt(shape.rows * shape.columns * torch.finfo(torch.float32).tiny)
    return (squares.sqrt() + lost).square()


def _by_kernel(x: Tensor) -> bool:
    return x.device.type == "cuda" and triton_is_here()


# --- launches -----------------------------------------------------------------------------------


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
    large = shape.rows * shape.columns >= 2**21
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


def _launch_direct(
    x: Tensor, g: Tensor, geometry: list[int], units: int, write: bool
) -> tuple[Tensor, Tensor]:
    from sfumato.learning.dp_sgd.kernels.products_triton import direct

    shape = shape_of(x, g, geometry, units)
    blocks = direct_blocks(shape)
    tiles = -(-shape.rows // blocks["BR"]) * -(-shape.columns // blocks["BC"])
    squares = torch.empty((units, tiles), dtype=torch.float32, device=x.device)
    sizes = (units, shape.rows, shape.columns) if write else (0,)
    out = torch.empty(sizes, dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(direct)[(units * tiles,)](
        x, g, squares, out, **_constants(x, g, geometry, shape),
        WRITE=write, **blocks,
    )  # fmt: skip
    return squares.sum(1), out


def _launch_row_facts(
    x: Tensor, g: Tensor, directions: Tensor, geometry: list[int], units: int
) -> Tensor:
    from sfumato.learning.dp_sgd.kernels.products_triton import row_facts

    shape = shape_of(x, g, geometry, units)
    blocks = direct_blocks(shape)
    tall, wide = -(-shape.rows // blocks["BR"]), -(-shape.columns // blocks["BC"])
    facts = torch.empty((units, wide, shape.rows, 3), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(row_facts)[(units * tall * wide,)](
        x, g, directions, facts, **_constants(x, g, geometry, shape), **blocks
    )
    return facts.sum(1)


def _launch_weighted(
    x: Tensor, g: Tensor, weights: Tensor, geometry: list[int], units: int
) -> Tensor:
    from sfumato.learning.dp_sgd.kernels.products_triton import weighted

    shape = shape_of(x, g, geometry, units)
    blocks = weighted_blocks(shape)
    tiles = -(-shape.rows // blocks["BR"]) * -(-shape.columns // blocks["BC"])
    at_once = _processors(x) * (1 if blocks["num_warps"] == 8 else 2)
    programs = min(at_once, tiles * units)
    out = torch.zeros((shape.rows, shape.columns), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(weighted)[(programs,)](
        x, g, weights, out, units, programs, **_constants(x, g, geometry, shape), **blocks
    )
    return out


def _processors(tensor: Tensor) -> int:
    """Of the GPU that holds it."""
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count


def _launch_rows(x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    from sfumato.learning.dp_sgd.kernels.products_triton import weighted_rows

    units, rows, columns = x.shape[0], g.shape[1], x.shape[1]
    tall, wide = _block(rows, 16, 64), _block(columns, 16, 128)
    tiles = -(-rows // tall) * -(-columns // wide)
    parts = max(1, min(-(-units // 64), 528 // tiles))
    each = -(-units // parts)
    out = torch.empty((parts, rows, columns), dtype=torch.float32, device=x.device)
    torch.library.wrap_triton(weighted_rows)[(parts * tiles,)](
        x, g, weights, out, units, each, C=columns, R=rows, BR=tall, BC=wide, BT=64,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out.sum(0) if parts > 1 else out[0]


def _launch_gram(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    from sfumato.learning.dp_sgd.kernels.products_triton import gram

    shape = shape_of(x, g, geometry, units)
    blocks = gram_blocks(shape)
    many = -(-shape.places // blocks["BT"])
    pairs = many * (many + 1) // 2
    totals = torch.empty((units, pairs), dtype=torch.float32, device=x.device)
    lengths = torch.empty((units, many, 3), dtype=torch.float32, device=x.device)
    tiny = torch.finfo(torch.float32).tiny
    torch.library.wrap_triton(gram)[(units * pairs,)](
        x, g, totals, lengths, **_constants(x, g, geometry, shape),
        TINY_X=shape.columns * tiny, TINY_G=shape.rows * tiny, **blocks,
    )  # fmt: skip
    return totals.sum(1), lengths.sum(1)


# --- twins --------------------------------------------------------------------------------------


def _factors(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """(units, places, columns) patches and (units, places, rows) gradients."""
    kh, kw, sh, sw, ph, pw, dh, dw = geometry
    _, out_h, out_w, rows = g.shape
    n, height, width, channels = x.shape
    below = (out_h - 1) * sh + (kh - 1) * dh + 1 - ph - height
    right = (out_w - 1) * sw + (kw - 1) * dw + 1 - pw - width
    pads = [0, 0, pw, max(0, right), ph, max(0, below)]
    image = torch.nn.functional.pad(x.float(), pads).contiguous()
    s0, s1, s2, s3 = image.stride()
    windows = image.as_strided(
        (n, out_h, out_w, kh, kw, channels), (s0, s1 * sh, s2 * sw, s1 * dh, s2 * dw, s3)
    )
    places = n // units * out_h * out_w
    return (
        windows.reshape(units, places, kh * kw * channels),
        g.float().reshape(units, places, rows),
    )


def _written_twin(x: Tensor, g: Tensor, geometry: list[int], units: int) -> Tensor:
    patches, gradients = _factors(x, g, geometry, units)
    return torch.bmm(gradients.mT, patches)


def _gram_twin(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    patches, gradients = _factors(x, g, geometry, units)
    tiny = torch.finfo(torch.float32).tiny
    grams = [torch.bmm(factor, factor.mT) for factor in (patches, gradients)]
    of_x, of_g = (
        (gram.diagonal(dim1=1, dim2=2) + factor.shape[2] * tiny).sqrt()
        for gram, factor in zip(grams, (patches, gradients), strict=True)
    )
    total = (grams[0] * grams[1]).sum((1, 2))
    return total, torch.stack([(of_x * of_g).sum(1), of_x.sum(1), of_g.sum(1)], 1)
