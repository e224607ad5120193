"""Models side by side: one tensor for each weight, with a first axis for the models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sfumato.core import validation

__all__ = ["Weights", "fresh_weights", "logits_of", "untrained", "weighted_loss"]

Weights = dict[str, Tensor]


def fresh_weights(make: Callable[[], nn.Module], models: int, seed: int) -> Weights:
    """Weights of so many new models; torch's own generator is put back as it was.

    Raises:
        ValueError: if models have buffers, as batch normalisation does: what is learnt from a
            batch besides gradients would be mixed up between models.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = [make() for _ in range(validation.count("models", models))]
    buffers = [name for name, _ in made[0].named_buffers()]
    if buffers:
        raise ValueError(
            f"a model must not have buffers, but has {buffers[0]!r}: use group or layer "
            "normalisation instead of batch normalisation"
        )
    names = [name for name, _ in made[0].named_parameters()]
    parts = [dict(model.named_parameters()) for model in made]
    return {name: torch.stack([part[name].detach() for part in parts]) for name in names}


def untrained(make: Callable[[], nn.Module]) -> nn.Module:
    """A new model; torch's own generator is put back as it was."""
    with torch.random.fork_rng(devices=[]):
        return make()


def logits_of(skeleton: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """One model's answers."""
    return functional_call(skeleton, dict(weights), (inputs,))


def weighted_loss(logits: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
    """Mean cross entropy over the rows that count (``counted`` is 1, else 0)."""
    losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    return (losses * counted).sum() / counted.sum().clamp(min=1)
