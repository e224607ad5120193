"""Layer-wise relevance propagation: how much each input spoke for what a network said of it.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[2.0, -1.0]]))
    >>> explain(model, torch.tensor([[1.0, 0.5]]), rule="z").values.tolist()
    [[2.0, -0.5]]

A network's score is handed down layer by layer until it is the inputs'. Linear layers,
convolutions and average pooling share it by a :class:`~sfumato.learning.relevance.RelevanceRule`;
of a maximum, the winner takes all; rectifiers and changes of shape hand on what arrives.

Every record is treated by itself, and computed in double precision, in batches of one size (the
last is filled up with zeros): which others there are does not matter, but for the last bits of
products that may be rounded by a record's place in its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.relevance.rules import Affine, EpsilonRule, RelevanceRule

__all__ = ["LAYERS", "Explained", "check_layers", "explain", "input_relevance"]

LAYERS = (nn.Linear, nn.Conv2d, nn.AvgPool2d, nn.MaxPool2d, nn.Flatten, nn.ReLU, nn.Identity)
"""What relevance can pass through; nn.Sequential may hold it, nested or not."""

_BATCH = 256
_DEFAULT = EpsilonRule()


@final
@dataclass(frozen=True, eq=False)
class Explained:
    """Where a network's scores come from.

    Conservation: ``scores`` is ``values`` summed over a record's inputs, plus ``absorbed``.

    Attributes:
        values: (n, *shape) relevance of each input.
        scores: (n,) the score of each record that was explained.
        absorbed: (n,) what biases and stabilisers took of it.
    """

    values: Tensor
    scores: Tensor
    absorbed: Tensor


def check_layers(model: nn.Module) -> None:
    """Raises unless relevance can pass through all of a network.

    Raises:
        ValueError: naming the layer that it cannot pass.
    """
    for _ in _layers(model):
        pass


def explain(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    rule: RelevanceRule | str = _DEFAULT,
) -> Explained:
    """Relevance of every input of every record.

    Args:
        model: an nn.Sequential of :data:`LAYERS`, from inputs to (n, classes) scores. It is not
            changed, and taken as in eval mode.
        inputs: (n, *shape).
        targets: (n,) the class whose score is explained; None for the one with the greatest.
        rule: or its name, see :func:`~sfumato.learning.relevance.rule_names`.

    Raises:
        ValueError: for another layer, or targets that are not one for each record.
    """
    chosen = RelevanceRule.named(rule) if isinstance(rule, str) else rule
    layers = list(_layers(model))
    if targets is not None and targets.shape != inputs.shape[:1]:
        validation.fail("targets", "one class for each record", tuple(targets.shape))
    parts = [
        _explained(layers, inputs[at : at + _BATCH], _part(targets, at), chosen)
        for at in range(0, len(inputs), _BATCH)
    ]
    if not parts:
        nothing = torch.zeros(0, dtype=torch.float64)
        return Explained(inputs.to(torch.float64), nothing, nothing)
    joined = (torch.cat([getattr(p, name) for p in parts]) for name in _FIELDS)
    return Explained(*joined)


def input_relevance(
    model: nn.Module, inputs: Tensor, rule: RelevanceRule | str = _DEFAULT
) -> Iterator[Tensor]:
    """(at most 256, *shape) relevance at a time, of the greatest scores: for sums over records."""
    for at in range(0, len(inputs), _BATCH):
        yield explain(model, inputs[at : at + _BATCH], None, rule).values


_FIELDS = ("values", "scores", "absorbed")


def _part(targets: Tensor | None, at: int) -> Tensor | None:
    return None if targets is None else targets[at : at + _BATCH]


def _layers(model: nn.Module) -> Iterator[nn.Module]:
    """The layers in order, those of nested sequences among them."""
    if isinstance(model, nn.Sequential):
        for part in model:
            yield from _layers(part)
        return
    if type(model) not in LAYERS:
        known = ", ".join(kind.__name__ for kind in LAYERS)
        validation.fail("model", f"an nn.Sequential of {known}", type(model).__name__)
    if isinstance(model, nn.Conv2d) and model.padding_mode != "zeros":
        validation.fail("padding_mode", "'zeros'", model.padding_mode)
    if isinstance(model, nn.MaxPool2d) and model.return_indices:
        validation.fail("return_indices", "False", model.return_indices)
    yield model


@torch.no_grad()
def _explained(
    layers: list[nn.Module], inputs: Tensor, targets: Tensor | None, rule: RelevanceRule
) -> Explained:
    count = len(inputs)
    filled = inputs.new_zeros((_BATCH, *inputs.shape[1:]), dtype=torch.float64)
    filled[:count] = inputs
    entering = [filled]
    for layer in layers:
        entering.append(_passed(layer, entering[-1]))
    outputs = entering.pop()
    if outputs.ndim != 2:
        validation.fail("model", "one with (n, classes) scores", tuple(outputs.shape))
    arriving, scores = _started(outputs, targets, count)
    absorbed = torch.zeros_like(scores)
    for layer, given in zip(reversed(layers), reversed(entering), strict=True):
        arriving, taken = _handed_down(layer, given, arriving, rule)
        absorbed += taken
    return Explained(arriving[:count], scores[:count], absorbed[:count])


def _started(outputs: Tensor, targets: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """Relevance of the outputs: the score that is explained, and 0 for all others."""
    chosen = outputs.argmax(1)
    if targets is not None:
        known = targets.to(torch.int64).clamp(0, outputs.shape[1] - 1)
        chosen[:count] = known
    scores = outputs.gather(1, chosen[:, None])
    return torch.zeros_like(outputs).scatter(1, chosen[:, None], scores), scores[:, 0]


def _passed(layer: nn.Module, inputs: Tensor) -> Tensor:
    affine = _affine(layer, inputs)
    if affine is None:
        return layer(inputs)
    outputs = affine.apply(inputs, affine.weight)
    return outputs if affine.bias is None else outputs + affine.bias


def _handed_down(
    layer: nn.Module, inputs: Tensor, arriving: Tensor, rule: RelevanceRule
) -> tuple[Tensor, Tensor]:
    """Relevance of a layer's inputs, and what was taken on the way."""
    affine = _affine(layer, inputs)
    if affine is not None:
        return rule.share(affine, inputs, arriving)
    nothing = torch.zeros(len(inputs), dtype=torch.float64, device=inputs.device)
    if isinstance(layer, nn.MaxPool2d):
        return _to_winners(layer, inputs, arriving), nothing
    return arriving.reshape(inputs.shape), nothing


def _to_winners(layer: nn.MaxPool2d, inputs: Tensor, arriving: Tensor) -> Tensor:
    with torch.enable_grad():
        free = inputs.detach().requires_grad_(True)
        return torch.autograd.grad(layer(free), free, arriving)[0]


def _affine(layer: nn.Module, inputs: Tensor) -> Affine | None:
    """The layer taken apart; None if it is not affine."""
    if isinstance(layer, nn.Linear):
        bias = None if layer.bias is None else layer.bias.double()
        return Affine(F.linear, layer.weight.double(), bias)
    if isinstance(layer, nn.Conv2d):
        bias = None if layer.bias is None else layer.bias.double()[:, None, None]
        return Affine(_convolution(layer), layer.weight.double(), bias)
    if isinstance(layer, nn.AvgPool2d):
        one = torch.ones((), dtype=torch.float64, device=inputs.device)
        return Affine(lambda x, w: layer(x) * w, one, None)
    return None


def _convolution(layer: nn.Conv2d) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, w: F.conv2d(
        x, w, None, layer.stride, layer.padding, layer.dilation, layer.groups
    )
