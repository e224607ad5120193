"""The clipped sum of a lot, for those who add their noise elsewhere: no optimizer, no ledger.

:class:`~sfumato.learning.dp_sgd.trainer.DPSGD` does a whole step. In collaborative training a
participant needs its first half alone: each example's gradient, clipped, and their sum.

    >>> model = nn.Linear(2, 3)
    >>> def loss(model, x, y):
    ...     return torch.nn.functional.cross_entropy(model(x), y, reduction="none")
    >>> sums = LotSums(model, loss, (torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)))
    >>> found = sums.clipped((torch.ones(5, 2), torch.zeros(5, dtype=torch.long)), clip=0.1)
    >>> bool(torch.linalg.vector_norm(torch.cat([p.flatten() for p in found.values()])) <= 0.5)
    True

Guarantee: for lots of up to four million rows, one row more or less moves the sum by at most
``clip`` in L2, whatever the rows; one whose gradient is not finite contributes exactly 0. The model
is rehearsed on made-up rows when the object is made, as the trainer does: batch normalisation, a
mean loss, or anything else that mixes rows is an error before a private row is seen.

Rounding. A row that comes or goes changes the order in which others are added, and so their
rounding: in single precision, rows can be made up by which the sum then moves by several times
``clip`` (Casacuberta et al., "Widespread underestimation of sensitivity in differentially private
libraries and how to fix it", 2022). So all of it is computed in double precision, by a copy of the
model, in batches of one size, filled up with rows that count for nothing. With n rows in batches
of B, a sum is within (B + n/B) n u C of the exact one, u = 2^-53, whatever the rows are: below
C 2^-15 for n = 4,000,000 and B = 64. Rows are clipped to C (1 - 2^-14), which leaves room for the
errors of both sums. (What layers that add up places of a row may lose is added to the row's norm:
:mod:`~sfumato.learning.dp_sgd.gradients.pieces`.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.clipping import Flat
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.lookups import Lookups
from sfumato.learning.dp_sgd.other_coins import Watched, rarest, refuse_held, refuse_seeds
from sfumato.learning.dp_sgd.recording import Recorder, trainable
from sfumato.learning.dp_sgd.rehearsal import noted, rehearse
from sfumato.learning.dp_sgd.stepping import as_training_error
from sfumato.learning.dp_sgd.turns import Turns
from sfumato.learning.dp_sgd.zeros import none_at_zero
from sfumato.learning.secret_coins import ModelCoins

__all__ = ["LotSums"]

_CROWD = 32  # units in the largest batch of the rehearsal
_ROWS = 64  # at a time
_ROOM = 2.0**-14  # for the rounding of sums


@final
class LotSums:
    """Clipped sums of lots of one model's gradients.

    Args:
        model: any module that :class:`~sfumato.learning.dp_sgd.trainer.DPSGD` can train.
        loss: ``loss(model, *batch)``, one number for each row.
        like: tensors of the same kinds as batches, from which made-up rows are drawn; only their
            shapes and types matter.

    Raises:
        TrainingError: if the model or the loss cannot be treated row by row.
    """

    def __init__(
        self, model: nn.Module, loss: Callable[..., Tensor], like: tuple[Tensor, ...]
    ) -> None:
        self.model, self._loss = model, loss
        self._exact = copy.deepcopy(model).double()
        self.parameters = trainable(self._exact)
        self._recorder = Recorder(self._exact, Tape(self.parameters))
        refuse_held(model=model, loss=loss)
        self._rehearse(Source(tuple(map(_doubled, like))))

    def _rehearse(self, source: Source) -> None:
        optimizer = torch.optim.SGD(self.parameters.values(), lr=1.0)  # never stepped
        with self._recorder.attached(), none_at_zero(self.parameters):
            lookups = Lookups()
            rehearsal = rehearse(
                self._recorder, source.imitation, 1, _CROWD, several=True, looked=lambda: lookups.of
            )
            turns = Turns(rehearsal, self._recorder, optimizer)
            for batch in turns.batches():
                watched, expected = Watched(), self._recorder.expected
                assert expected is not None
                with (
                    noted(True), ModelCoins().batch(expected.level), watched, watched.calls(),
                    lookups.following(batch, expected.learning), rarest(expected.level),
                ):  # fmt: skip
                    losses = self._loss(self._exact, *batch)
                turns.hand_in(losses)

    def clipped(
        self, batch: tuple[Tensor, ...], clip: float, coins: Coins = SYSTEM
    ) -> dict[str, Tensor]:
        """The sum over rows of gradients of norm at most ``clip``, by the parameter's name.

        What the model draws (dropout) comes from ``coins``, afresh.
        """
        masks = ModelCoins(coins)
        self._exact.load_state_dict(self.model.state_dict())  # as double precision
        total = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        with self._recorder.attached():
            for start in range(0, len(batch[0]), _ROWS):
                lot = ClippedSum(self.parameters, Flat(clip * (1 - _ROOM)))
                lot.watched = False
                with masks.batch():
                    self._add(lot, tuple(each[start : start + _ROWS] for each in batch))
                    refuse_seeds(masks.seeded_since())
                for name, part in lot.sums.items():
                    total[name] += part
        return total

    def _add(self, lot: ClippedSum, batch: tuple[Tensor, ...]) -> None:
        rows = len(batch[0])
        batch = tuple(_filled(_doubled(each)) for each in batch)
        self._recorder.expect(_ROWS, _ROWS)
        losses = self._loss(self._exact, *batch)
        self._recorder.take()
        counted = torch.arange(_ROWS, device=losses.device) < rows
        with as_training_error():
            gradients = self._recorder.tape.gradients(torch.where(counted, losses, 0.0).sum())
        with torch.no_grad(), full_precision():
            lot.add(gradients, losses.detach())


def _doubled(tensor: Tensor) -> Tensor:
    """In double precision, if it is of numbers with a point."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _filled(tensor: Tensor) -> Tensor:
    """Filled up with zeros to the size of every batch."""
    missing = tensor.new_zeros((_ROWS - len(tensor), *tensor.shape[1:]))
    return torch.cat([tensor, missing])


def rows_of(positions: np.ndarray, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Those rows of each tensor."""
    where = torch.from_numpy(positions)
    return tuple(each[where.to(each.device)] for each in tensors)
