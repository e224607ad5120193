"""Small fully connected networks: a public shape, public weights, and the module of them.

    >>> shape = Topology(16, (4,), 10)
    >>> shape.parameters, shape.widths
    (118, (4, 10))
    >>> [tuple(layer.shape) for layer in shape.initial(seed=0)]
    [(4, 17), (10, 5)]

Weights are one matrix a layer, in double precision, the bias in its last column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.models.parts import activation as activated

__all__ = ["ACTIVATIONS", "LOSSES", "Topology", "Weights", "as_module"]

ACTIVATIONS = ("sigmoid", "tanh", "relu")
LOSSES = ("cross-entropy", "squares")
"""Of softmax probabilities; or half of the squared errors of logistic outputs."""

MOST_UNITS = 2**13  # of all layers together: up to there the rounding of a norm is allowed for

Weights = list[Tensor]


@final
@dataclass(frozen=True)
class Topology:
    """What is public of a network before there is any weight.

    Attributes:
        inputs: how many numbers a record has.
        hidden: units of each hidden layer; none for a linear model.
        outputs: classes.
        activation: of hidden units, see :data:`ACTIVATIONS`.
        loss: see :data:`LOSSES`.
        bias: whether units have one.
        centred: whether inputs, between 0 and 1, are first stretched to -1 and 1.
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    activation: str = "tanh"
    loss: str = "cross-entropy"
    bias: bool = True
    centred: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        validation.count("inputs", self.inputs)
        validation.at_least("outputs", self.outputs, 2 if self.loss == "cross-entropy" else 1)
        for width in self.hidden:
            validation.count("hidden", width)
        if self.activation not in ACTIVATIONS:
            validation.fail("activation", f"one of {', '.join(ACTIVATIONS)}", self.activation)
        if self.loss not in LOSSES:
            validation.fail("loss", f"one of {', '.join(LOSSES)}", self.loss)
        if (units := self.inputs + sum(self.widths)) > MOST_UNITS:
            raise ValueError(
                f"inputs and units must be {MOST_UNITS} or fewer together, got {units}: noise "
                "would drown so large a network anyway; pool the inputs, or train with dp-sgd"
            )

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer, the outputs last."""
        return (*self.hidden, self.outputs)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of the layers' matrices."""
        sizes = (self.inputs, *self.widths)
        return [(after, before + self.bias) for before, after in itertools.pairwise(sizes)]

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return sum(math.prod(shape) for shape in self.shapes)

    def initial(self, seed: int) -> Weights:
        """Public first weights: uniform, of variance 1 over the units before; the last layer's 0.

        Zeros at the end make all classes equally likely at first, whatever the record.
        """
        generator = torch.Generator().manual_seed(seed)
        made = []
        for shape in self.shapes:
            bound = math.sqrt(3 / shape[1])
            draws = torch.rand(shape, generator=generator, dtype=torch.float64)
            made.append((2 * draws - 1) * bound)
        made[-1] = torch.zeros_like(made[-1])
        return made

    def split(self, flat: Tensor) -> Weights:
        """One number for each weight, layer by layer, as matrices."""
        sizes = [math.prod(shape) for shape in self.shapes]
        parts = flat.split(sizes)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def module(self) -> nn.Sequential:
        """The same network for torch, without its weights; from inputs to scores of classes."""
        layers: list[nn.Module] = [nn.Flatten(), *([_Centred()] if self.centred else [])]
        for place, (after, before) in enumerate(self.shapes):
            if place:
                layers.append(activated(self.activation))
            layers.append(nn.Linear(before - self.bias, after, bias=self.bias))
        return nn.Sequential(*layers)


class _Centred(nn.Module):
    """From [0, 1] to [-1, 1]."""

    def forward(self, inputs: Tensor) -> Tensor:
        """2 x - 1."""
        return 2 * inputs - 1


def as_module(topology: Topology, weights: Sequence[Tensor]) -> nn.Sequential:
    """The network with these weights, in single precision, in eval mode."""
    made = topology.module()
    linear = [layer for layer in made if isinstance(layer, nn.Linear)]
    for layer, matrix in zip(linear, weights, strict=True):
        layer.requires_grad_(False)
        layer.weight.copy_(matrix[:, : layer.in_features])
        if topology.bias:
            layer.bias.copy_(matrix[:, -1])
    return made.eval()
