"""One network on released targets: mixing, random crops, half precision, resumable.

Before step t torch's generator is seeded from (seed, t), so what a step draws does not depend on
how the run came to it: cut off and gone on with, a network ends with the same weights on a CPU.

Guarantee: inputs are public and targets are made of reports, so this is post-processing.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.learning.convolutions import convolutions_timed
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.targets import cross_entropy
from sfumato.learning.pate.students.learners import Shuffled, set_rate
from sfumato.learning.pate.students.store import Store

__all__ = ["Clock", "OutOfTime", "fit_network", "logits_of"]

_FIRST, _STEP = 0, 1  # streams of coins
_SECONDS = 60.0  # between checkpoints

_Told = Callable[[int, int], object]


class OutOfTime(RuntimeError):  # noqa: N818  # as StopIteration: nothing is wrong
    """The time that was given is over; what is done is on disk."""


@final
class Clock:
    """Says when a run should stop.

    Args:
        minutes: from now on; None for never.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self._ends = math.inf if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._ends

    @property
    def minutes_left(self) -> float | None:
        """How many there are, 0 or above; None where it never ends."""
        return None if self._ends == math.inf else max(0.0, self._ends - time.monotonic()) / 60


def fit_network(
    make: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    recipe: LabelRecipe,
    *,
    mixup: float,
    seed: int,
    folder: Path | None = None,
    half: bool = False,
    compile: bool = False,
    told: _Told = lambda done, total: None,
    clock: Clock | None = None,
) -> nn.Module:
    """Trains a network from its beginning, or from where it was cut off.

    Args:
        make: the untrained network; its first weights come from torch's generator.
        inputs: (n, *shape), on the device to train on.
        targets: (n, classes), on the same device.
        recipe: epochs, batch, optimizer, rates, augmentation.
        mixup: alpha; 0 for no mixing.
        seed: of first weights, orders and mixing.
        folder: for checkpoints and the finished network; None for none.
        half: compute in bfloat16.
        compile: join operations by ``torch.compile``; a minute at first, for long runs on a GPU.
        told: how many steps are done, of how many.
        clock: says when to stop.

    Raises:
        OutOfTime: if the clock ran out; called again, it goes on.
    """
    store = Store(folder)
    with _coins_put_back(), convolutions_timed():
        torch.manual_seed(derived_seed(seed, _FIRST))
        fitting = _Fitting(make(), inputs, targets, recipe, mixup, seed, half, compile)
        finished = store.finished()
        if finished is not None:
            fitting.model.load_state_dict(finished)
            return fitting.model.eval()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        fitting.go_on(store, told, clock or Clock())
    store.finish(fitting.model)
    return fitting.model.eval()


@contextlib.contextmanager
def _coins_put_back() -> Iterator[None]:
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        yield


@final
class _Fitting:
    """One network's training, while it lasts."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        recipe: LabelRecipe,
        mixup: float,
        seed: int,
        half: bool,
        compile: bool,
    ) -> None:
        self.inputs, self.targets, self.recipe = inputs, targets.float(), recipe
        self.mixup, self.seed, self.half = mixup, seed, half
        images = inputs.ndim == 4 and inputs.is_cuda
        self.layout = torch.channels_last if images else torch.contiguous_format
        self.model = model.to(inputs.device, memory_format=self.layout)  # pyright: ignore
        # The compiled one has the same weights; what is kept and returned is the model itself.
        self.answers = torch.compile(self.model, dynamic=False) if compile else self.model
        self.batch = min(recipe.batch, len(inputs))
        self.steps = max(1, round(recipe.epochs * len(inputs) / self.batch))
        self.batches = Shuffled(len(inputs), self.batch, seed)
        self.optimizer = _optimizer(self.model, recipe)

    @property
    def _parts(self) -> Mapping[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer}

    def go_on(self, store: Store, told: _Told, clock: Clock) -> None:
        """All steps that are not done yet."""
        begun, state = store.begun()
        if state is not None:
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
        kept = time.monotonic()
        for number in range(begun, self.steps):
            torch.manual_seed(derived_seed(self.seed, _STEP, number))
            self._step(number)
            done, over = number + 1, clock.over
            if done < self.steps and (over or time.monotonic() - kept > _SECONDS):
                store.keep(done, {name: part.state_dict() for name, part in self._parts.items()})
                kept = time.monotonic()
            told(done, self.steps)
            if over and done < self.steps:
                raise OutOfTime(f"stopped after {done} of {self.steps} steps of a network")

    def _step(self, number: int) -> None:
        rows = self.batches(number).to(self.inputs.device)
        x, t = augmented(self.inputs[rows], self.recipe.augment), self.targets[rows]
        if self.mixup > 0:
            x, t = mixed(x, t, self.mixup)
        set_rate(self.optimizer, self.recipe.rate * _shape(number, self.steps))
        self.model.train()
        x = x.contiguous(memory_format=self.layout)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            logits = self.answers(x)
        loss = cross_entropy(logits, t)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def _optimizer(model: nn.Module, recipe: LabelRecipe) -> torch.optim.Optimizer:
    """Weight decay on matrices and filters only."""
    large = [p for p in model.parameters() if p.ndim > 1]
    small = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": large}, {"params": small, "weight_decay": 0.0}]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            groups, recipe.rate, momentum=0.9, nesterov=True, weight_decay=recipe.weight_decay
        )
    return torch.optim.AdamW(groups, recipe.rate, weight_decay=recipe.weight_decay)


def _shape(step: int, steps: int) -> float:
    """Of the highest rate: rises in a twentieth of the steps, then falls along half a cosine."""
    rise = max(1, steps // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


def mixed(x: Tensor, t: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Each example with another one of the batch: l x + (1 - l) x', and so their targets.

    Zhang, Cisse, Dauphin and Lopez-Paz, "mixup: beyond empirical risk minimization",
    arXiv:1710.09412; l from Beta(alpha, alpha), one for the batch.
    """
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    other = torch.randperm(len(x), device=x.device)
    return share * x + (1 - share) * x[other], share * t + (1 - share) * t[other]


def augmented(images: Tensor, kind: str) -> Tensor:
    """Shifted over a black border, by a fourteenth of the height at most, or an eighth and flipped.

    "crop-flip" is the usual change of CIFAR-10: 4 pixels of 32 either way, mirrored by a coin.
    """
    if kind == "none":
        return images
    n, _, height, width = images.shape
    edge = height // 8 if kind == "crop-flip" else height // 14
    padded = F.pad(images, (edge,) * 4)
    down, right = torch.randint(0, 2 * edge + 1, (2, n, 1), device=images.device)
    rows = down + torch.arange(height, device=images.device)
    columns = right + torch.arange(width, device=images.device)
    if kind == "crop-flip":
        mirrored = torch.rand(n, 1, device=images.device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    each = torch.arange(n, device=images.device)[:, None, None]
    # An index on both sides of a slice puts the indexed dimensions first: (n, height, width, C).
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


@torch.no_grad()
def logits_of(model: nn.Module, inputs: Tensor, half: bool = False, batch: int = 2000) -> Tensor:
    """(n, classes), where the inputs are, in eval mode, single precision."""
    model.eval()
    found: list[Tensor] = []
    for part in inputs.split(batch):
        with torch.autocast(part.device.type, torch.bfloat16, enabled=half):
            found.append(model(part).float())
    return torch.cat(found)
