"""Noise and an optimizer's update in one pass: the definition, and its twin in plain PyTorch.

With a clean sum s, z standard normal numbers and the expected lot size L, one pass computes

    g = (s + std z) / L

number by number, as :func:`~sfumato.learning.dp_sgd.kernels.chacha.fill` does from the same blocks,
and applies it to a parameter p at once. The sum is only read; g is never written to memory.

Guarantee: the update is a function of g and of what was there before, so it is post-processing of
the same release as a noisy mean that is written first and applied later. In float32 the results
are those of torch's own optimizers up to rounding.

:class:`Descent`, with momentum m, dampening d, weight decay w, learning rate r (I. Sutskever, J.
Martens, G. Dahl and G. Hinton, "On the importance of initialization and momentum in deep
learning", 2013, for the look ahead):

    g := g + w p;   b := m b + (1 - d) g, or g the first time;   p := p - r b
    without momentum p := p - r g, and with the look ahead p := p - r (g + m b)

:class:`Moments`, with betas a and b, at the t-th step (D. P. Kingma and J. Ba, "Adam", arXiv:
1412.6980; with decoupled decay I. Loshchilov and F. Hutter, arXiv:1711.05101):

    g := g + w p, unless decoupled;   u := a u + (1 - a) g;   v := b v + (1 - b) g^2
    p := p - r / (1 - a^t)  u / (sqrt(v / (1 - b^t)) + eps)  - r w p, if decoupled

    >>> from sfumato.core.randomness import SeededCoins
    >>> weights, total = torch.ones(3), torch.full((3,), 8.0)
    >>> blocks = chacha.KeyStream(SeededCoins(1)).take(3)
    >>> update(Descent(weights, None, lr=0.5), total, 0.0, 4.0, blocks)
    >>> weights.tolist()
    [0.0, 0.0, 0.0]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.kernels import chacha
from sfumato.learning.dp_sgd.neighbouring import fills_its_memory

__all__ = ["Descent", "Moments", "Update", "alike", "update"]


@dataclass(slots=True)
class Descent:
    """A step of gradient descent; see above.

    Attributes:
        parameter: float32, without gaps in memory.
        buffer: the momentum's, laid out like the parameter; none without momentum.
        lr: learning rate.
        weight_decay: of the first kind, added to the gradient.
        momentum: what the buffer counts for.
        dampening: what is taken off the gradient before it enters the buffer.
        nesterov: whether to look ahead.
        first: whether the buffer, which holds zeros, is to become the gradient.
    """

    parameter: Tensor
    buffer: Tensor | None
    lr: float
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    first: bool = False

    @property
    def written(self) -> tuple[Tensor, ...]:
        """What is changed."""
        return (self.parameter,) if self.buffer is None else (self.parameter, self.buffer)

    @property
    def shares(self) -> tuple[float, float]:
        """What the old buffer and the gradient count for in the new one."""
        return (0.0, 1.0) if self.first else (self.momentum, 1.0 - self.dampening)

    def apply(self, mean: Tensor) -> None:
        """The update by a noisy mean."""
        gradient = mean + self.weight_decay * self.parameter if self.weight_decay else mean
        if self.buffer is not None:
            keep, enter = self.shares
            self.buffer.mul_(keep).add_(gradient, alpha=enter)
            ahead = gradient + self.momentum * self.buffer if self.nesterov else self.buffer
            gradient = ahead
        self.parameter.sub_(gradient, alpha=self.lr)


@dataclass(slots=True)
class Moments:
    """A step by both moments of the gradient; see above.

    Attributes:
        parameter: float32, without gaps in memory.
        average: of gradients, u, laid out like the parameter.
        square: the average of their squares, v, likewise.
        step: t, with this step counted already; on the CPU, or where the parameter is.
        lr: learning rate.
        beta1: what the old average counts for.
        beta2: what the old average of squares counts for.
        eps: added to the root.
        weight_decay: of either kind.
        decoupled: of which.
    """

    parameter: Tensor
    average: Tensor
    square: Tensor
    step: Tensor
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    @property
    def written(self) -> tuple[Tensor, ...]:
        """What is changed."""
        return self.parameter, self.average, self.square

    def corrections(self) -> tuple[float, float]:
        """The factors r / (1 - a^t) and 1 / sqrt(1 - b^t); waits for a t on a device."""
        t = float(self.step)
        return self.lr / (1.0 - self.beta1**t), 1.0 / math.sqrt(1.0 - self.beta2**t)

    def apply(self, mean: Tensor) -> None:
        """The update by a noisy mean."""
        coupled = self.weight_decay and not self.decoupled
        gradient = mean + self.weight_decay * self.parameter if coupled else mean
        self.average.add_(gradient - self.average, alpha=1.0 - self.beta1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1.0 - self.beta2)
        rate, root = self.corrections()
        change = rate * self.average / (self.square.sqrt() * root + self.eps)
        if self.weight_decay and self.decoupled:
            change.add_(self.parameter, alpha=self.lr * self.weight_decay)
        self.parameter.sub_(change)


Update = Descent | Moments
"""What to do with a noisy mean."""


@torch.no_grad()
def update(by: Update, total: Tensor, std: float, size: float, segment: chacha.Segment) -> None:
    """Adds noise to a sum, divides, and updates a parameter; the sum stays as it is.

    Args:
        by: the update.
        total: the clean sum, float32, laid out like the parameter.
        std: standard deviation of the noise.
        size: what to divide by.
        segment: blocks for ``total.numel()`` numbers.
    """
    mean = torch.empty_like(total)
    chacha.fill(_in_memory(mean), std, segment, _in_memory(total), size)
    by.apply(mean)


def alike(first: Tensor, *others: Tensor) -> bool:
    """Whether one pass over memory does for all: float32, in one place and order, no gaps."""
    return (
        first.dtype == torch.float32
        and (first.is_contiguous() or fills_its_memory(first))
        and all(
            t.dtype == first.dtype
            and t.device == first.device
            and t.shape == first.shape
            and (t.stride() == first.stride() or _steps(t) == _steps(first))
            for t in others
        )
    )


def _steps(tensor: Tensor) -> list[int]:
    """Its strides, where they mean something."""
    return [s for s, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


def _in_memory(tensor: Tensor) -> Tensor:
    """Its numbers one after the other, as they lie."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
