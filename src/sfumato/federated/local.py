"""A participant's data, and the model that she trains on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.core.randomness import Coins, SeededCoins
from sfumato.federated.layout import Layout, Vector
from sfumato.learning.dp_sgd.lot_sums import LotSums
from sfumato.learning.dp_sgd.recording import trainable
from sfumato.learning.secret_coins import ModelCoins, secret_generator

__all__ = ["LocalData", "LocalModel", "row_losses"]


def row_losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The cross entropy of each row."""
    return F.cross_entropy(model(inputs), labels, reduction="none")


@final
class LocalModel:
    """A model to load the shared weights into; participants of one process may share it.

    Args:
        model: from a batch of inputs to logits.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model, self.layout = model.train(), Layout.of(model)
        self.parameters = trainable(model)
        self._sums: LotSums | None = None

    def sums(self, inputs: Tensor) -> LotSums:
        """Clipped sums of its gradients; the first call rehearses the model on made-up rows.

        Args:
            inputs: of which only the shape of a row and the type matter.
        """
        if self._sums is None:
            like = inputs.new_zeros((1, *inputs.shape[1:])), torch.zeros(1, dtype=torch.int64)
            self._sums = LotSums(self.model, row_losses, like)
        return self._sums


@final
class LocalData:
    """One participant's rows.

    Args:
        model: hers, or one that she shares with others of this process.
        inputs: (n, ...), n of 0 included.
        labels: (n,), class numbers.
    """

    def __init__(self, model: LocalModel, inputs: Tensor, labels: Tensor) -> None:
        if labels.ndim != 1 or len(inputs) != len(labels):
            validation.fail("labels", f"one for each of {len(inputs)} inputs", len(labels))
        self._model, self.inputs, self.labels = model, inputs, labels

    @property
    def rows(self) -> int:
        """How many there are: private."""
        return len(self.labels)

    @property
    def model(self) -> nn.Module:
        """The model, with whatever weights it was given last."""
        return self._model.model

    @property
    def layout(self) -> Layout:
        """Of the model."""
        return self._model.layout

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The trainable ones."""
        return self._model.parameters

    def keep_to(self, classes: int) -> None:
        """Labels that are none of so many classes count as the first one: no row is an error."""
        known = (self.labels >= 0) & (self.labels < classes)
        self.labels = torch.where(known, self.labels, torch.zeros_like(self.labels))

    def rehearse(self) -> None:
        """Finds out, on made-up rows, whether the model can be treated row by row."""
        self._model.sums(self.inputs)

    def trained(
        self, weights: Vector, train: Callable[[LocalData, torch.Generator], None], coins: Coins
    ) -> Vector:
        """The weights after local training from the shared ones.

        Which rows are drawn, and what the model draws, comes from ``coins`` alone: whoever sent the
        weights, or trains beside her, knows neither.
        """
        self.layout.write(self.model, weights)
        generator = secret_generator("cpu", coins)
        with ModelCoins(_other_than(coins)).batch():
            train(self, generator)
        return self.layout.read(self.model)

    def clipped_sum(
        self, weights: Vector, lot: tuple[Tensor, ...], clip: float, coins: Coins
    ) -> NDArray[np.float64]:
        """The sum of the lot's gradients at the shared weights, each of norm ``clip`` at most.

        What the model draws comes from ``coins``.
        """
        self.layout.write(self.model, weights)
        found = self._model.sums(self.inputs).clipped(lot, clip, _other_than(coins))
        return torch.cat([found[name].flatten() for name in self.layout.names]).cpu().numpy()


def _other_than(coins: Coins) -> Coins:
    """Of test coins another stream each time, one word further; all others as they are."""
    return SeededCoins(int(coins.words(1)[0])) if isinstance(coins, SeededCoins) else coins
