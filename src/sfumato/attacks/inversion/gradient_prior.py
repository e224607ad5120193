"""Inversion with a prior: pictures that a model is sure of, however they are moved about.

What the attacker sees: the derivatives of a model's log-probabilities by its input. What she knows:
that a picture is wanted. She searches over codes z of a generator G that was learned from public
pictures (or over pixels, where there is none) and minimises

    mean over views of loss(view(G(z)), c) + prior(G(z)) + weight |z|^2 / 2

- loss: the cross entropy -log p_c, or the margin max_k!=c (l_k - l_c) of the logits l, whose slope
  does not vanish where the model is sure. A difference of logits is one of log-probabilities.
- views: the image shifted at random, with noise. What a model is sure of from every view is less
  often an accident of its weights.
- prior: the variation of neighbouring pixels, their energy.

Several starts are tried for each class. What is kept is what the *target* is surest of over fresh
views; nothing else is asked for the choice.

    >>> from torch import nn
    >>> layer = nn.Linear(4, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[4.0, 4, 0, 0], [0, 0, 4, 4]]))
    >>> found = invert_with_prior(
    ...     Target.of_module(layer, view="gradients"), [0, 1], (4,), steps=60, restarts=2,
    ...     generator=np.random.default_rng(1), views=Views(shift=0),
    ... )
    >>> (found.images > 0.5).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 1, 1]]

Images of private records are the curator's.

References: Zhang, Jia, Pei, Wang, Li and Song, "The secret revealer: generative model-inversion
attacks against deep neural networks", CVPR 2020, arXiv:1911.07135, for the cross entropy as an
identity loss in the space of codes; Struppek et al., "Plug & Play attacks: towards robust and
flexible model inversion attacks", ICML 2022, arXiv:2201.12179, for random changes and the selection
by them; Yuan, Chen, Zhang, Zhang and Yu, "Pseudo label-guided model inversion attack via
conditional generative adversarial network", AAAI 2023, arXiv:2302.09814, for the margin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sfumato.attacks.inversion.priors import LearnedPrior, energy, total_variation
from sfumato.attacks.inversion.results import (
    Inversion,
    checked_labels,
    checked_shape,
    probability_of,
)
from sfumato.attacks.targets import Target, View
from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation

__all__ = ["Loss", "Objective", "Views", "invert_with_prior"]


class Loss(StrEnum):
    """What is minimised of the target's answers; see the module."""

    CROSS_ENTROPY = "cross-entropy"
    MARGIN = "margin"


@final
@dataclass(frozen=True)
class Objective:
    """What makes an image good.

    Attributes:
        loss: of the target's answers.
        variation: the weight of the mean difference of neighbouring pixels.
        energy: the weight of the mean square of pixels.
        code: the weight of half a code's square length.
    """

    loss: Loss | str = Loss.CROSS_ENTROPY
    variation: float = 0.0
    energy: float = 0.0
    code: float = 0.02

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", validation.choice("loss", self.loss, Loss))
        for name in ("variation", "energy", "code"):
            validation.non_negative(name, getattr(self, name))


@final
@dataclass(frozen=True)
class Views:
    """How an image is changed at random before the target sees it.

    Attributes:
        count: so many views of each image at every step; their losses are averaged.
        shift: by up to so many pixels in each direction; the border is filled with the nearest.
        noise: the standard deviation of noise, as a share of the bounds' width.
        selecting: so many views of each image for the final choice.
    """

    count: int = 4
    shift: int = 2
    noise: float = 0.3
    selecting: int = 32

    def __post_init__(self) -> None:
        validation.count("count", self.count)
        validation.at_least("shift", self.shift, 0)
        validation.non_negative("noise", self.noise)
        validation.count("selecting", self.selecting)

    def of(
        self,
        images: Tensor,
        count: int,
        bounds: tuple[float, float],
        *,
        generator: np.random.Generator,
    ) -> Tensor:
        """``count`` views of each image within the bounds, the first of all images first."""
        low, high = bounds
        seen = torch.cat([self._shifted(images, generator) for _ in range(count)])
        drawn = generator.standard_normal(tuple(seen.shape), dtype=np.float32)
        noise = self.noise * (high - low) * torch.from_numpy(drawn).to(seen.device)
        return (seen + noise).clamp(low, high)

    def _shifted(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        """All of a batch by the same shift."""
        if self.shift == 0:
            return images
        for axis in (-2, -1):
            size = images.shape[axis]
            by = int(generator.integers(-self.shift, self.shift + 1))
            places = (torch.arange(size, device=images.device) + by).clamp(0, size - 1)
            images = images.index_select(axis, places)
        return images


_OBJECTIVE, _VIEWS = Objective(), Views()


def invert_with_prior(
    target: Target,
    labels: ArrayLike,
    shape: Sequence[int],
    *,
    generator: np.random.Generator,
    prior: LearnedPrior | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    objective: Objective = _OBJECTIVE,
    views: Views = _VIEWS,
    steps: int = 300,
    rate: float = 0.05,
    restarts: int = 4,
    kept: int = 1,
) -> Inversion:
    """The images of each class that the target is surest of from every view.

    Args:
        target: the model; must show gradients.
        labels: of which classes, each once.
        shape: of one input, such as (1, 28, 28).
        generator: the attacker's coins.
        prior: a generator learned from public pictures; None searches over pixels.
        bounds: the least and the greatest value of a pixel. Images and queries stay within.
        objective: what makes an image good.
        views: how images are changed before the target sees them.
        steps: of Adam.
        rate: Adam's.
        restarts: how many starts for each class.
        kept: how many images of each class are returned, the best first.

    Raises:
        NotSeen: if the target shows too little, before any query.
    """
    target.require(View.GRADIENTS)
    wanted, sides = checked_labels(labels), checked_shape(shape)
    if len(np.unique(wanted)) < len(wanted):
        validation.fail("labels", "each named once: ask for more with kept", wanted.tolist())
    tries = validation.count("restarts", restarts)
    if validation.count("kept", kept) > tries:
        validation.fail("kept", f"at most the restarts, {tries}", kept)
    if views.shift and len(sides) < 2:
        validation.fail("shift", f"0 for inputs of shape {sides}", views.shift)
    low, high = validation.interval("bounds", *bounds)
    before = target.queries
    search = _Search(target, np.repeat(wanted, tries), sides, prior, (low, high), objective, views)
    taken = validation.count("steps", steps)
    images = search.run(taken, validation.positive("rate", rate), generator)
    chosen = search.best(images, tries, kept, generator)
    found, made = images[chosen], search.labels[chosen]
    return Inversion(
        "inversion with a learned prior" if prior else "inversion with pixel priors",
        target.name,
        made,
        found,
        probability_of(target, found, made),
        np.full(len(made), taken),
        target.queries - before,
        (low, high),
    )


@dataclass(frozen=True)
class _Search:
    """All starts of all classes in one batch."""

    target: Target
    labels: NDArray[np.int64]
    shape: tuple[int, ...]
    prior: LearnedPrior | None
    bounds: tuple[float, float]
    objective: Objective
    views: Views
    loss: Loss = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", Loss(self.objective.loss))

    def run(self, steps: int, rate: float, generator: np.random.Generator) -> NDArray[np.float32]:
        """The images at the end."""
        if self.prior is None:
            return self._descend(self._grey(generator), steps, rate, generator)
        with evaluating(self.prior.decoder) as device:
            size = (len(self.labels), *self.prior.code_shape)
            codes = 0.5 * torch.from_numpy(generator.standard_normal(size, dtype=np.float32))
            return self._descend(codes.to(device), steps, rate, generator)

    def _grey(self, generator: np.random.Generator) -> Tensor:
        """Faint noise above the lower bound."""
        low, high = self.bounds
        noise = generator.random((len(self.labels), *self.shape), dtype=np.float32)
        return torch.from_numpy(low + 0.1 * (high - low) * noise)

    def _descend(
        self, codes: Tensor, steps: int, rate: float, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        codes.requires_grad_(True)
        optimizer = torch.optim.Adam([codes], lr=rate)
        for _ in range(steps):
            images = self._images(codes)
            seen = self.views.of(images, self.views.count, self.bounds, generator=generator)
            slopes = self._slopes(seen.detach().cpu().numpy()) / self.views.count
            pulled = torch.from_numpy(slopes.astype(np.float32)).to(seen.device)
            total = (seen * pulled).sum() + self._penalty(codes, images)  # its slope is what counts
            (codes.grad,) = torch.autograd.grad(total, codes)
            optimizer.step()
            if self.prior is None:
                codes.data.clamp_(*self.bounds)
        with torch.no_grad():
            return self._images(codes).cpu().numpy().astype(np.float32)

    def _images(self, codes: Tensor) -> Tensor:
        if self.prior is None:
            return codes
        images = self.prior.decoder(codes)
        if tuple(images.shape[1:]) != self.shape:
            validation.fail(
                "prior", f"one of images of shape {self.shape}", tuple(images.shape[1:])
            )
        return images.clamp(*self.bounds)

    def _penalty(self, codes: Tensor, images: Tensor) -> Tensor:
        """Of all images together."""
        weights, total = self.objective, torch.zeros((), device=codes.device)
        if weights.variation:
            total = total + weights.variation * total_variation(images).sum()
        if weights.energy:
            total = total + weights.energy * energy(images, self.bounds[0]).sum()
        if self.prior is not None:
            total = total + weights.code * codes.square().sum() / 2
        return total

    def _slopes(self, seen: NDArray[np.float32]) -> NDArray[np.float64]:
        """Of the loss by what the target sees."""
        labels = np.tile(self.labels, self.views.count)
        own = self.target.input_gradients(seen, labels)
        if self.loss is Loss.CROSS_ENTROPY:
            return -own
        shown = self.target.probabilities(seen)
        shown[np.arange(len(labels)), labels] = -1.0
        return self.target.input_gradients(seen, shown.argmax(axis=1)) - own

    def best(
        self, images: NDArray[np.float32], tries: int, kept: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Rows of the images that the target is surest of over fresh views, class by class."""
        count = self.views.selecting
        seen = self.views.of(
            torch.from_numpy(images), count, self.bounds, generator=generator
        ).numpy()
        sure = probability_of(self.target, seen, np.tile(self.labels, count))
        mean = sure.reshape(count, -1, tries).mean(axis=0)
        order = np.argsort(-mean, axis=1, kind="stable")[:, :kept]
        return (np.arange(len(mean))[:, None] * tries + order).ravel()
