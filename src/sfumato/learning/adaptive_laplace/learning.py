"""What is learnt from noisy records: post-processing, as long as one likes.

Two ways. Class means of noisy inputs are unbiased, and their noise is known; so they can be shrunk
by as much as noise deserves, and the nearest one is the class. Or any network, trained with the
likelihood of what was told of each label. A network meets clean inputs only when it is used, and
noise there was many times their range: linear ones do not mind, deep ones do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.learning.adaptive_laplace.recipe import CENTROIDS, AdaptiveLaplaceRecipe
from sfumato.learning.models import make_model

__all__ = ["ScaledBy", "Told", "learn", "untrained"]

_LEAST = 0.1  # of a class's equal share of the records: no mean is over fewer
_Progress = Callable[[int, int], object]


@final
@dataclass(frozen=True, eq=False)
class Told:
    """What was told of all records. Released.

    Attributes:
        inputs: (n, d) noisy inputs.
        scales: (d,) of the Laplace noise on each.
        unbiased: (n, classes) whose expectation is the label's one-hot vector.
        likelihood: (n, classes) of what was told of the label, up to a factor.
    """

    inputs: NDArray[np.float32]
    scales: NDArray[np.float64]
    unbiased: NDArray[np.float64]
    likelihood: NDArray[np.float64]


class ScaledBy(nn.Module):
    """(n, *shape) times ``factor`` (*shape): inputs as a network was trained on them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(shape, dtype=torch.float32))
        self.factor: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Input by input."""
        return inputs * self.factor


def untrained(recipe: AdaptiveLaplaceRecipe, shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """The model before it is trained, or read back: from inputs in [0, 1] to scores.

    Its three parts: what is told of inputs (their means over squares, or all of them), a scale for
    each, and a linear layer or network.

    Raises:
        ValueError: for an unknown network, or one that is not for such inputs.
    """
    size = recipe.told_shape(shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        if recipe.model == CENTROIDS:
            head: nn.Module = make_model("linear", size, classes)
        else:
            head = make_model(recipe.model, size, classes, **recipe.options)
    return nn.Sequential(recipe.pooling.build(shape), ScaledBy(size), head)


def learn(
    recipe: AdaptiveLaplaceRecipe,
    shape: tuple[int, ...],
    told: Told,
    device: str = "cpu",
    progress: _Progress = lambda done, total: None,
) -> nn.Module:
    """The model, in eval mode, on the CPU."""
    model = untrained(recipe, shape, told.unbiased.shape[1])
    if recipe.model == CENTROIDS:
        weight, bias = centroid_scores(told)
        layer = model[2][1]  # type: ignore[index]
        assert isinstance(layer, nn.Linear)
        layer.weight.data.copy_(torch.from_numpy(weight))
        layer.bias.data.copy_(torch.from_numpy(bias))
        progress(1, 1)
    else:
        _train(model[1:].to(device), recipe, recipe.told_shape(shape), told, progress)
    return model.cpu().eval()


# --- class means ----------------------------------------------------------------------------------


def centroid_scores(told: Told) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (classes, d) and biases (classes,) of -||x - mean_k||^2 / 2, up to what all share.

    Means are shrunk towards their common mean by s / (s + v_j), where v_j is the known variance of
    the noise on input j and s that of the true means, one for all inputs, estimated as what of
    their variance is not noise (James and Stein's way); then held within the range of inputs.
    """
    means, noise = class_means(told)
    common, known = means.mean(axis=0), noise.mean(axis=0)
    among = ((means - common) ** 2).sum(axis=0) / max(len(means) - 1, 1)
    usable = known > 0
    trust = np.divide(1.0, known**2, out=np.zeros_like(known), where=usable)
    signal = max(float(np.sum(trust * (among - known))) / max(float(trust.sum()), 1e-300), 0.0)
    kept = np.divide(signal, signal + known, out=np.zeros_like(known), where=usable)
    shrunk = np.clip(np.clip(common, 0.0, 1.0) + kept * (means - common), 0.0, 1.0)
    return shrunk, -(shrunk**2).sum(axis=1) / 2


def class_means(told: Told) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(classes, d) unbiased means, but for that of counts, and the variance of their noise."""
    weights = told.unbiased
    n, classes = weights.shape
    counts = np.maximum(weights.sum(axis=0), _LEAST * max(n, 1) / classes)[:, None]
    sums = np.zeros((classes, told.inputs.shape[1]))
    for at in range(0, n, 4096):
        sums += weights[at : at + 4096].T @ told.inputs[at : at + 4096].astype(np.float64)
    scales = np.where(np.isfinite(told.scales), told.scales, 0.0)
    squares = (weights**2).sum(axis=0)[:, None]
    return sums / counts, squares * (2 * scales**2) / counts**2


# --- networks -------------------------------------------------------------------------------------


def _train(
    model: nn.Module,
    recipe: AdaptiveLaplaceRecipe,
    shape: tuple[int, ...],
    told: Told,
    progress: _Progress,
) -> None:
    """AdamW on -ln sum_k likelihood_k p_k(x), the chance of what was told."""
    scaled = model[0]  # type: ignore[index]
    spread = np.maximum(np.where(np.isfinite(told.scales), np.sqrt(2) * told.scales, 1.0), 1.0)
    scaled.factor.copy_(torch.from_numpy(1 / spread).reshape(shape))
    device = scaled.factor.device
    n, batch = len(told.inputs), min(recipe.batch, max(len(told.inputs), 1))
    steps = max(1, round(recipe.epochs * n / batch)) if n else 0
    optimizer = torch.optim.AdamW(model.parameters(), recipe.rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    order = np.random.default_rng(recipe.seed)
    model.train()
    for step in range(steps):
        rows = order.integers(0, n, batch)
        x = torch.from_numpy(told.inputs[rows]).reshape(-1, *shape).to(device)
        likelihood = torch.from_numpy(told.likelihood[rows]).to(device, torch.float32)
        logs = torch.log_softmax(model(x), dim=1) + likelihood.clamp(min=1e-30).log()
        loss = -torch.logsumexp(logs, dim=1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        progress(step + 1, steps)
