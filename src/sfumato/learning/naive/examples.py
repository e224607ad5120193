"""What the naive ways share: rows with labels, a loss that is total, weights as one vector."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from sfumato.core import validation

__all__ = ["check_model", "check_rows", "losses", "released", "trainable", "vector_of"]

_TYPES = (torch.float32, torch.float64)


def check_rows(inputs: object, labels: object) -> tuple[Tensor, Tensor]:
    """Inputs and labels as tensors of public types; their values are not looked at.

    Raises:
        ValueError: unless inputs are floating point and labels one whole number a row. Types and
            shapes are public; how many rows there are is not part of any other error.
    """
    if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.ndim < 2:
        validation.fail("inputs", "a floating-point tensor, one example a row", _kind(inputs))
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.ndim != 1:
        validation.fail("labels", "a tensor of whole numbers, one a row", _kind(labels))
    if len(inputs) != len(labels):
        raise ValueError("inputs and labels must have as many rows, got different numbers of them")
    return inputs, labels


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} in {value.ndim} dimensions"
    return type(value).__name__


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that are trained, each once, in the order of their vector."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_model(model: nn.Module, inputs: Tensor) -> None:
    """A try on made-up rows, so that a model that does not fit is an error before data is read.

    Raises:
        ValueError: unless the model has trainable weights in float32 or float64 and gives one row
            of scores for each row of inputs.
    """
    weights = trainable(model)
    if not weights or any(p.dtype not in _TYPES for p in weights.values()):
        found = sorted({str(p.dtype) for p in weights.values()})
        validation.fail("model", "one with trainable float32 or float64 weights", found)
    made_up = inputs.new_zeros((3, *inputs.shape[1:]))
    with torch.no_grad():
        scores = copy.deepcopy(model)(made_up)
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != 3:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        validation.fail("model", "one that gives a row of scores for each input", got)


def losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each row; 0, with gradient 0, for a label that names no class.

    Args:
        scores: (..., classes).
        labels: (...) whole numbers; private, so that none of them may raise an error.
    """
    classes = torch.arange(scores.shape[-1], device=scores.device)
    chosen = classes == labels.unsqueeze(-1)
    logs = torch.log_softmax(scores, -1)
    return -torch.where(chosen, logs, torch.zeros((), dtype=logs.dtype)).sum(-1)


def vector_of(model: nn.Module) -> Tensor:
    """The trainable weights as one vector in float64, a copy."""
    return torch.cat([p.detach().double().flatten() for p in trainable(model).values()])


def released(model: nn.Module, vector: Tensor) -> nn.Module:
    """A copy of the *initial* model with ``vector`` for its trainable weights.

    Nothing else of a training run gets out: buffers and frozen weights are the initial ones.
    """
    out = copy.deepcopy(model)
    weights = trainable(out).values()
    with torch.no_grad():
        for p, part in zip(weights, vector.split([p.numel() for p in weights]), strict=True):
            p.copy_(part.view_as(p))
    return out
