"""Products of patches and output gradients, example by example: norms and weighted sums.

The gradient of a matrix or of a convolution's kernel, for one unit, is a product of two factors:

    G_u = sum over places t of g_t x_t^T,    g_t: output gradient (rows), x_t: patch (columns)

Eight operators, each one Triton kernel on a GPU and plain PyTorch elsewhere (its twin):

======================  ==========================================================================
:func:`direct_norms`    |G_u|^2, G_u formed tile by tile in registers and never written
:func:`written`         the same, and G_u for all units
:func:`gram_norms`      |G_u|^2 = sum_{t,s} (g_t . g_s)(x_t . x_s), with a bound of its rounding
:func:`row_facts`       of each row of G_u its squares, its sum, and its product with a direction
:func:`weighted_sum`    sum_u w_u G_u, each unit's product formed first and weighted afterwards
:func:`weighted_rows`   the same for units of one place, G_u = g x^T: w_u g is formed first
:func:`scaled_sum`      the same by an ordinary matrix product, w_u x_t rounded to bfloat16 first
:func:`row_lengths`     |x| for units of one place
======================  ==========================================================================

What is promised of rounding. Factors are bfloat16 or float16. The product of two such numbers is
exact in float32, in which all sums are kept. So norms and sums speak of the *same* vectors G_u,
up to float32's own error, and a unit's contribution w_u G_u is at most C (1 + 2^-14) long for the
w_u that clipping chose, the allowance that clipping takes off. That is why the weight multiplies
the finished product.

The exception is :func:`scaled_sum`, at the speed of an ordinary weight gradient. Activations times
their weight, rounded to bfloat16, are off by e_t with |e_t| <= 2^-8 w_u |x_t|, so that the sum is
off by |sum_t g_t e_t^T|. That may be many times |w_u G_u| where places cancel. But it is at most
2^-8 w_u B_u, where

    B_u = min(sum_t |g_t| |x_t|,  |g g^T|_F^(1/2) |x|_F)

(the second because |g^T e|_F <= |g|_2 |e|_F and the fourth power of the spectral norm |g|_2 is at
most the squares of g g^T added up). :func:`gram_norms` knows both and adds 2^-8 B_u to the norm
that is clipped by. For a transformer over 256 tokens that is about 1 % of a gradient's norm.

For a unit of one place |(w g) x^T| = |w g| |x|: nothing can cancel, and w g is kept in sixteen bits
with float32's range.

A unit of weight 0 contributes exactly nothing, whatever its numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.kernels import launches, twins
from sfumato.learning.dp_sgd.kernels.here import triton_is_here
from sfumato.learning.dp_sgd.kernels.launches import Shape, shape_of

__all__ = [
    "Shape",
    "by_kernel",
    "can_scale",
    "direct_norms",
    "formed",
    "gram_facts",
    "gram_norms",
    "row_facts",
    "row_lengths",
    "scaled_sum",
    "shape_of",
    "ways",
    "weighted_rows",
    "weighted_sum",
    "written",
]


ROUNDED = 2.0**-8
"""How far a number rounded to bfloat16 is from what it was, relatively."""

_LENGTHS = 2.0**-18  # of a row's length: some thousand additions in float32, in a tree at the end


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
    if by_kernel(x):
        return launches.direct(x, g, geometry, units, write)
    squares, all_written = _formed(x, g, geometry, units)
    return squares, all_written if write else all_written.new_empty(0)


def _formed(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    all_written = twins.written(x, g, geometry, units)
    return all_written.flatten(1).double().square().sum(1).float(), all_written


@_operator("product_gram")
def _product_gram(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    if by_kernel(x):
        return launches.gram(x, g, geometry, units)
    return twins.gram(x, g, geometry, units)


@_operator("product_sum")
def _product_sum(x: Tensor, g: Tensor, weights: Tensor, geometry: list[int], units: int) -> Tensor:
    if by_kernel(x):
        return launches.weighted(x, g, weights, geometry, units)
    all_written = twins.written(x, g, geometry, units)
    shaped = weights.view(-1, 1, 1)
    return torch.where(shaped == 0, 0.0, shaped * all_written).sum(0)


@_operator("product_row_facts")
def _product_row_facts(
    x: Tensor, g: Tensor, directions: Tensor, geometry: list[int], units: int
) -> Tensor:
    if by_kernel(x):
        return launches.row_facts(x, g, directions, geometry, units)
    every = twins.written(x, g, geometry, units)
    facts = every.square(), every, every * directions
    return torch.stack([fact.sum(2) for fact in facts], 2)


@_operator("product_lengths")
def _product_lengths(x: Tensor) -> Tensor:
    if by_kernel(x):
        return launches.lengths(x)
    return torch.linalg.vector_norm(x.float(), dim=1)


@torch.library.custom_op("sfumato::product_scaled", mutates_args=())
def _product_scaled(x: Tensor, g: Tensor, weights: Tensor, units: int) -> Tensor:
    if by_kernel(x):
        right = launches.scaled(x, weights, units).view(-1, x.shape[3])
        with _whole_reductions():
            return torch.mm(g.view(-1, g.shape[3]).t(), right, out_dtype=torch.float32)
    return twins.scaled(x, g, weights, units)


@_product_scaled.register_fake
def _(x: Tensor, g: Tensor, weights: Tensor, units: int) -> Tensor:
    return x.new_empty((g.shape[3], x.shape[3]), dtype=torch.float32)


@_operator("product_rows")
def _product_rows(x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    if by_kernel(x):
        return launches.weighted_rows(x, g, weights)
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


def formed(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """As :func:`written`, by plain PyTorch everywhere."""
    squares, products = _formed(x, g, geometry, units)
    return _not_too_small(squares, shape_of(x, g, geometry, units)), products


def gram_facts(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """(units, 2) and (units, 4): see :func:`~sfumato.learning.dp_sgd.kernels.twins.gram`."""
    return _product_gram(x, g, geometry, units)


def gram_norms(
    x: Tensor, g: Tensor, geometry: list[int], units: int, rounded: bool = False
) -> Tensor:
    """(units,): the same from Gram matrices, never below the truth.

    Terms may cancel where their rounding does not. With n-term inner products the error is about
    sqrt(n) u S^2, S = sum_t |g_t| |x_t| (Higham and Mary, "A new approach to probabilistic rounding
    error analysis", 2019); four times that is added, and what vanished below the smallest number.

    Args:
        x: as for :func:`direct_norms`.
        g: as for :func:`direct_norms`.
        geometry: as for :func:`direct_norms`.
        units: U.
        rounded: whether :func:`scaled_sum` sums them up, whose rounding is then added.
    """
    totals, lengths = _product_gram(x, g, geometry, units)
    shape = shape_of(x, g, geometry, units)
    tiny, eps = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).eps
    slack = 4 * math.sqrt(shape.places + shape.rows + shape.columns) * eps / 2
    both, of_x, of_g, squares_of_x = lengths.unbind(1)
    lost = shape.columns * tiny * of_g.square() + shape.rows * tiny * of_x.square()
    squares = totals[:, 0].clamp(min=0) + slack * both.square() + lost
    if not rounded:
        return squares
    fourth_powers = totals[:, 1] * (1 + 2 * slack * math.sqrt(shape.places))
    fourth_powers = fourth_powers + shape.places**2 * tiny  # what squares may have lost
    bound = torch.minimum(both, fourth_powers.sqrt().sqrt() * squares_of_x.sqrt())
    return (squares.sqrt() + ROUNDED * bound).square()


def weighted_sum(
    x: Tensor,
    g: Tensor,
    weights: Tensor,
    geometry: list[int],
    units: int,
) -> Tensor:
    """(rows, columns) in float32: the sum over units of weight times product."""
    return _product_sum(x, g, _in_a_row(weights), geometry, units)


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
    return _product_rows(x, g, _in_a_row(weights))


def scaled_sum(x: Tensor, g: Tensor, weights: Tensor, units: int) -> Tensor:
    """(rows, columns) in float32: the weighted sum by a matrix product, w_u x_t rounded first.

    Of plain matrices in bfloat16, their norms found with ``rounded``, and of gradients that are
    known to be finite: a matrix product cannot leave a unit out, but only multiply it by 0.
    """
    return _product_scaled(x, g, _in_a_row(weights), units)


def can_scale(x: Tensor, g: Tensor, geometry: list[int]) -> bool:
    """Whether :func:`scaled_sum` is for these factors, if ``g`` is finite."""
    plain = geometry == [1, 1, 1, 1, 0, 0, 1, 1] and x.shape[:3] == g.shape[:3]
    short = x.dtype == g.dtype == torch.bfloat16
    return plain and short and (x.device.type != "cuda" or hasattr(torch.ops.aten.mm, "dtype"))


def ways(
    x: Tensor, g: Tensor, weights: Tensor, geometry: list[int], units: int, scale: bool
) -> dict[str, Callable[[], object]]:
    """Gram matrices or tiles in registers, by kernels alone, as far as they differ: for timing.

    Args:
        x: as for :func:`direct_norms`.
        g: as for :func:`direct_norms`.
        weights: (U,).
        geometry: as for :func:`direct_norms`.
        units: U.
        scale: whether the first is followed by :func:`scaled_sum`.
    """

    def gram() -> object:
        return _product_gram(x, g, geometry, units)

    def direct() -> object:
        return _product_norms(x, g, geometry, units, False)

    if not scale:
        return {"gram": gram, "direct": direct}
    return {
        "gram": lambda: (gram(), _product_scaled(x, g, weights, units)),
        "direct": lambda: (direct(), _product_sum(x, g, weights, geometry, units)),
    }


def row_lengths(x: Tensor) -> Tensor:
    """(units,): each row's length, from (units, columns), at least."""
    lost = math.sqrt(x.shape[1] * torch.finfo(torch.float32).tiny)
    return _product_lengths(x) * (1 + _LENGTHS) + lost


def _in_a_row(weights: Tensor) -> Tensor:
    """In float32, one after the other: clip factors of several groups lie in columns."""
    return weights.float().contiguous()


def _not_too_small(squares: Tensor, shape: Shape) -> Tensor:
    """With what squares below the smallest number may have lost."""
    lost = math.sqrt(shape.rows * shape.columns * torch.finfo(torch.float32).tiny)
    return (squares.sqrt() + lost).square()


def by_kernel(x: Tensor) -> bool:
    """Whether kernels run where this tensor is."""
    return x.device.type == "cuda" and triton_is_here()


@contextlib.contextmanager
def _whole_reductions() -> Generator[None]:
    """Parts of a product are added up in float32, whatever else is allowed."""
    flags: Any = torch.backends.cuda.matmul
    before: Any = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()  # pyright: ignore
    whole = (False, before[1]) if isinstance(before, tuple) else False
    if whole != before:
        flags.allow_bf16_reduced_precision_reduction = whole
    try:
        yield
    finally:
        if whole != before:
            flags.allow_bf16_reduced_precision_reduction = before
