"""Augmentation multiplicity: several changed copies of a record, averaged before clipping.

Costs nothing: the average of a record's gradients is still a function of that record alone, and is
clipped as a whole. De et al., "Unlocking high-accuracy differentially private image classification
through scale", arXiv:2204.13650, section 3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.core import validation
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.layout import telling_sizes
from sfumato.learning.dp_sgd.made_up import TOLD, extreme
from sfumato.learning.dp_sgd.other_coins import (
    Noted,
    Watched,
    drawn_by,
    refuse_shared,
    same_coins,
)

__all__ = ["Augmentation"]

_ROWS, _TRIALS, _FEW = 5, 64, 4


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
        """The batch with its inputs changed.

        Raises:
            TrainingError: if the function seeds a generator.
        """
        if self.augment is None:
            return batch
        with Watched():
            if isinstance(batch, (tuple, list)):
                return type(batch)([self.augment(batch[0]), *batch[1:]])
            return self.augment(batch)

    def checked(
        self, imitate: Callable[[int], Any], several: bool = False, crowd: int = 0
    ) -> Callable[[int], Any]:
        """Made-up batches as the model will see them; random states stay as they are.

        Args:
            imitate: makes a batch of so many rows up.
            several: whether a row that comes may move others to another batch.
            crowd: rows of the largest physical batch, in case rows are mixed among many only.

        Raises:
            TrainingError: if the function mixes rows (with the same coins, only a changed row may
                move), or draws other coins than it is given, or once for a whole batch.
        """
        if self.augment is None:
            return imitate

        drawn = self._drawn(imitate)
        for trial in range(_TRIALS):
            self._check(imitate, trial, _ROWS)
        for trial in range(_FEW if crowd > _ROWS else 0):
            self._check(imitate, trial, crowd)
        for some, more in drawn:
            refuse_shared("augment", some, more, several)
        return lambda rows: self.held_still(imitate(rows))

    def held_still(self, batch: Any) -> Any:
        """A made-up batch with its inputs changed, by the same coins each time."""
        with same_coins(0):
            return self(batch)

    def _drawn(self, imitate: Callable[[int], Any]) -> list[tuple[Noted, Noted]]:
        """What is drawn for some rows, and for twice as many; raises for other coins."""
        assert self.augment is not None
        noted = list[tuple[Noted, Noted]]()
        lengths = {n for leaf in _tensors(_inputs(imitate(1))) for n in leaf.shape[1:]}
        size = telling_sizes(lengths)[0]
        for trial in range(_FEW):
            found = [
                drawn_by(functools.partial(self.augment, _inputs(imitate(rows))), rows, trial)
                for rows in (size, size, 2 * size)
            ]
            if not all(map(_equal, _tensors(found[0][0]), _tensors(found[1][0]))):
                raise TrainingError(
                    "augment draws from a generator of its own: the same rows, and the same coins "
                    "in torch's, NumPy's and Python's generators, came out as two different "
                    "batches. Draw from these three alone, which get fresh secret coins"
                )
            noted.append((found[1][1], found[2][1]))
        return noted

    def _check(self, imitate: Callable[[int], Any], trial: int, rows: int) -> None:
        assert self.augment is not None
        row = trial % _ROWS
        found: list[list[Tensor]] = []
        for change in (False, True):
            inputs = _inputs(imitate(rows))
            if change:
                inputs = pytree.tree_map(lambda leaf: _with_other(leaf, row, trial), inputs)
            try:
                with same_coins(trial + 1):
                    found.append(_tensors(self.augment(inputs)))
            except Exception as error:
                if not change:
                    raise
                raise TrainingError(
                    f"augment raised {type(error).__name__} when one row held other numbers (those "
                    f"of another, {TOLD}). On a private row it would raise in the middle of a run, "
                    "and tell of it: let it give something for every row"
                ) from error
        others = [i for i in range(rows) if i != row]
        for one, two in zip(*found, strict=True):
            if not one.ndim or len(one) != rows:
                raise TrainingError(
                    f"augment must keep the rows of a batch, got the shape {tuple(one.shape)} from "
                    f"{rows} rows"
                )
            if not torch.equal(one[others], two[others]):
                raise TrainingError(
                    "augment mixes the rows of a batch (as mixup does), so that one record's "
                    "gradient would depend on others: change each row by itself"
                )


def _equal(one: Tensor, two: Tensor) -> bool:
    if one.shape != two.shape:
        return False
    return bool(((one == two) | ((one != one) & (two != two))).all())


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, (tuple, list)) else batch


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _with_other(leaf: Any, row: int, trial: int) -> Any:
    """The same rows but one, which is far from the usual in each second trial."""
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return leaf
    other = leaf.clone()
    if trial % 2 and (leaf.is_floating_point() or leaf.dtype == torch.uint8):
        other[row] = extreme(leaf[row], trial // 2)
    elif leaf.is_floating_point():
        other[row] = 0.5 - 2 * leaf[row]
    else:  # numbers that occur, in case they are looked up somewhere
        other[row] = leaf[row - 1]
        if torch.equal(other, leaf) and not leaf.is_complex():
            other[row] = leaf[row] == 0
    return other
