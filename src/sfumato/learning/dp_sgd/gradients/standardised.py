"""Gradients of standardised convolutions, which need not be written out.

Weight standardisation convolves with K_o = gain_o r_o v_o for each output channel o, where v_o is
the channel's n weights less their mean and r_o = max(|v_o|^2, floor)^(-1/2) (Qiao et al.,
"Micro-batch training with batch-channel normalization and weight standardization",
arXiv:1903.10520; gains as in Brock et al., arXiv:2101.08692). The step from weights to K is the
same for all examples, and linear in gradients: with G the gradient of one example for K,

    gradient of gain_o:   r_o <G_o, v_o>
    gradient of w_o:      gain_o r_o (G_o - mean(G_o) - r_o^2 <G_o, v_o> v_o)

(without the last term where the floor holds). So a weighted sum over examples takes one ordinary
sum for K and one step back. The parts taken off G_o lie along the ones and along v_o, which are
orthogonal, so norms need three numbers of each row only, its squares, its sum and <G_o, v_o>:

    |gradient of w_o|^2 = (gain_o r_o)^2 (|G_o|^2 - (sum G_o)^2 / n - c_o r_o^2 <G_o, v_o>^2)

c_o = 2 - r_o^2 |v_o|^2, which is 1, or 0 for no last term. What the subtraction may lose to
rounding is added: 2^-18 of |G_o|^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients import summing
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Piece, exact_type
from sfumato.learning.dp_sgd.gradients.products import Product
from sfumato.learning.dp_sgd.kernels import products
from sfumato.learning.functions import FLOOR

__all__ = ["StandardisedKernel", "standardised_kernel"]

_LOST = 2.0**-18
_UNITS = 32  # of a block
_SPREAD = summing.TERMS**2 / _UNITS**2  # gradients for K are at most so much longer: see summing


@dataclass
class _Weights:
    """What the step from weights to K consists of.

    Attributes:
        centred: v, (rows, channels, height, width).
        inverse: r, (rows,).
        gain: (rows,).
        counted: c, (rows,): 1, or 0 where the floor holds.
    """

    centred: Tensor
    inverse: Tensor
    gain: Tensor
    counted: Tensor

    @property
    def scale(self) -> Tensor:
        """What multiplies v."""
        return self.gain * self.inverse


def _facts_of(weight: Tensor, gain: Tensor) -> _Weights:
    """From parameters alone."""
    dtype, dims = exact_type(weight.dtype), (1, 2, 3)
    centred = weight.detach().to(dtype)
    # Twice: of weights far from 0 the mean is rounded by more than they differ, and what is left
    # along the ones norms would take for nothing. The second mean is that of small numbers.
    for _ in range(2):
        centred = centred - centred.mean(dims, keepdim=True)
    length = centred.square().sum(dims)
    inverse = length.clamp(min=FLOOR).rsqrt()
    counted = (length >= FLOOR).to(dtype)
    return _Weights(centred, inverse, gain.detach().to(dtype), counted)


@final
@dataclass
class StandardisedKernel(Piece):
    """Gradients of the weights, from those of K.

    Attributes:
        kernel: K's gradients.
        facts: (U, rows, 3): squares, sums and products with v, of each row of them.
        weights: the step from weights to K.
        allowance: (U,): how far K's gradients may be from what the facts are of; None for 0.
    """

    kernel: Piece
    facts: Tensor
    weights: _Weights
    allowance: Tensor | None = None

    def squared_norms(self) -> Tensor:
        """By the formula above."""
        w = self.weights
        squares, sums, along = self.facts.unbind(2)
        whole = (w.scale.square() * squares).sum(1)
        count = w.centred[0].numel()
        taken = sums.square() / count + w.counted * (w.inverse * along).square()
        left = (squares - taken).clamp(min=0) + _LOST * squares
        squares = (w.scale.square() * left).sum(1)
        if squares.dtype == torch.float32:
            squares = torch.maximum(squares, whole / _SPREAD**2)
        if self.allowance is None:
            return squares
        return (squares.sqrt() + w.scale.abs().amax() * self.allowance).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One sum for K, one step back.

        What is taken off may be most of a gradient for K; blocks are smaller for that reason.
        """
        if isinstance(self.kernel, Direct):
            every = self.kernel.gradients
            flat = summing.zero_rows(every.flatten(1), weights, owned=False)
            total = summing.rows(flat, weights, _UNITS).view(every.shape[1:])
        else:
            total = self.kernel.weighted_sum(weights)
        return self._back(total)

    def written(self) -> Tensor:
        """(U, *shape)."""
        return self._back(self.kernel.written())

    def _back(self, gradient: Tensor) -> Tensor:
        w, dims = self.weights, (-3, -2, -1)
        rows = (-1, 1, 1, 1)
        along = (gradient * w.centred).sum(dims, keepdim=True)
        less = (w.counted * w.inverse.square()).view(rows) * along * w.centred
        return w.scale.view(rows) * (gradient - gradient.mean(dims, keepdim=True) - less)

    def of_gains(self) -> Piece:
        """The gradients of the gains."""
        return Direct(self.facts[..., 2] * self.weights.inverse)


def standardised_kernel(kernel: Piece, weight: Tensor, gain: Tensor) -> StandardisedKernel:
    """From K's gradients: factors for kernels, or anything that can be written out."""
    weights = _facts_of(weight, gain)
    if isinstance(kernel, Product) and kernel.believed("row facts"):
        directions = weights.centred.permute(0, 2, 3, 1).flatten(1).contiguous()
        facts = products.row_facts(kernel.x, kernel.g, directions, kernel.geometry, kernel.units)
        if kernel.scale is not None:
            scale = kernel.scale.view(-1, 1)
            facts = torch.stack(
                [facts[..., 0] * scale * scale, facts[..., 1] * scale, facts[..., 2] * scale], 2
            )
        return StandardisedKernel(kernel, facts, weights, kernel.rounding())
    every = kernel.written()
    parts = every.square(), every, every * weights.centred
    facts = torch.stack([part.flatten(2).sum(2) for part in parts], 2)
    return StandardisedKernel(Direct(every), facts, weights)
