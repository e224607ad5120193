"""Torch modules as targets: answers and derivatives, in NumPy, in batches.

Modules are used in evaluation mode and every part is left in the mode it was in. Inputs are copied:
a module that works in place does not change what it was asked about.

    >>> model = nn.Linear(3, 2)
    >>> found = weight_gradients(model, np.ones((4, 3)), np.array([0, 1, 0, 1]))
    >>> found.shape, probabilities(model, np.ones((4, 3))).sum(axis=1).round(9).tolist()
    ((4, 8), [1.0, 1.0, 1.0, 1.0])
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from sfumato.core import validation

__all__ = ["evaluating", "input_gradients", "probabilities", "weight_gradients"]

_BATCH = 1024
_GRADIENTS = 256  # examples whose gradients by all weights are held at once


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[torch.device]:
    """The module in evaluation mode; its device."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        first = next(module.parameters(), None)
        yield torch.device("cpu") if first is None else first.device
    finally:
        for part, training in modes:
            part.training = training


def probabilities(module: nn.Module, inputs: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax of the logits, computed in float64 so that small ones survive."""
    with evaluating(module), torch.no_grad():
        parts = [
            _logits(module, batch).double().softmax(dim=1).cpu().numpy()
            for batch in _batches(module, inputs, _BATCH)
        ]
        if not parts:  # one example of zeros tells how many classes there are
            parts = [np.zeros((0, _logits(module, _zeros(module, inputs)).shape[1]))]
    return np.concatenate(parts)


def input_gradients(
    module: nn.Module, inputs: NDArray[Any], labels: NDArray[Any]
) -> NDArray[np.float64]:
    """Derivatives of the log-probability of ``labels`` by the inputs."""
    found = [np.zeros((0, *np.shape(inputs)[1:]))]
    with evaluating(module), torch.enable_grad():
        for batch, wanted in _labelled(module, inputs, labels, _BATCH):
            batch.requires_grad_(True)
            logits = _logits(module, batch.clone(), wanted)  # a leaf may not be changed in place
            (slope,) = torch.autograd.grad(-F.cross_entropy(logits, wanted, reduction="sum"), batch)
            found.append(slope.double().cpu().numpy())
    return np.concatenate(found)


def weight_gradients(
    module: nn.Module, inputs: NDArray[Any], labels: NDArray[Any]
) -> NDArray[np.float32]:
    """The gradient of each example's loss by all weights, flat, one row an example."""

    def loss(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, weights, (one.unsqueeze(0),))
        return F.cross_entropy(logits, label.unsqueeze(0))

    weights = {name: weight.detach() for name, weight in module.named_parameters()}
    total = sum(weight.numel() for weight in weights.values())
    found = [np.zeros((0, total), dtype=np.float32)]
    each = vmap(grad(loss), in_dims=(None, 0, 0))
    with evaluating(module):
        if len(labels):
            with torch.no_grad():  # what is wrong with labels is told before work begins
                _logits(module, _zeros(module, inputs), torch.as_tensor(np.array(labels)))
        for batch, wanted in _labelled(module, inputs, labels, _GRADIENTS):
            slopes = each(weights, batch, wanted)
            flat = torch.cat([slope.flatten(1) for slope in slopes.values()], dim=1)
            found.append(flat.float().cpu().numpy())
    return np.concatenate(found)


def _logits(module: nn.Module, batch: Tensor, labels: Tensor | None = None) -> Tensor:
    """The module's answer, if it is a row of logits an example, and the labels are among them."""
    logits = module(batch)
    if logits.ndim != 2 or logits.shape[1] < 2:
        wanted = "a row of logits an input, one for each of two classes or more"
        validation.fail("a module's output", wanted, tuple(logits.shape))
    if labels is not None and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        found = int(labels.min()), int(labels.max())
        validation.fail("labels", f"classes from 0 to {logits.shape[1] - 1}", found)
    return logits


def _labelled(
    module: nn.Module, inputs: NDArray[Any], labels: NDArray[Any], size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    if len(inputs) != len(labels):
        validation.fail("labels", f"one for each of {len(inputs)} inputs", len(labels))
    wanted = np.array(labels, dtype=np.int64)
    for place, batch in enumerate(_batches(module, inputs, size)):
        own = wanted[place * size : (place + 1) * size]
        yield batch, torch.from_numpy(own).to(batch.device)


def _batches(module: nn.Module, inputs: NDArray[Any], size: int) -> Iterator[Tensor]:
    """Copies of the inputs as the module takes them, so many at a time."""
    place = _zeros(module, inputs)
    dtype = np.float64 if place.dtype == torch.float64 else np.float32
    for start in range(0, len(inputs), size):
        part = np.array(inputs[start : start + size], dtype=dtype, order="C")
        yield torch.from_numpy(part).to(place)


def _zeros(module: nn.Module, inputs: NDArray[Any]) -> Tensor:
    """One example of zeros, where the module is and of its type."""
    first = next((weight for weight in module.parameters() if weight.is_floating_point()), None)
    zeros = torch.zeros((1, *np.shape(inputs)[1:]))
    return zeros if first is None else zeros.to(first)
