"""Gradient inversion: images whose gradient is the one that was sent, found by descent.

What the attacker sees: the weights w, one participant's update G, how many examples and local steps
it was made of, and what defends it. She looks for images x and, if need be, labels y that minimise

    D(g(x, y), G) + t TV(x),        g(x, y) the update that x and y would have given,

from random starts, where D is

=========  ===================================  ================================================
squared    |g - G|^2 / |G|^2                    DLG, by L-BFGS (Zhu, Liu and Han, arXiv:1906.08935)
cosine     1 - <g, G> / (|g| |G|)               inverting gradients, by Adam on signs (Geiping et
                                                al., arXiv:2003.14053); blind to scale, so to
                                                clipping as well
=========  ===================================  ================================================

and TV the mean absolute difference of neighbouring pixels. With several local steps g is the
average over the same steps, differentiated through all of them. Where the update was pruned, g is
compared where G was left; where it was clipped, so is g. Of all trials the one with the least cost
is returned: no original is looked at. All trials go at once, on a GPU as one recorded graph.

    >>> torch.manual_seed(0) and None
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 3))
    >>> secret = torch.tensor([[[[0.1, 0.9], [0.7, 0.3]]]])
    >>> sent = share_gradient(model, secret, torch.tensor([2]))
    >>> found = invert_gradient(model, sent, (1, 2, 2), generator=np.random.default_rng(0),
    ...                         matching=Matching.dlg(iterations=100))
    >>> found.labels.tolist(), found.images.round(2).ravel().tolist()
    ([2], [0.1..., 0.8..., 0.6..., 0.3...])

What is found is for the curator only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import vmap

from sfumato.attacks.gradients.defences import Clipping, Gradient, Pruning
from sfumato.attacks.gradients.label_recovery import recover_labels
from sfumato.attacks.gradients.results import Reconstruction
from sfumato.attacks.gradients.searching import Told, adam_on_signs, lbfgs
from sfumato.attacks.gradients.sharing import (
    SharedUpdate,
    local_average,
    masked,
    share_gradient,
    trainable,
)
from sfumato.attacks.inversion.results import checked_shape
from sfumato.attacks.target_answers import class_numbers
from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation

__all__ = ["Matching", "invert_gradient", "share_gradient"]


@final
@dataclass(frozen=True)
class Matching:
    """How images are looked for.

    Attributes:
        distance: of two gradients; see the module.
        optimizer: "adam-signs": Adam, fed with the signs of the slopes; "lbfgs".
        iterations: steps of the search.
        rate: of a step, in units of the range of a pixel; falls to a tenth at 3/8, 5/8 and 7/8 of
            the steps ("adam-signs").
        variation: t, the weight of TV.
        trials: random starts.
    """

    distance: Literal["squared", "cosine"] = "cosine"
    optimizer: Literal["adam-signs", "lbfgs"] = "adam-signs"
    iterations: int = 4800
    rate: float = 0.025
    variation: float = 0.01
    trials: int = 1

    def __post_init__(self) -> None:
        if self.distance not in ("squared", "cosine"):
            validation.fail("distance", "squared or cosine", self.distance)
        if self.optimizer not in ("adam-signs", "lbfgs"):
            validation.fail("optimizer", "adam-signs or lbfgs", self.optimizer)
        validation.count("iterations", self.iterations)
        validation.positive("rate", self.rate)
        validation.non_negative("variation", self.variation)
        validation.count("trials", self.trials)

    @classmethod
    def dlg(cls, iterations: int = 300, trials: int = 1, variation: float = 0.0) -> Matching:
        """Deep leakage from gradients: for smooth networks, such as with sigmoids."""
        return cls("squared", "lbfgs", iterations, 1.0, variation, trials)

    @property
    def name(self) -> str:
        """Of the attack."""
        return "DLG" if self.distance == "squared" else "inverting gradients"


def invert_gradient(
    module: nn.Module,
    shared: SharedUpdate,
    shape: Sequence[int],
    *,
    generator: np.random.Generator,
    labels: ArrayLike | None = None,
    matching: Matching | None = None,
    bounds: tuple[float, float] = (0.0, 1.0),
    told: Told | None = None,
) -> Reconstruction:
    """The examples behind an update, as far as their gradient tells.

    Args:
        module: the model at the weights that the update was computed at, from inputs to logits.
        shared: the update.
        shape: of one example, such as (3, 32, 32).
        generator: of the random starts.
        labels: the classes of the examples, if the attacker knows them; by default they are
            recovered from the last layer.
        matching: how to search; inverting gradients by default.
        bounds: the least and the greatest value of a pixel; images stay within.
        told: how many steps are done, of how many.
    """
    how = Matching() if matching is None else matching
    size, (low, high) = checked_shape(shape), validation.interval("bounds", *bounds)
    classes = _classes(module, shared, size, labels, (low, high))
    costs = _costs(module, shared, classes, how, high - low)
    starts = _starts(module, (how.trials, shared.batch, *size), (low, high), generator)
    with evaluating(module), masked(module, shared.masks):
        if how.optimizer == "adam-signs":
            rate = how.rate * (high - low)
            found, cost = adam_on_signs(costs, starts, (low, high), how.iterations, rate, told)
        else:
            found, cost = lbfgs(costs, starts, (low, high), how.iterations, told)
    best = int(np.nanargmin(np.where(np.isfinite(cost), cost, np.inf)))
    return Reconstruction(
        how.name, shared.defence, found[best].cpu().float().numpy(), classes.cpu().numpy(),
        labels is not None, float(cost[best]), how.iterations, how.trials, (low, high),
    )  # fmt: skip


def _classes(
    module: nn.Module,
    shared: SharedUpdate,
    shape: tuple[int, ...],
    labels: ArrayLike | None,
    bounds: tuple[float, float],
) -> Tensor:
    place = next(iter(shared.gradient.values())).device
    if labels is None:
        return torch.as_tensor(recover_labels(module, shared, shape, bounds=bounds), device=place)
    told = class_numbers("labels", labels)
    if len(told) != shared.batch:
        validation.fail("labels", f"one for each of {shared.batch} examples", len(told))
    return torch.as_tensor(told, device=place)


def _costs(
    module: nn.Module, shared: SharedUpdate, labels: Tensor, how: Matching, width: float
) -> Callable[[Tensor], Tensor]:
    """From images of all trials, (trials, B, ...), to the cost of each."""
    weights, wanted = trainable(module), shared.gradient
    distance = _cosine_distance if how.distance == "cosine" else _squared_distance

    def cost(images: Tensor) -> Tensor:
        found = local_average(module, weights, images, labels, shared.local)
        found = _defended(found, shared)
        return distance(found, wanted) + how.variation * total_variation(images) / width

    return vmap(cost, randomness="error")


def _defended(found: Gradient, shared: SharedUpdate) -> Gradient:
    """What the defences that the attacker can repeat make of a gradient; differentiable.

    Of a pruned update she sees which numbers were left.
    """
    for defence in shared.defences:
        if isinstance(defence, Pruning):
            found = {name: part * (shared.gradient[name] != 0) for name, part in found.items()}
        elif isinstance(defence, Clipping):
            length = torch.stack([part.square().sum() for part in found.values()]).sum().sqrt()
            scale = defence.norm / length.clamp_min(defence.norm)
            found = {name: scale * part for name, part in found.items()}
    return found


def _squared_distance(found: Gradient, wanted: Gradient) -> Tensor:
    apart = torch.stack([(found[name] - wanted[name]).square().sum() for name in wanted]).sum()
    whole = torch.stack([part.square().sum() for part in wanted.values()]).sum()
    return apart / whole.clamp_min(1e-30)


def _cosine_distance(found: Gradient, wanted: Gradient) -> Tensor:
    inner = torch.stack([(found[name] * wanted[name]).sum() for name in wanted]).sum()
    own, other = (
        torch.stack([part[name].square().sum() for name in wanted]).sum()
        for part in (found, wanted)
    )
    return 1 - inner / (own.clamp_min(1e-30).sqrt() * other.clamp_min(1e-30).sqrt())


def total_variation(images: Tensor) -> Tensor:
    """The mean absolute difference of neighbours, down and to the right; 0 for rows of numbers."""
    if images.ndim < 4:
        return images.new_zeros(())
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
    return down + (images[..., :, 1:] - images[..., :, :-1]).abs().mean()


def _starts(
    module: nn.Module, shape: tuple[int, ...], bounds: tuple[float, float], generator: Any
) -> Tensor:
    """Normal around the middle, a quarter of the range wide, within the bounds."""
    low, high = bounds
    first = next(iter(trainable(module).values()))
    drawn = (low + high) / 2 + (high - low) / 4 * generator.standard_normal(shape)
    return torch.from_numpy(np.clip(drawn, low, high).astype(np.float32)).to(first)
