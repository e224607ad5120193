"""Drawing correlated noise: C^-1 z for one parameter after the other, step by step.

A step's noise is made of fresh noise, which comes from the run's own source, and of a few vectors
that were kept from earlier steps. Those vectors *are* the noise that was added: whoever saw one
could take it off again. They live in this process's memory alone. They cannot be copied, pickled or
saved, and a run that is taken up again begins a new block with none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NoReturn, final

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.noise_source import NoiseSource

__all__ = ["Banded", "Buffered", "CorrelatedNoise", "Recursion", "Tree"]

Fresh = Callable[[], Tensor]
"""Independent noise of the strategy's scale, as a vector."""


class State(ABC):
    """What is kept for one parameter within one block."""

    @abstractmethod
    def next(self, fresh: Fresh) -> Tensor:
        """The next step's noise."""


class Recursion(ABC):
    """How a strategy draws noise."""

    def __init__(self, scale: float, restart: int | None = None) -> None:
        self.scale, self.restart = scale, restart

    @abstractmethod
    def state(self) -> State:
        """A new block's."""


@final
class CorrelatedNoise:
    """The noise of a run's steps, for every parameter by its name.

    Args:
        recursion: the strategy's, for the whole run.
        noise: where fresh noise comes from.
    """

    def __init__(self, recursion: Recursion, noise: NoiseSource) -> None:
        self._recursion, self._noise = recursion, noise
        self._states: dict[str, tuple[State, int]] = {}

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("noise that was added cannot be copied or saved: it could be taken off")

    def start(self) -> None:
        """Begins a new block: nothing of earlier steps is kept."""
        self._states.clear()

    @torch.no_grad()
    def noise_for(self, name: str, like: Tensor, std: float) -> Tensor:
        """The next step's noise on one parameter's sum: call it once a step.

        Args:
            name: the parameter's.
            like: its sum: the shape, type and place of the noise.
            std: standard deviation of independent noise, the same at every step.
        """
        state, taken = self._states.get(name) or (self._recursion.state(), 0)
        if taken == self._recursion.restart:
            state, taken = self._recursion.state(), 0
        with torch.autocast(like.device.type, enabled=False), full_precision():
            fresh = std * self._recursion.scale
            found = state.next(lambda: self._noise.normal(like, fresh).reshape(-1))
        self._states[name] = state, taken + 1
        return found.view(like.shape)


@final
class Banded(Recursion):
    """y_t = z_t - sum over i of c_i y_(t-i), c_0 = 1: forward substitution."""

    def __init__(self, coefficients: tuple[float, ...], scale: float) -> None:
        super().__init__(scale)
        self.coefficients = coefficients

    def state(self) -> State:
        """The last bands - 1 steps' noise."""
        return _Last(self.coefficients[1:])


class _Last(State):
    """Kept in a ring: place t mod (b - 1) holds step t's noise."""

    def __init__(self, coefficients: tuple[float, ...]) -> None:
        self._coefficients, self._step = coefficients, 0
        self._kept: Tensor | None = None
        self._twice: Tensor | None = None

    def next(self, fresh: Fresh) -> Tensor:
        noise, size = fresh(), len(self._coefficients)
        if not size:
            return noise
        if self._kept is None or self._twice is None:
            self._kept = noise.new_zeros((size, noise.numel()))
            self._twice = noise.new_tensor(self._coefficients[::-1] * 2)
        # Place j holds the noise of (step - 1 - j) mod size + 1 steps ago: its weight is c_that.
        start = -self._step % size
        noise = noise - self._twice[start : start + size] @ self._kept
        self._kept[self._step % size] = noise
        self._step += 1
        return noise


@final
class Buffered(Recursion):
    """y_t = z_t - sum_j omega_j S_j, then S_j <- theta_j S_j + y_t."""

    def __init__(self, theta: tuple[float, ...], omega: tuple[float, ...], scale: float) -> None:
        super().__init__(scale)
        self.theta, self.omega = theta, omega

    def state(self) -> State:
        """The buffers S_j."""
        return _Sums(self.theta, self.omega)


class _Sums(State):
    def __init__(self, theta: tuple[float, ...], omega: tuple[float, ...]) -> None:
        self._powers = theta, omega
        self._kept: Tensor | None = None
        self._there: Tensor | None = None

    def next(self, fresh: Fresh) -> Tensor:
        noise = fresh()
        if self._kept is None or self._there is None:
            self._there = noise.new_tensor(self._powers)
            self._kept = noise.new_zeros((self._there.shape[1], noise.numel()))
        theta, omega = self._there
        noise = noise - omega @ self._kept
        self._kept.mul_(theta[:, None]).add_(noise)
        return noise


@final
class Tree(Recursion):
    """Prefix sums' estimates from a tree's nodes; a step's noise is what the last one adds.

    Step t completes a leaf and as many nodes above it as t + 1 has factors of 2. The estimate of
    the largest of them takes the place of those of the left halves that it is made of.
    """

    def __init__(self, weights: tuple[float, ...], scale: float, restart: int | None) -> None:
        super().__init__(scale, restart)
        self.weights = weights

    def state(self) -> State:
        """The estimates of the nodes that the last prefix sum was made of."""
        return _Nodes(self.weights)


class _Nodes(State):
    def __init__(self, weights: tuple[float, ...]) -> None:
        self._weights, self._steps = weights, 0
        self._pending: list[Tensor] = []

    def next(self, fresh: Fresh) -> Tensor:
        self._steps += 1
        estimate, replaced = fresh(), None
        for level in range(1, (self._steps & -self._steps).bit_length()):
            left, weight = self._pending.pop(), self._weights[level]
            replaced = left if replaced is None else replaced + left
            estimate = weight * fresh() + (1 - weight) * (left + estimate)
        self._pending.append(estimate)
        return estimate if replaced is None else estimate - replaced
