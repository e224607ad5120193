"""Pre-training on inputs alone: two views of an image should be told apart from all others.

Label privacy leaves inputs public, so a network may learn from them as long as it likes. A body f
and a small head g are trained so that of 2 n views, two of each of n images, the views of one image
have similar codes z = g(f(x)): with cosine similarity s and temperature T the loss of view i, whose
other view is j, is

    l(i) = -log( exp(s(z_i, z_j) / T) / sum_{k != i} exp(s(z_i, z_k) / T) )

(NT-Xent), averaged over all views. The head is thrown away afterwards.

Guarantee: no label is an argument of anything here, so this costs nothing; what it says about
inputs is not protected, as nothing about inputs is.

Reference: SimCLR, Chen, Kornblith, Norouzi and Hinton, arXiv:2002.05709.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.label_dp.stepping import (
    Clock,
    Told,
    memory_layout,
    optimizer_of,
    rise_and_fall,
    trained,
)
from sfumato.learning.label_dp.views import viewed
from sfumato.learning.pate.students.learners import Shuffled, Stateful, set_rate

__all__ = ["CHOICES", "contrastive_loss", "image_body", "pretrain_body"]

Views = Callable[[Tensor, bool], Tensor]
"""Two random views of each of n inputs, i and i + n of one; whether they may be mirrored."""

_TEMPERATURE = 0.2
_CODE = 128  # numbers of a code
_RATE, _BATCH = 0.24, 512  # the highest rate, for batches of so many; in proportion for others
_DECAY = 5e-4

CHOICES: Mapping[str, float] = {
    "temperature": _TEMPERATURE, "code": _CODE, "rate": _RATE, "decay": _DECAY,
}  # fmt: skip
"""What no recipe changes; weights of a body that was trained otherwise are others."""


def image_body(network: nn.Module, name: str) -> tuple[nn.Sequential, int]:
    """What stands before the last layer, and how many numbers come out of it.

    Args:
        network: of images, ending with the mean over places and a linear layer.
        name: of the network, for whoever reads the refusal.

    Raises:
        ValueError: for any other network.
    """
    layers = list(network) if isinstance(network, nn.Sequential) else []
    last = layers[-1] if len(layers) > 2 else None
    if not isinstance(last, nn.Linear) or not isinstance(layers[-3], nn.AdaptiveAvgPool2d):
        validation.fail("network", "resnet18 or small-cnn, on images, to be pre-trained", name)
    return nn.Sequential(*layers[:-1]), last.in_features


def contrastive_loss(codes: Tensor, temperature: float = _TEMPERATURE) -> Tensor:
    """NT-Xent of (2 n, d) codes, where i and i + n are of one image; in single precision."""
    unit = F.normalize(codes.float(), dim=1)
    alike = unit @ unit.T / temperature
    views = len(codes)
    itself = torch.eye(views, dtype=torch.bool, device=codes.device)
    other = torch.arange(views, device=codes.device).roll(views // 2)
    return F.cross_entropy(alike.masked_fill(itself, -torch.inf), other)


def pretrain_body(
    make: Callable[[], tuple[nn.Sequential, int]],
    inputs: Tensor,
    *,
    epochs: float,
    batch: int,
    mirrored: bool,
    seed: int,
    folder: Path | None = None,
    half: bool = False,
    compile: bool = False,
    told: Told = lambda done, total: None,
    clock: Clock | None = None,
    views: Views = lambda rows, mirrored: viewed(torch.cat([rows, rows]), mirrored),
) -> dict[str, Tensor]:
    """The weights of a body after its training, or from where that was cut off.

    Args:
        make: the untrained body, and how many numbers it gives; see :func:`image_body`.
        inputs: (n, channels, height, width) in [0, 1], public, on the device to train on; or as
            ``views`` takes them.
        epochs: over all inputs.
        batch: images of a step, each in two views.
        mirrored: whether views may be mirror images.
        seed: of first weights, orders and views.
        folder: for checkpoints and what is finished; None for none.
        half: compute in bfloat16; codes are compared in single precision.
        compile: join operations by ``torch.compile``.
        told: how many steps are done, of how many.
        clock: says when to stop.
        views: two random views of each of some inputs.

    Raises:
        OutOfTime: if the clock ran out; called again, it goes on.
    """
    model = trained(
        lambda: _Pretraining(*make(), inputs, epochs, batch, mirrored, seed, half, compile, views),
        seed, folder, told, clock,
    )  # fmt: skip
    assert isinstance(model, nn.Sequential)
    return {name: value.detach().cpu().clone() for name, value in model[0].state_dict().items()}


@final
class _Pretraining:
    """A body and its head, while they learn."""

    def __init__(
        self,
        body: nn.Sequential,
        size: int,
        inputs: Tensor,
        epochs: float,
        batch: int,
        mirrored: bool,
        seed: int,
        half: bool,
        compile: bool,
        views: Views,
    ) -> None:
        self.inputs, self.mirrored, self.half, self.views = inputs, mirrored, half, views
        self.layout = memory_layout(inputs)
        self.model: nn.Module = nn.Sequential(body, _head(size)).to(
            inputs.device, memory_format=self.layout
        )  # pyright: ignore
        self.codes = torch.compile(self.model, dynamic=False) if compile else self.model
        self.batch = min(batch, len(inputs))
        self.steps = max(1, round(epochs * len(inputs) / self.batch))
        self.batches = Shuffled(len(inputs), self.batch, seed)
        self.rate = _RATE * self.batch / _BATCH
        self.optimizer = optimizer_of(self.model, "sgd", self.rate, _DECAY)

    @property
    def parts(self) -> Mapping[str, Stateful]:
        """The network and its optimizer."""
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self, number: int) -> None:
        """One batch in two views; nothing in it waits for a GPU."""
        rows = self.batches(number).to(self.inputs.device, non_blocking=True)
        views = self.views(self.inputs[rows], self.mirrored)
        set_rate(self.optimizer, self.rate * rise_and_fall(number, self.steps))
        self.model.train()
        views = views.contiguous(memory_format=self.layout)
        with torch.autocast(views.device.type, torch.bfloat16, enabled=self.half):
            codes = self.codes(views)
        loss = contrastive_loss(codes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def _head(size: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(size, size, bias=False), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, _CODE)
    )
