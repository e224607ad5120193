"""One network on released targets: mixing, random crops, half precision, resumable.

Before step t torch's generator is seeded from (seed, t), so what a step draws does not depend on
how the run came to it: cut off and gone on with, a network ends with the same weights on a CPU.

Guarantee: inputs are public and targets are made of reports, so this is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.learning.label_dp.stepping import (
    Clock,
    OutOfTime,
    Told,
    memory_layout,
    optimizer_of,
    rise_and_fall,
    trained,
)
from sfumato.learning.label_dp.targets import cross_entropy
from sfumato.learning.pate.students.learners import Shuffled, Stateful, set_rate

__all__ = [
    "Clock", "Fitted", "Loss", "OutOfTime", "augmented", "fit_network", "logits_of", "mixed",
    "squared_error",
]  # fmt: skip

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of (n, outputs) that a network says, and their targets: one number."""


class Fitted(Protocol):
    """What a recipe says of a network's training."""

    @property
    def epochs(self) -> float:
        """Over all rows."""
        ...

    @property
    def batch(self) -> int:
        """Rows of a step."""
        ...

    @property
    def optimizer(self) -> str:
        """Its name."""
        ...

    @property
    def rate(self) -> float:
        """The highest one."""
        ...

    @property
    def weight_decay(self) -> float:
        """Of the optimizer."""
        ...

    @property
    def augment(self) -> str:
        """Random changes of images."""
        ...


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean of (outputs - targets)^2, in single precision."""
    return F.mse_loss(outputs.float(), targets)


def fit_network(
    make: Callable[[], nn.Module],
    inputs: Tensor,
    targets: Tensor,
    recipe: Fitted,
    *,
    mixup: float,
    seed: int,
    folder: Path | None = None,
    half: bool = False,
    compile: bool = False,
    told: Told = lambda done, total: None,
    clock: Clock | None = None,
    loss: Loss = cross_entropy,
) -> nn.Module:
    """Trains a network from its beginning, or from where it was cut off.

    Args:
        make: the untrained network; its first weights come from torch's generator.
        inputs: (n, *shape), on the device to train on.
        targets: (n, outputs), on the same device.
        recipe: epochs, batch, optimizer, rates, augmentation.
        mixup: alpha; 0 for no mixing.
        seed: of first weights, orders and mixing.
        folder: for checkpoints and the finished network; None for none.
        half: compute in bfloat16.
        compile: join operations by ``torch.compile``; a minute at first, for long runs on a GPU.
        told: how many steps are done, of how many.
        clock: says when to stop.
        loss: of what the network says and the targets.

    Raises:
        OutOfTime: if the clock ran out; called again, it goes on.
    """
    return trained(
        lambda: _Fitting(make(), inputs, targets, recipe, mixup, seed, half, compile, loss),
        seed, folder, told, clock,
    )  # fmt: skip


@final
class _Fitting:
    """One network's training, while it lasts."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        recipe: Fitted,
        mixup: float,
        seed: int,
        half: bool,
        compile: bool,
        loss: Loss,
    ) -> None:
        self.inputs, self.targets, self.recipe = inputs, targets.float(), recipe
        self.mixup, self.seed, self.half, self.loss = mixup, seed, half, loss
        self.layout = memory_layout(inputs)
        self.model = model.to(inputs.device, memory_format=self.layout)  # pyright: ignore
        # The compiled one has the same weights; what is kept and returned is the model itself.
        self.answers = torch.compile(self.model, dynamic=False) if compile else self.model
        self.batch = min(recipe.batch, len(inputs))
        self.steps = max(1, round(recipe.epochs * len(inputs) / self.batch))
        self.batches = Shuffled(len(inputs), self.batch, seed)
        self.optimizer = optimizer_of(
            self.model, recipe.optimizer, recipe.rate, recipe.weight_decay
        )

    @property
    def parts(self) -> Mapping[str, Stateful]:
        """The network and its optimizer."""
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self, number: int) -> None:
        """One batch; nothing in it waits for a GPU."""
        rows = self.batches(number).to(self.inputs.device, non_blocking=True)
        x, t = augmented(self.inputs[rows], self.recipe.augment), self.targets[rows]
        if self.mixup > 0:
            x, t = mixed(x, t, self.mixup)
        set_rate(self.optimizer, self.recipe.rate * rise_and_fall(number, self.steps))
        self.model.train()
        x = x.contiguous(memory_format=self.layout)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.half):
            logits = self.answers(x)
        loss = self.loss(logits, t)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


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
