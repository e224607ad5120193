"""How each weight's norms are found: by kernels on a GPU, by torch's own functions elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from sfumato.learning.dp_sgd.gradients.convolution import Convolution
from sfumato.learning.dp_sgd.gradients.pieces import Outer, Piece
from sfumato.learning.dp_sgd.gradients.products import Product, by_kernels, matched
from sfumato.learning.dp_sgd.gradients.standardised import StandardisedKernel

__all__ = ["allowances", "as_factors", "settle"]

_MATRIX = [1, 1, 1, 1, 0, 0, 1, 1]


def settle(piece: Piece) -> Piece:
    """The same gradients, their norms found or the way to them decided."""
    return as_factors(piece).settle()


def as_factors(piece: Piece) -> Piece:
    """The same gradients as factors for kernels, where these can be used."""
    if isinstance(piece, Outer):
        return _matrix(piece) or piece
    if isinstance(piece, Convolution):
        return _kernel(piece) or piece
    return piece


def _matrix(piece: Outer) -> Piece | None:
    """(U, T, features) factors as images one wide."""
    if not piece.left.is_floating_point():
        return None
    x, g = matched(piece.right, piece.left)
    if not (by_kernels(x) and by_kernels(g)):
        return None
    finite = piece.finite and g.dtype == piece.left.dtype
    shape, turned = tuple(piece.shape), piece.transposed
    return Product.of(x.unsqueeze(2), g.unsqueeze(2), _MATRIX, len(x), shape, finite, turned)


def _kernel(piece: Convolution) -> Piece | None:
    """Images channels last."""
    geometry, dims = piece.geometry, len(piece.geometry.kernel)
    if geometry.groups != 1 or dims > 2:
        return None
    x, g = matched(piece.inputs, piece.outputs)
    if not (by_kernels(x, convolution=True) and by_kernels(g, convolution=True)):
        return None
    before = tuple(pair[0] for pair in geometry.padding)
    lengths = (geometry.kernel, geometry.stride, before, geometry.dilation)
    shape = (g.shape[1], x.shape[1], *geometry.kernel)
    if dims == 1:
        x, g = x.unsqueeze(3), g.unsqueeze(3)
        fill = (1, 1, 0, 1)
        lengths = tuple((*some, one) for some, one in zip(lengths, fill, strict=True))
    flat = [n for pair in lengths for n in pair]
    return Product.of(x.permute(0, 2, 3, 1), g.permute(0, 2, 3, 1), flat, piece.units, shape)


def allowances(pieces: Iterable[Piece]) -> list[Tensor]:
    """What these norms contain to be on the safe side, itself in no need of exactness."""
    known = (p.allowance for p in pieces if isinstance(p, (Product, StandardisedKernel)))
    return [allowance for allowance in known if allowance is not None]
