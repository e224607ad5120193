"""Models that tell numbers: least squares on public features, and a network for what they leave.

All of it is post-processing: inputs are public, targets are reports.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sfumato.learning.label_dp.networks import make_network
from sfumato.learning.label_dp.number_recipe import NO_NETWORK, NumberRecipe

__all__ = ["NumberModel", "number_network"]

_FOLDS = 5
_PENALTIES = (1e-6, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_LEAST = 1e-6  # the spread of a column that differs at all; inputs are between 0 and 1


class NumberModel(nn.Module):
    """Numbers within declared bounds, from features.

    Args:
        size: how many numbers a row of features has.
        bounds: of the labels.
        network: adds what it tells, in halves of the labels' range; None for least squares alone.
    """

    mean: Tensor
    spread: Tensor
    weight: Tensor
    constant: Tensor

    def __init__(
        self, size: int, bounds: tuple[float, float], network: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.bounds, self.network = bounds, network
        for name, shape in (("mean", size), ("spread", size), ("weight", size), ("constant", ())):
            self.register_buffer(name, torch.zeros(shape))

    @torch.no_grad()
    def fit(self, rows: Tensor, targets: Tensor, seed: int) -> None:
        """Takes the least squares of ``targets``, with a ridge that suits rows held out.

        Columns are standardised, so that the ridge is the same for each. How strong it is, is found
        by the squared error on reports of other folds: they are unbiased, so that it is that of
        labels, but for a constant.

        Args:
            rows: (n, ...) public features.
            targets: (n,) reports in halves of the range, unbiased.
            seed: of who is in which fold.
        """
        x, t = rows.flatten(1).double(), targets.double()
        mean, spread = x.mean(dim=0), x.std(dim=0, correction=0)
        spread = torch.where(spread < _LEAST, torch.ones_like(spread), spread)
        x = (x - mean) / spread
        weight, constant = _ridge(x, t, (_best_penalty(x, t, seed),))
        self.mean.copy_(mean)
        self.spread.copy_(spread)
        self.weight.copy_(weight[:, 0])
        self.constant.copy_(constant[0])

    def linear(self, rows: Tensor) -> Tensor:
        """(n,) by least squares alone, in halves of the range, from its middle."""
        return self.constant + ((rows.flatten(1) - self.mean) / self.spread) @ self.weight

    def forward(self, rows: Tensor) -> Tensor:
        """(n,) numbers in the labels' own units, never outside their bounds."""
        found = self.linear(rows)
        if self.network is not None:
            found = found + self.network(rows)[:, 0]
        low, high = self.bounds
        told = low / 2 + high / 2 + found.double().clamp(-1.0, 1.0) * ((high - low) / 2)
        return told.clamp(low, high)


def number_network(recipe: NumberRecipe, shape: tuple[int, ...]) -> nn.Module | None:
    """The recipe's network from features of this shape to one number; None if it has none.

    Its last layer begins at zero: it begins with what least squares say.

    Raises:
        ValueError: for a network or options that cannot be.
    """
    if recipe.network == NO_NETWORK:
        return None
    made = make_network(recipe.network, shape, 1, **recipe.options)
    last = made[-1] if isinstance(made, nn.Sequential) else None
    if isinstance(last, nn.Linear):
        for weights in last.parameters():
            nn.init.zeros_(weights)
    return made


def _best_penalty(x: Tensor, t: Tensor, seed: int) -> float:
    """The one with the least squared error on held out folds; of few rows the greatest."""
    errors = torch.zeros(len(_PENALTIES), dtype=x.dtype, device=x.device)
    for held in _folds(len(x), seed):
        held = held.to(x.device)
        weights, constant = _ridge(x[~held], t[~held], _PENALTIES)
        errors += (x[held] @ weights + constant - t[held, None]).square().sum(dim=0)
    return _PENALTIES[-1 - int(errors.flip(0).argmin())]


def _folds(count: int, seed: int) -> Iterator[Tensor]:
    """(count,) which rows are held out, once each; none of fewer than ten rows."""
    if count < 2 * _FOLDS:
        return
    fold = torch.randperm(count, generator=torch.Generator().manual_seed(seed)) % _FOLDS
    for number in range(_FOLDS):
        yield fold == number


def _ridge(x: Tensor, t: Tensor, penalties: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """(d, penalties) weights (X'X / n + r I)^-1 X't / n of centred rows, and the constants."""
    mean, middle = x.mean(dim=0), t.mean()
    x, t = x - mean, t - middle
    size, basis = torch.linalg.eigh(x.T @ x / len(x))
    along = (basis.T @ (x.T @ t) / len(x))[:, None]
    penalty = torch.tensor(penalties, dtype=x.dtype, device=x.device)
    weights = basis @ (along / (size.clamp(min=0.0)[:, None] + penalty))
    return weights, middle - mean @ weights
