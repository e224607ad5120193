"""Gradients as products of 16-bit factors, by kernels: the way of a GPU.

Under autocast the factors of a weight's gradient are bfloat16 or float16 already, and are taken as
they are. Float32 factors are shortened to float16's eleven bits, which are TF32's, where the user
allows TF32 for such products in the model; each unit's numbers are first brought near 2^14 by a
power of two of its own, so that small gradients do not vanish. What is shortened are the factors,
once, before norms and sums see them: both speak of the same vectors (see
:mod:`~sfumato.learning.dp_sgd.kernels.products` for the bound).

How a weight's norms are found follows from sizes alone; a close call is timed:

===========  ===========================  ==========================================================
way          kept until the sum           chosen
===========  ===========================  ==========================================================
written      all gradients                where these take less memory than the factors
Gram         the factors                  where T (rows + columns) < 4/3 rows columns, about
direct       the factors                  otherwise
one place    the factors                  for T = 1: the product of their norms
PyTorch's    all gradients                where kernels are not believed
===========  ===========================  ==========================================================

Kernels are compared with PyTorch before they are first used for some sizes: see
:mod:`~sfumato.learning.dp_sgd.gradients.checking`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients import summing
from sfumato.learning.dp_sgd.gradients.checking import Use, believed
from sfumato.learning.dp_sgd.gradients.pieces import Piece
from sfumato.learning.dp_sgd.gradients.precision import tf32_allowed
from sfumato.learning.dp_sgd.gradients.timing import confirmed_way
from sfumato.learning.dp_sgd.kernels import products
from sfumato.learning.dp_sgd.kernels.here import triton_is_here

__all__ = ["Product", "by_kernels", "matched"]

_HALF = (torch.bfloat16, torch.float16)
_LARGEST_EXPONENT = 14  # float16 ends below 2^16
_WIDEST = 60  # of a scale's exponent: the product of two is a float32 number like any other


def by_kernels(tensor: Tensor, convolution: bool = False) -> bool:
    """Whether gradients made of this output gradient go to the kernels."""
    if tensor.device.type != "cuda" or not tensor.numel() or not triton_is_here():
        return False
    if tensor.dtype in _HALF:
        return True
    return tensor.dtype == torch.float32 and tf32_allowed(convolution)


def matched(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The activation and the output gradient, both in the precision the function computed in."""
    for one, other in ((inputs, outputs), (outputs, inputs)):
        if one.dtype in _HALF and other.dtype != one.dtype:
            return inputs.to(one.dtype), outputs.to(one.dtype)
    return inputs, outputs


def _shortened(factor: Tensor, units: int) -> tuple[Tensor, Tensor | None]:
    """The factor in 16 bits, and what each unit's was divided by, a power of two."""
    if factor.dtype in _HALF:
        return factor, None
    largest = factor.view(units, -1).abs().amax(1)
    # The exponent's own bits, within bounds: scales and their products stay finite, those of 0 and
    # of numbers that are not finite, too.
    exponent = (largest.view(torch.int32) >> 23) - 127 - _LARGEST_EXPONENT
    exponent = exponent.clamp(-_WIDEST, _WIDEST)
    up = ((127 - exponent) << 23).view(torch.float32)
    short = (factor.view(units, -1) * up.view(-1, 1)).half().view(factor.shape)
    return short, ((127 + exponent) << 23).view(torch.float32)


def _length(factor: Tensor, units: int) -> Tensor:
    """(U,): a unit's numbers as one vector, their length, roughly, and not less.

    Over places first, as a bias is summed up: a compiler does both while it reads them once.
    """
    squares = factor.float().square().sum((1, 2)).view(units, -1).sum(1)
    lost = factor.numel() // units * torch.finfo(torch.float32).tiny
    return (squares + lost).sqrt() * (1 + 2.0**-8)


@final
@dataclass
class Product(Piece):
    """Gradients of a matrix or a two-dimensional kernel from their factors.

    Attributes:
        x: (n, height, width, channels) activations, 16-bit, contiguous.
        g: (n, out height, out width, rows) output gradients of the same type.
        geometry: kernel, stride, padding and dilation, two numbers each.
        units: U; consecutive rows belong to one unit.
        shape: of the parameter.
        scale: what each unit's product is to be multiplied with; None for 1.
        finite: whether all numbers of g are known to be.
        squares: squared norms, once known.
        all_written: (U, rows, columns), if they were written.
        allowance: what was added to norms for rounding, if anything.
        turned: whether the parameter is the matrix's transpose.
    """

    x: Tensor
    g: Tensor
    geometry: list[int]
    units: int
    shape: tuple[int, ...]
    scale: Tensor | None = None
    finite: bool = False
    squares: Tensor | None = None
    all_written: Tensor | None = None
    allowance: Tensor | None = None
    turned: bool = False
    _way: str = ""

    @classmethod
    def of(
        cls,
        x: Tensor,
        g: Tensor,
        geometry: list[int],
        units: int,
        shape: tuple[int, ...],
        finite: bool = False,
        turned: bool = False,
    ) -> Product:
        """From factors of any precision."""
        (x, by_x), (g, by_g) = _shortened(x.contiguous(), units), _shortened(g.contiguous(), units)
        scale = by_x if by_g is None else by_g if by_x is None else by_x * by_g
        return cls(x, g, geometry, units, shape, scale, finite, turned=turned)

    def settle(self) -> Piece:
        """Finds the norms, and lets go of the factors if all gradients are written."""
        if self.squares is None:
            self._find_norms()
        return self

    def believed(self, use: Use) -> bool:
        """Whether kernels are, for these sizes."""
        return believed(use, self.x, self.g, self.geometry, self.units)

    def _find_norms(self) -> None:
        factors = (self.x, self.g, self.geometry, self.units)
        way = self._way = confirmed_way(*factors, scale=self._scalable)
        use = "gram, scaled" if self._by_matrix_product else way
        if not self.believed(cast("Use", use)):
            self._way = "PyTorch's"
            squares, self.all_written = products.formed(*factors)
            self.x = self.g = squares.new_empty(0)
        elif way == "one place":
            norms = [products.row_lengths(factor.flatten(1)) for factor in (self.x, self.g)]
            squares = (norms[0] * norms[1]).square()
        elif way == "written":
            squares, self.all_written = products.written(*factors)
            self.x = self.g = squares.new_empty(0)  # no longer needed
        elif way == "gram":
            squares = products.gram_norms(*factors, rounded=self._by_matrix_product)
        else:
            self.allowance = self._rounding()
            squares = (products.direct_norms(*factors).sqrt() + self.allowance).square()
        self.squares = squares if self.scale is None else (squares.sqrt() * self.scale).square()

    @property
    def _by_matrix_product(self) -> bool:
        """Whether an ordinary one sums them up, its rounding charged to the norms."""
        return self._way == "gram" and self._scalable

    @property
    def _scalable(self) -> bool:
        known = self.finite and self.scale is None
        return known and products.can_scale(self.x, self.g, self.geometry)

    def _rounding(self) -> Tensor:
        """(U,): how far a product formed for the norm may be from the same formed for the sum.

        About sqrt(T) u sum_t |g_t| |x_t|, as for Gram matrices; four times that, with 2 u for
        tensor cores, which cut off what does not fit. By Cauchy and Schwarz the sum is at most
        |g| |x| sqrt(taps), no number of x being in more patches than the kernel has taps.
        """
        taps = self.geometry[0] * self.geometry[1]
        places = products.shape_of(self.x, self.g, self.geometry, self.units).places
        slack = 4 * math.sqrt(places * taps) * torch.finfo(torch.float32).eps
        return slack * _length(self.x, self.units) * _length(self.g, self.units)

    def rounding(self) -> Tensor:
        """(U,): the same for the gradients themselves."""
        return self._rounding() if self.scale is None else self._rounding() * self.scale

    def squared_norms(self) -> Tensor:
        """As found."""
        assert self.squares is not None
        return self.squares

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Each unit's product, weighted when it is complete; in blocks, but for :func:`scaled_sum`.

        (That one is a matrix product over all places, in which units of bfloat16 factors may
        cancel: no bound is claimed for rows that are made up.)
        """
        scaled = weights.float()
        if self.scale is not None:
            scaled = torch.where(scaled == 0, 0.0, scaled * self.scale)
        if self.all_written is not None:
            shaped = scaled.view(-1, 1, 1)
            every = torch.where(shaped == 0, 0.0, shaped * self.all_written)
            total = every.sum(0, dtype=torch.float64)
        elif self._by_matrix_product:
            total = products.scaled_sum(self.x, self.g, scaled, self.units).double()
        else:
            parts = (self._sum_of(units, scaled[units]) for units in summing.blocks(self.units))
            total = summing.added(parts)
            assert total is not None  # there are no products of no units
        return self._oriented(total)

    def _sum_of(self, units: slice, weights: Tensor) -> Tensor:
        """A block's sum, by the kernels."""
        copies = len(self.x) // self.units
        rows = slice(units.start * copies, units.stop * copies)
        x, g = self.x[rows], self.g[rows]
        if self._way == "one place":
            return products.weighted_rows(x.flatten(1), g.flatten(1), weights)
        return products.weighted_sum(x, g, weights, self.geometry, len(weights))

    def written(self) -> Tensor:
        """(U, *shape) in float32."""
        found = self.all_written
        if found is None:
            factors = (self.x, self.g, self.geometry, self.units)
            form = products.written if self.believed("written") else products.formed
            found = form(*factors)[1]
        if self.scale is not None:
            found = found * self.scale.view(-1, 1, 1)
        return self._oriented(found)

    def _oriented(self, matrices: Tensor) -> Tensor:
        """(..., rows, taps x channels) as (..., *shape)."""
        if len(self.shape) == 2:
            return matrices.mT.contiguous() if self.turned else matrices
        kernel = self.shape[2:]
        return matrices.unflatten(-1, (*kernel, -1)).movedim(-1, -len(kernel) - 1)
