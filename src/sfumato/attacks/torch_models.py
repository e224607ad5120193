"""Torch modules as targets: answers and derivatives, in NumPy, in batches.

Modules are used in evaluation mode and left in the mode they were in.
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

__all__ = ["evaluating", "input_gradients", "probabilities", "weight_gradients"]

_BATCH = 1024


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[torch.device]:
    """The module in evaluation mode; its device."""
    was = module.training
    module.eval()
    try:
        first = next(module.parameters(), None)
        yield torch.device("cpu") if first is None else first.device
    finally:
        module.train(was)


def probabilities(module: nn.Module, inputs: NDArray[Any]) -> NDArray[np.float64]:
    """Softmax of the logits, computed in float64 so that small ones survive."""
    with evaluating(module) as device, torch.no_grad():
        parts = [
            module(batch).double().softmax(dim=1).cpu().numpy()
            for batch in _batches(inputs, device)
        ]
    return np.concatenate(parts) if parts else np.zeros((0, 1))


def input_gradients(
    module: nn.Module, inputs: NDArray[Any], classes: NDArray[Any]
) -> NDArray[np.float64]:
    """Derivatives of the log-probability of ``classes`` by the inputs."""
    found: list[NDArray[np.float64]] = []
    with evaluating(module) as device:
        wanted = torch.as_tensor(classes, dtype=torch.int64, device=device).split(_BATCH)
        for batch, labels in zip(_batches(inputs, device), wanted, strict=True):
            batch.requires_grad_(True)
            total = -F.cross_entropy(module(batch), labels, reduction="sum")
            (slope,) = torch.autograd.grad(total, batch)
            found.append(slope.double().cpu().numpy())
    return np.concatenate(found) if found else np.zeros(np.shape(inputs))


def weight_gradients(
    module: nn.Module, inputs: NDArray[Any], labels: NDArray[Any]
) -> NDArray[np.float32]:
    """The gradient of each example's loss by all weights, flat, one row an example."""

    def loss(weights: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, weights, (one.unsqueeze(0),))
        return F.cross_entropy(logits, label.unsqueeze(0))

    found: list[NDArray[np.float32]] = []
    with evaluating(module) as device:
        weights = {name: weight.detach() for name, weight in module.named_parameters()}
        each = vmap(grad(loss), in_dims=(None, 0, 0))
        wanted = torch.as_tensor(labels, dtype=torch.int64, device=device).split(_BATCH // 4)
        for batch, answers in zip(_batches(inputs, device, _BATCH // 4), wanted, strict=True):
            slopes = each(weights, batch, answers)
            flat = torch.cat([slope.flatten(1) for slope in slopes.values()], dim=1)
            found.append(flat.float().cpu().numpy())
    return np.concatenate(found)


def _batches(inputs: NDArray[Any], device: torch.device, size: int = _BATCH) -> Iterator[Tensor]:
    for start in range(0, len(inputs), size):
        part = np.ascontiguousarray(inputs[start : start + size], dtype=np.float32)
        yield torch.from_numpy(part).to(device)
