"""The loop that every student's training goes through: resumable, the same coins for each step.

Before step t torch's generator is seeded from (seed, t), so what a step draws does not depend on
how the run came to it. The state after t steps is all that the rest of the run needs.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, final

import torch
from torch import Tensor, nn

from sfumato.learning.convolutions import convolutions_timed
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.pate.students.store import Store

__all__ = ["Average", "Learner", "Shuffled", "cosine", "run", "set_rate"]

_FIRST, _STEP, _ORDER = 0, 1, 2  # streams of coins


class Stateful(Protocol):
    """A module or an optimizer."""

    def state_dict(self) -> Any:
        """Everything that changes."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """The inverse."""
        ...


class Learner(ABC):
    """What one student trains."""

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, Stateful]:
        """All that changes from step to step, by name."""

    @abstractmethod
    def step(self, number: int) -> None:
        """Step ``number`` of the run, from 0; its coins come from torch's generator."""

    @abstractmethod
    def result(self) -> nn.Module:
        """The network as it is now, from inputs to logits."""


def run(
    make: Callable[[], Learner],
    steps: int,
    seed: int,
    store: Store,
    keep_every: int,
    told: Callable[[int, int], object],
) -> nn.Module:
    """All steps that are not done yet; torch's own generator is put back afterwards."""
    with _coins_put_back(), convolutions_timed():
        first_coins(seed)
        learner = make()
        begun, state = store.begun()
        if state is not None:
            for name, part in learner.parts.items():
                part.load_state_dict(state[name])
        for number in range(begun, steps):
            torch.manual_seed(derived_seed(seed, _STEP, number))
            learner.step(number)
            done = number + 1
            if done % keep_every == 0 and done < steps:
                store.keep(done, {n: part.state_dict() for n, part in learner.parts.items()})
            told(done, steps)
        return learner.result()


def first_coins(seed: int) -> None:
    """Seeds torch's generator for a student's first weights."""
    torch.manual_seed(derived_seed(seed, _FIRST))


@contextlib.contextmanager
def _coins_put_back() -> Iterator[None]:
    devices = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=devices):
        yield


@final
class Shuffled:
    """Batches of rows, every row once before any comes again, as a function of the step.

    >>> batches = Shuffled(5, 3, seed=0)
    >>> seen = torch.cat([batches(step) for step in range(5)])
    >>> seen.bincount().tolist()
    [3, 3, 3, 3, 3]
    """

    def __init__(self, total: int, size: int, seed: int, stream: int = 0) -> None:
        self.total, self.size, self.seed = total, size, derived_seed(seed, _ORDER, stream)
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Tensor:
        """The rows of one step."""
        found, start, end = list[Tensor](), step * self.size, (step + 1) * self.size
        while start < end:
            epoch, first = divmod(start, self.total)
            taken = self._permutation(epoch)[first : first + end - start]
            found.append(taken)
            start += len(taken)
        return torch.cat(found)

    def _permutation(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            coins = torch.Generator().manual_seed(derived_seed(self.seed, epoch))
            self._epoch, self._order = epoch, torch.randperm(self.total, generator=coins)
        return self._order


def cosine(rate: float, step: int, steps: int, share: float = 7 / 8) -> float:
    """A rate that falls from ``rate`` along a part of a quarter of a cosine, as FixMatch's does."""
    return rate * math.cos(share * math.pi / 2 * step / max(1, steps))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """For the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


@final
class Average:
    """The weights' moving average, w <- d w + (1 - d) w', with a shorter memory at first.

    After t steps d is at most (1 + t) / (10 + t). Whole-number buffers are copied.
    """

    def __init__(self, model: nn.Module, copy: nn.Module, decay: float) -> None:
        copy.load_state_dict(model.state_dict())
        self.model, self.copy, self.decay = model, copy.requires_grad_(False).eval(), decay

    @torch.no_grad()
    def update(self, step: int) -> None:
        """After step ``step``, from 0."""
        kept = min(self.decay, (1 + step) / (10 + step))
        now = self.model.state_dict()
        for name, value in self.copy.state_dict().items():
            if value.is_floating_point():
                value.lerp_(now[name], 1 - kept)
            else:
                value.copy_(now[name])
