"""Learning to tell random images apart, and the file of weights that comes out.

    weights = pretrain(Pretraining(model="wrn", steps=16_000), "random.safetensors", device="cuda")

Two views of a random thing, cropped and recoloured, should have like codes, and views of different
things unlike ones (NT-Xent, as :mod:`~sfumato.learning.label_dp.contrastive` states it). The body
that learns this is kept, its last layer is not.

Filters that a network standardises are written with mean 0 and norm 1, as they had before training
on average. That changes nothing of what the body computes, and much of how it goes on: a step of
private training adds noise of one size to every weight, and weights that decay had made small would
drown in it.

Guarantee: no data set is an argument of anything here. What is learnt follows from public
settings and a seed, so that private training may begin with it at no cost. The file says in its
metadata what it was made by.

Reference: Tang, Panda, Sehwag and Mittal, "Differentially private image classification by learning
priors from random processes", arXiv:2306.06076 (DP-RandP), who learn from images of an untrained
StyleGAN by alignment and uniformity.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from safetensors.torch import save
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.durable import write_whole
from sfumato.learning.functions import FLOOR
from sfumato.learning.label_dp.contrastive import image_body, pretrain_body
from sfumato.learning.label_dp.stepping import Clock, Told
from sfumato.learning.label_dp.views import cropped, recoloured
from sfumato.learning.models import make_model
from sfumato.learning.models.wrn import StandardizedConv
from sfumato.learning.pretraining.processes import process_called, random_pairs

__all__ = ["Pretraining", "pretrain"]

_KEY = "pretraining"
_AREA = (0.25, 1.0)  # of a crop, as a share of the larger image that it is from
_ENLARGED = 2  # random images have so many times the side of what the network sees


@final
@dataclass(frozen=True)
class Pretraining:
    """How a body is trained on a random process. All of it is public.

    Attributes:
        model: a network of images by name that ends with a mean over places and a linear layer.
        options: of that network.
        side: of the images that it will see, in pixels; colours are three.
        process: which random images.
        images: how many things there are, in one image or two.
        steps: of the training.
        batch: images of a step, each in two views.
        mirrored: whether views may be mirror images.
        seed: of everything.
    """

    model: str = "wrn"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    side: int = 32
    process: str = "mixed"
    images: int = 262_144
    steps: int = 16_000
    batch: int = 512
    mirrored: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", dict(self.options))
        process_called(self.process)
        for name in ("images", "steps", "batch"):
            validation.count(name, getattr(self, name))
        if validation.at_least("side", self.side, 8) & (self.side - 1):
            validation.fail("side", "a power of two", self.side)
        if self.batch > self.images:
            validation.fail("batch", f"at most the images ({self.images})", self.batch)
        self.body()

    def body(self) -> tuple[nn.Sequential, int]:
        """The untrained body, and how many numbers it gives."""
        whole = make_model(self.model, (3, self.side, self.side), 2, **dict(self.options))
        return image_body(whole, self.model)

    @property
    def source(self) -> str:
        """One line for a record: where the weights come from."""
        return (
            f"{self.model} pre-trained on {self.images:,} things of the random process "
            f"{self.process!r}, {self.steps:,} steps, seed {self.seed}: no data"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def pretrain(
    how: Pretraining,
    out: str | Path,
    *,
    device: str = "cpu",
    half: bool = False,
    compile: bool = False,
    minutes: float | None = None,
    told: Told = lambda done, total: None,
    making: Told = lambda done, total: None,
) -> dict[str, Tensor]:
    """Trains a body and writes its weights; cut off, it goes on where it was.

    Args:
        how: everything that decides the weights, but for rounding.
        out: a safetensors file to write; checkpoints are kept beside it until it is there.
        device: where to train.
        half: compute in bfloat16.
        compile: join operations by ``torch.compile``.
        minutes: stop after so many; called again, it goes on.
        told: how many steps are done, of how many.
        making: how many images are made, of how many.

    Raises:
        OutOfTime: if the minutes were over first.
        ValueError: if ``out`` is there already, or its folder cannot be written to.
    """
    path = Path(out)
    if path.exists():
        raise ValueError(f"out must be a new file, but {path} is there: remove it, or give another")
    clock, partial = Clock(minutes), path.with_name(f"{path.name}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"out must be in a folder that can be written to, got {str(path)!r} ({error.strerror})"
        ) from None
    pairs = random_pairs(
        how.process, how.images, _ENLARGED * how.side, seed=how.seed, device=device, told=making
    )
    weights = pretrain_body(
        how.body,
        pairs,
        epochs=how.steps * how.batch / how.images,
        batch=how.batch,
        mirrored=how.mirrored,
        seed=how.seed,
        folder=partial,
        half=half,
        compile=compile,
        told=told,
        clock=clock,
        views=lambda rows, mirrored: _views(rows, mirrored, how.side),
    )
    weights = _rescaled(how.body()[0], weights)
    said = json.dumps({"how": how.to_dict(), "source": how.source, "device": device})
    kept = {name: value.contiguous() for name, value in weights.items()}
    write_whole(path, save(kept, {_KEY: said}), public=True)
    shutil.rmtree(partial)
    return weights


def _views(pairs: Tensor, mirrored: bool, side: int) -> Tensor:
    """Two views of each pair of random images, of the size that the network sees."""
    pictures = torch.cat([pairs[:, 0], pairs[:, 1]]).to(torch.float32) / 255
    return recoloured(cropped(pictures, mirrored, side=side, area=_AREA))


def _rescaled(body: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same function, with filters of mean 0 and norm 1 where they are standardised anyway."""
    body.load_state_dict(weights)
    with torch.no_grad():
        for part in body.modules():
            if isinstance(part, StandardizedConv):
                filters = part.weight - part.weight.mean((1, 2, 3), keepdim=True)
                squares = filters.square().sum((1, 2, 3), keepdim=True)
                unit = torch.where(squares < FLOOR, part.weight, filters * squares.rsqrt())
                part.weight.copy_(unit)
    return {name: value.detach().clone() for name, value in body.state_dict().items()}
