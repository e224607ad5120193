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
from sfumato.learning.crafted_coins import RARE, Level
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.layout import telling_sizes
from sfumato.learning.dp_sgd.made_up import MISSING, TOLD, extreme, with_holes, with_whole
from sfumato.learning.dp_sgd.other_coins import (
    Noted,
    Watched,
    drawn_by,
    refuse_shared,
    refuse_unrepeated,
    same_coins,
)
from sfumato.learning.dp_sgd.places import refuse_places

__all__ = ["Augmentation"]

_ROWS, _TRIALS, _FEW = 5, 64, 4
_OTHER_WHOLE = 3  # of four trials, the one with whole numbers of other sizes


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
        for rows in (_ROWS, crowd) if crowd > _ROWS else (_ROWS,):
            for trial in range(_FEW):
                self._check(imitate, trial, rows)
                for level in RARE:
                    self._check(imitate, trial, rows, level=level)
            for hole in MISSING:
                self._check(imitate, 0, rows, hole=hole)
            self._refuse_places(imitate, rows)
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
            refuse_unrepeated("augment", found[0][0], found[1][0])
            noted.append((found[1][1], found[2][1]))
        return noted

    def _refuse_places(self, imitate: Callable[[int], Any], rows: int) -> None:
        def made(order: list[int]) -> list[Tensor]:
            assert self.augment is not None
            chosen = pytree.tree_map(
                lambda leaf: leaf[order] if _has_rows(leaf) else leaf, _inputs(imitate(rows))
            )
            return _tensors(self.augment(chosen))

        refuse_places("augment", made, rows)

    def _check(
        self, imitate: Callable[[int], Any], trial: int, rows: int, *,
        level: Level | None = None, hole: float | None = None,
    ) -> None:  # fmt: skip
        """Raises if another row than the one that changes comes out as another.

        Args:
            imitate: makes a batch of so many rows up.
            trial: which row changes, and how.
            rows: how many.
            level: what the coins give first.
            hole: what some numbers of all other rows are.
        """
        assert self.augment is not None
        row = trial % _ROWS
        found: list[list[Tensor]] = []
        for change in (False, True):
            inputs = _inputs(imitate(rows))
            if hole is not None:
                inputs = pytree.tree_map(lambda leaf: _holed_but(leaf, row, hole), inputs)
            if change:
                inputs = pytree.tree_map(lambda leaf: _with_other(leaf, row, trial), inputs)
            try:
                with same_coins(trial + 1, level):
                    found.append(_tensors(self.augment(inputs)))
            except Exception as error:
                if change and trial % 4 == _OTHER_WHOLE:  # that no table may have
                    return
                if not change and hole is None:
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
            if not _equal(one[others], two[others]):
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


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0


def _holed_but(leaf: Any, row: int, hole: float) -> Any:
    """The same rows with holes in all but one."""
    if not _has_rows(leaf):
        return leaf
    other = with_holes(leaf, hole)
    other[row] = leaf[row]
    return other


def _with_other(leaf: Any, row: int, trial: int) -> Any:
    """The same rows but one, which is far from the usual in each second trial."""
    if not _has_rows(leaf):
        return leaf
    other = leaf.clone()
    if trial % 4 == _OTHER_WHOLE and not leaf.is_floating_point():
        other[row] = with_whole(leaf[row], trial // 4)
    elif trial % 2 and (leaf.is_floating_point() or leaf.dtype == torch.uint8):
        other[row] = extreme(leaf[row], trial // 2)
    elif leaf.is_floating_point():
        other[row] = 0.5 - 2 * leaf[row]
    else:  # numbers that occur, in case they are looked up somewhere
        other[row] = leaf[row - 1]
        if torch.equal(other, leaf) and not leaf.is_complex():
            other[row] = leaf[row] == 0
    return other
