"""Augmentation multiplicity: several changed copies of a record, averaged before clipping.

Costs nothing: the average of a record's gradients is still a function of that record alone, and is
clipped as a whole. De et al., "Unlocking high-accuracy differentially private image classification
through scale", arXiv:2204.13650, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Augmentation"]


class Augmentation:
    """Applies ``augment`` to a batch's input: its first element, or the batch if it is a tensor."""

    def __init__(self, augment: Callable[[Any], Any] | None, copies: int) -> None:
        self.augment = augment
        self.copies = validation.count("augmentations", copies)
        if augment is None and self.copies > 1:
            raise ValueError(
                f"augmentations is {copies}, but there is no augment: give the function that "
                "changes a batch's inputs at random"
            )

    def __call__(self, batch: Any) -> Any:
        """The batch with its inputs changed."""
        if self.augment is None:
            return batch
        if isinstance(batch, (tuple, list)):
            return type(batch)([self.augment(batch[0]), *batch[1:]])
        return self.augment(batch)

    def check(self, imitate: Callable[[int], Any]) -> None:
        """Raises if the function mixes rows: with the same coins, only the changed row may move."""
        if self.augment is None:
            return
        batch = imitate(4)
        first = batch[0] if isinstance(batch, (tuple, list)) else batch
        if not isinstance(first, Tensor):
            return
        other = first.clone()
        other[0] = other[0].flip(-1) if other.ndim > 1 else 1 - other[0]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            one = self.augment(first.clone())
            torch.manual_seed(1)
            two = self.augment(other)
        if one.shape[0] != first.shape[0]:
            raise TrainingError(
                f"augment must keep the rows of a batch: got {one.shape[0]} from {first.shape[0]}"
            )
        if not torch.equal(one[1:], two[1:]):
            raise TrainingError(
                "augment mixes the rows of a batch (as mixup does), so that one record's gradient "
                "would depend on others: change each row by itself"
            )
