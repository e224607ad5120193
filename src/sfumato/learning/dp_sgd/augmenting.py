"""Augmentation multiplicity: several changed copies of a record, averaged before clipping.

Costs nothing: the average of a record's gradients is still a function of that record alone, and is
clipped as a whole. De et al., "Unlocking high-accuracy differentially private image classification
through scale", arXiv:2204.13650, section 3.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.core import validation
from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Augmentation", "same_coins"]

_ROWS, _TRIALS = 5, 64


class Augmentation:
    """Applies ``augment`` to a batch's inputs: its first element if it is a sequence, or all."""

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

    def checked(self, imitate: Callable[[int], Any]) -> Callable[[int], Any]:
        """Made-up batches as the model will see them; random states stay as they are.

        Raises:
            TrainingError: if the function mixes rows: with the same coins, only a changed row may
                move.
        """
        if self.augment is None:
            return imitate

        def imitate_changed(rows: int) -> Any:
            with same_coins(0):
                return self(imitate(rows))

        for trial in range(_TRIALS):
            self._check(imitate, trial)
        return imitate_changed

    def _check(self, imitate: Callable[[int], Any], trial: int) -> None:
        assert self.augment is not None
        row = trial % _ROWS
        found: list[list[Tensor]] = []
        for change in (False, True):
            batch = imitate(_ROWS)
            inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
            if change:
                inputs = pytree.tree_map(lambda leaf: _with_other(leaf, row), inputs)
            with same_coins(trial + 1):
                changed = self.augment(inputs)
            found.append([t for t in pytree.tree_leaves(changed) if isinstance(t, Tensor)])
        others = [i for i in range(_ROWS) if i != row]
        for one, two in zip(*found, strict=True):
            if not one.ndim or len(one) != _ROWS:
                raise TrainingError(
                    f"augment must keep the rows of a batch, got the shape {tuple(one.shape)} from "
                    f"{_ROWS} rows"
                )
            if not torch.equal(one[others], two[others]):
                raise TrainingError(
                    "augment mixes the rows of a batch (as mixup does), so that one record's "
                    "gradient would depend on others: change each row by itself"
                )


def _with_other(leaf: Any, row: int) -> Any:
    """The same rows but one."""
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return leaf
    other = leaf.clone()
    if leaf.is_floating_point():
        other[row] = 0.5 - 2 * leaf[row]
    else:  # numbers that occur, in case they are looked up somewhere
        other[row] = leaf[row - 1]
        if torch.equal(other, leaf) and not leaf.is_complex():
            other[row] = leaf[row] == 0
    return other


@contextlib.contextmanager
def same_coins(seed: int) -> Generator[None]:
    """The same global random numbers each time; afterwards as if none had been drawn."""
    plain, numeric = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(range(torch.cuda.device_count())):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        random.setstate(plain)
        np.random.set_state(numeric)  # noqa: NPY002
