"""The loop that every training with public inputs goes through: resumable, with a clock.

Before step t torch's generator is seeded from (seed, t), so what a step draws does not depend on
how the run came to it: cut off and gone on with, a network ends with the same weights on a CPU.
Nothing in the loop waits for a GPU but the checkpoints, of which there is one a minute.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sfumato.learning.clock import Clock, OutOfTime
from sfumato.learning.convolutions import convolutions_timed
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.pate.students.learners import Stateful
from sfumato.learning.pate.students.store import Store

__all__ = [
    "Clock", "Learner", "OutOfTime", "Told", "memory_layout", "optimizer_of", "rise_and_fall",
    "trained",
]  # fmt: skip

_FIRST, _STEP = 0, 1  # streams of coins
_SECONDS = 60.0  # between checkpoints

Told = Callable[[int, int], object]
"""Is told how many steps are done, of how many."""


class Learner(Protocol):
    """One network's training, while it lasts."""

    model: nn.Module
    steps: int

    @property
    def parts(self) -> Mapping[str, Stateful]:
        """All that changes from step to step, by name."""
        ...

    def step(self, number: int) -> None:
        """Step ``number``, from 0; its coins come from torch's generator."""
        ...


def trained(
    make: Callable[[], Learner], seed: int, folder: Path | None, told: Told, clock: Clock | None
) -> nn.Module:
    """The model after all steps, in eval mode; torch's own generator is put back afterwards.

    Args:
        make: the training before its first step; first weights come from torch's generator.
        seed: of first weights and of what steps draw.
        folder: for checkpoints and the finished model; None for none.
        told: how many steps are done, of how many.
        clock: says when to stop.

    Raises:
        OutOfTime: if the clock ran out; called again, it goes on.
    """
    store = Store(folder)
    with _coins_put_back(), convolutions_timed():
        torch.manual_seed(derived_seed(seed, _FIRST))
        learner = make()
        finished = store.finished()
        if finished is not None:
            learner.model.load_state_dict(finished)
            return learner.model.eval()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        _go_on(learner, seed, store, told, clock or Clock())
    store.finish(learner.model)
    return learner.model.eval()


def _go_on(learner: Learner, seed: int, store: Store, told: Told, clock: Clock) -> None:
    """All steps that are not done yet."""
    begun, state = store.begun()
    if state is not None:
        for name, part in learner.parts.items():
            part.load_state_dict(state[name])
    kept = time.monotonic()
    for number in range(begun, learner.steps):
        torch.manual_seed(derived_seed(seed, _STEP, number))
        learner.step(number)
        done, over = number + 1, clock.over
        if done < learner.steps and (over or time.monotonic() - kept > _SECONDS):
            store.keep(done, {name: part.state_dict() for name, part in learner.parts.items()})
            kept = time.monotonic()
        told(done, learner.steps)
        if over and done < learner.steps:
            raise OutOfTime(f"stopped after {done} of {learner.steps} steps of a network")


@contextlib.contextmanager
def _coins_put_back() -> Iterator[None]:
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        yield


def memory_layout(inputs: Tensor) -> torch.memory_format:
    """Channels last for images on a GPU, whose convolutions are faster so."""
    images = inputs.ndim >= 4 and inputs.is_cuda
    return torch.channels_last if images else torch.contiguous_format


def optimizer_of(
    model: nn.Module, name: str, rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """By name; weight decay on matrices and filters only."""
    large = [p for p in model.parameters() if p.ndim > 1]
    small = [p for p in model.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": large}, {"params": small, "weight_decay": 0.0}]
    if name == "sgd":
        return torch.optim.SGD(groups, rate, momentum=0.9, nesterov=True, weight_decay=weight_decay)
    return torch.optim.AdamW(groups, rate, weight_decay=weight_decay)


def rise_and_fall(step: int, steps: int) -> float:
    """Of the highest rate: rises in a twentieth of the steps, then falls along half a cosine."""
    rise = max(1, steps // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))
