"""The sum of a batch's gradients, each clipped in L1 norm.

Guarantee: one example more or less moves the sum by at most ``clip`` in L1 norm, whatever is in it.
An example's gradient is a function of that example alone, by construction: it is either taken under
``torch.func.vmap``, which shows a model one example at a time, or the model is a plain stack of
dense layers and elementwise functions. Scaled by f = min(1, C (1 - eta) / norm) it has norm
at most C, where eta covers the rounding of norm, factor and product (see
:data:`~sfumato.learning.dp_sgd.clipping.ROUNDING`). One that is not finite contributes exactly 0.

For a dense layer with input x and output gradient e the gradient is e x^T, whose L1 norm is |e|_1
|x|_1: a stack of them needs no gradient written out for its norms, nor for its clipped sum, which
is one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfumato.learning.dp_sgd.clipping import ROUNDING
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.naive.examples import losses, trainable

__all__ = ["clipped_sum", "is_dense_stack"]

_PLAIN = (nn.Linear, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.ELU, nn.SiLU, nn.Identity)
_ETA = ROUNDING["float32"]


def clipped_sum(model: nn.Module, inputs: Tensor, labels: Tensor, clip: float) -> Tensor:
    """The clipped sum over the rows, as one vector in float64 in the order of the parameters.

    Args:
        model: gives a row of scores for each input; its loss is the cross-entropy.
        inputs: (B, ...).
        labels: (B,); one that names no class gives a gradient of 0.
        clip: C.
    """
    if not len(labels):
        size = sum(p.numel() for p in trainable(model).values())
        return torch.zeros(size, dtype=torch.float64, device=inputs.device)
    way = _factored if inputs.ndim == 2 and is_dense_stack(model) else _written
    with torch.enable_grad(), torch.autocast(inputs.device.type, enabled=False), full_precision():
        return way(model, inputs, labels, clip)


def is_dense_stack(model: nn.Module) -> bool:
    """Whether a model is dense layers and elementwise functions in a row, and nothing besides."""
    if type(model) is not nn.Sequential or _has_extras(model):
        return False
    if any(type(layer) not in _PLAIN or _has_extras(layer) for layer in model):
        return False
    used = [id(p) for layer in model for p in layer.parameters()]
    return len(used) == len(set(used)) == len(list(model.parameters()))


def _has_extras(module: nn.Module) -> bool:
    """Whether someone's code runs with the module's own: it might mix examples."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    return any(hooks) or "forward" in vars(module)


def _factors(norms: Tensor, clip: float) -> Tensor:
    """What to multiply each example with, in float64; 0 where a norm is not finite."""
    factors = (clip * (1 - _ETA) / norms.double()).clamp(max=1)
    return torch.where(torch.isfinite(norms), factors, torch.zeros((), dtype=torch.float64))


def _kept(rows: Tensor, factors: Tensor) -> Tensor:
    """The rows, blanked where the factor is 0: 0 times infinity is not 0."""
    shaped = factors.view(-1, *(1,) * (rows.ndim - 1))
    return torch.where(shaped == 0, torch.zeros((), dtype=rows.dtype), rows)


def _written(model: nn.Module, inputs: Tensor, labels: Tensor, clip: float) -> Tensor:
    """Every example's gradient written out, one example at a time to the model's eyes."""
    weights = {name: p.detach() for name, p in trainable(model).items()}

    def loss(weights: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(model, weights, (row.unsqueeze(0),))
        return losses(scores.squeeze(0), label)

    one = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    found = [one_gradient.flatten(1) for one_gradient in one(weights, inputs, labels).values()]
    with torch.no_grad():
        norms = torch.stack([rows.abs().sum(1) for rows in found]).sum(0)
        factors = _factors(norms, clip)
        sums = [factors.to(rows.dtype) @ _kept(rows, factors) for rows in found]
    return torch.cat([total.double() for total in sums])


def _factored(model: nn.Module, inputs: Tensor, labels: Tensor, clip: float) -> Tensor:
    """From each dense layer's inputs and output gradients."""
    assert isinstance(model, nn.Sequential)
    value, dense = inputs, list[_Dense]()
    for layer in model:
        seen, value = value.detach(), layer(value)
        if isinstance(layer, nn.Linear) and any(p.requires_grad for p in layer.parameters()):
            dense.append(_Dense(layer, seen, value))
    total = losses(value, labels).sum()
    errors = torch.autograd.grad(total, [use.output for use in dense])
    pairs = list(zip(dense, errors, strict=True))
    with torch.no_grad():
        factors = _factors(torch.stack([use.norms(error) for use, error in pairs]).sum(0), clip)
        parts = [part for use, error in pairs for part in use.sums(error, factors)]
    return torch.cat([part.double().flatten() for part in parts])


@dataclass(frozen=True)
class _Dense:
    """One dense layer, what it saw, and what it gave."""

    layer: nn.Linear
    seen: Tensor
    output: Tensor

    @property
    def _trains(self) -> tuple[bool, bool]:
        """Whether its weight and its bias are trained."""
        weight, bias = self.layer.weight, self.layer.bias
        return weight.requires_grad, bias is not None and bias.requires_grad

    def norms(self, error: Tensor) -> Tensor:
        """(B,): |e|_1 |x|_1 for the weight, |e|_1 for the bias."""
        weight, bias = self._trains
        reach = self.seen.abs().sum(1) if weight else torch.zeros_like(error[:, 0])
        return error.abs().sum(1) * (reach + 1 if bias else reach)

    def sums(self, error: Tensor, factors: Tensor) -> list[Tensor]:
        """The scaled sums over examples, of the weight and of the bias."""
        weight, bias = self._trains
        scaled = _kept(error, factors) * factors.to(error.dtype).unsqueeze(1)
        found = [scaled.mT @ _kept(self.seen, factors)] if weight else []
        return [*found, scaled.sum(0)] if bias else found
