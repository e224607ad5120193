"""What pictures look like in general: smoothness, and generators learned from public pictures.

Many inputs make a classifier sure, most of them noise. An inversion finds one that looks like
something if it searches only among pictures. A *learned prior* is a map from short codes, normally
distributed, to pictures. Here it is the decoder of a variational autoencoder, which is trained to
give back public pictures after noise was added to their codes:

    minimise   cross entropy of pixels + weight * KL(codes of a picture, standard normal)

Public pictures are all it sees: they need no labels, and need not be of the private classes. What
a prior knows by itself is no leak of the target: invert an untrained model with the same prior to
see how much that is.

    >>> generator = np.random.default_rng(1)
    >>> stripes = np.repeat(generator.random((200, 1, 4, 1)).round(), 4, axis=3)
    >>> prior = train_autoencoder_prior(stripes, generator=generator, code=4, hidden=64, epochs=99)
    >>> print(prior)
    codes of 4 numbers to images of 1 x 4 x 4
    >>> images = prior.decoded(generator.standard_normal((50, 4)))
    >>> bool(np.abs(np.diff(images, axis=3)).mean() < 0.1)  # it makes stripes
    True

References: Kingma and Welling, "Auto-encoding variational Bayes", arXiv:1312.6114; for inversion in
the space of a generator's codes Zhang et al., "The secret revealer", arXiv:1911.07135.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation

__all__ = ["LearnedPrior", "energy", "total_variation", "train_autoencoder_prior"]


def total_variation(images: Tensor) -> Tensor:
    """The mean absolute difference of neighbouring pixels, one number an image."""
    if images.ndim < 3 or min(images.shape[-2:]) < 2:
        validation.fail("images", "pictures of at least 2 x 2 pixels", tuple(images.shape))
    down, across = images.diff(dim=-2).abs(), images.diff(dim=-1).abs()
    return down.flatten(1).mean(dim=1) + across.flatten(1).mean(dim=1)


def energy(images: Tensor, lower: float) -> Tensor:
    """The mean square of pixels above the lower bound, one number an image."""
    return (images - lower).square().flatten(1).mean(dim=1)


@final
@dataclass(frozen=True, eq=False)
class LearnedPrior:
    """A generator of pictures: from codes, normally distributed, to images.

    Attributes:
        decoder: from a batch of codes to a batch of images within the bounds.
        code_shape: of one code.
        encoder: from images to their codes; None where only a decoder is known.
    """

    decoder: nn.Module
    code_shape: tuple[int, ...]
    encoder: nn.Module | None = None

    def __str__(self) -> str:
        with evaluating(self.decoder) as device, torch.no_grad():
            made = self.decoder(torch.zeros(1, *self.code_shape, device=device))
        sides = " x ".join(map(str, made.shape[1:]))
        return f"codes of {prod(self.code_shape)} numbers to images of {sides}"

    def decoded(self, codes: ArrayLike) -> NDArray[np.float32]:
        """The image of each code."""
        with evaluating(self.decoder) as device, torch.no_grad():
            given = torch.as_tensor(np.asarray(codes, dtype=np.float32), device=device)
            return self.decoder(given).cpu().numpy().astype(np.float32)

    def rebuilt(self, images: ArrayLike) -> NDArray[np.float32]:
        """Each image through its code and back: a process for MI-Face."""
        if self.encoder is None:
            raise ValueError("a prior without an encoder cannot rebuild images: give it one")
        with evaluating(self.encoder) as device, torch.no_grad():
            given = torch.as_tensor(np.asarray(images, dtype=np.float32), device=device)
            codes = self.encoder(given)
        return self.decoded(codes.cpu().numpy())


def train_autoencoder_prior(
    images: ArrayLike,
    *,
    generator: np.random.Generator,
    bounds: tuple[float, float] = (0.0, 1.0),
    code: int = 16,
    hidden: int = 400,
    epochs: int = 20,
    batch_size: int = 128,
    rate: float = 2e-3,
    weight: float = 1.0,
    device: str = "cpu",
) -> LearnedPrior:
    """A prior from public pictures. Nothing private may be among them.

    Args:
        images: public pictures, one a row.
        generator: the attacker's coins: initial weights, batches and noise.
        bounds: the least and the greatest value of a pixel.
        code: how many numbers a code has; the fewer, the less the pictures vary.
        hidden: units of the one hidden layer of the encoder and of the decoder.
        epochs: how often each picture is seen.
        batch_size: how many at a time.
        rate: Adam's learning rate.
        weight: of the codes' distance from the normal law.
        device: where to train; the prior stays there.
    """
    low, high = validation.interval("bounds", *bounds)
    pictures = np.asarray(images, dtype=np.float32)
    if pictures.ndim < 2 or len(pictures) == 0:
        validation.fail("images", "public pictures, one a row", pictures.shape)
    shape, numbers = pictures.shape[1:], validation.count("code", code)
    drawn = torch.Generator().manual_seed(int(generator.integers(2**63)))
    with torch.random.fork_rng(devices=[]):  # torch's own coins are for others
        encoder, decoder = _networks(
            shape, numbers, validation.count("hidden", hidden), (low, high)
        )
    both = nn.ModuleList([encoder, decoder])
    for layer in both.modules():
        _start(layer, drawn)
    both.to(device)
    optimizer = torch.optim.Adam(both.parameters(), lr=validation.positive("rate", rate))
    rows = torch.from_numpy(np.clip(pictures, low, high)).to(device)
    strength = validation.non_negative("weight", weight)
    for _ in range(validation.count("epochs", epochs)):
        order = torch.randperm(len(rows), generator=drawn)
        for batch in order.split(validation.count("batch_size", batch_size)):
            noise = torch.randn(len(batch), numbers, generator=drawn)
            loss = _loss(encoder, decoder, rows[batch.to(device)], noise.to(device), strength)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for weights in both.parameters():
        weights.requires_grad_(False)
    return LearnedPrior(decoder.eval(), (numbers,), nn.Sequential(encoder, _Middle()).eval())


def _networks(
    shape: tuple[int, ...], code: int, hidden: int, bounds: tuple[float, float]
) -> tuple[nn.Sequential, nn.Sequential]:
    size = prod(shape)
    encoder = nn.Sequential(
        nn.Flatten(), nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code)
    )
    decoder = nn.Sequential(
        nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, size), _Within(shape, bounds)
    )
    return encoder, decoder


def _start(layer: nn.Module, drawn: torch.Generator) -> None:
    """Initial weights from the attacker's coins, not from torch's global ones."""
    if isinstance(layer, nn.Linear):
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=drawn)
        nn.init.zeros_(layer.bias)


def _loss(
    encoder: nn.Module, decoder: nn.Sequential, images: Tensor, noise: Tensor, weight: float
) -> Tensor:
    """Minus a weighted evidence lower bound, the mean over images."""
    means, logs = encoder(images).chunk(2, dim=1)
    logits = decoder[:-1](means + logs.exp() * noise)
    within: Any = decoder[-1]
    wrong = F.binary_cross_entropy_with_logits(logits, within.shares(images), reduction="sum")
    divergence = 0.5 * (means.square() + (2 * logs).exp() - 1 - 2 * logs).sum()
    return (wrong + weight * divergence) / len(images)


@final
class _Within(nn.Module):
    """From logits to images within the bounds."""

    def __init__(self, shape: tuple[int, ...], bounds: tuple[float, float]) -> None:
        super().__init__()
        self.image_shape, self.low, self.high = shape, bounds[0], bounds[1]

    def forward(self, logits: Tensor) -> Tensor:
        shares = logits.sigmoid().reshape(-1, *self.image_shape)
        return self.low + (self.high - self.low) * shares

    def shares(self, images: Tensor) -> Tensor:
        """Where in the bounds each pixel lies, flat."""
        return ((images - self.low) / (self.high - self.low)).flatten(1)


@final
class _Middle(nn.Module):
    """Of means and spreads, the means."""

    def forward(self, both: Tensor) -> Tensor:
        return both.chunk(2, dim=1)[0]
