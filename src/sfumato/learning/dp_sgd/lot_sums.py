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

Guarantee: one row more or less moves the sum by at most ``clip`` in L2, whatever the row; one whose
gradient is not finite contributes exactly 0. The model is rehearsed on made-up rows when the object
is made, as the trainer does: batch normalisation, a mean loss, or anything else that mixes rows is
an error before a private row is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum
from sfumato.learning.dp_sgd.clipping import Flat
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.recording import Recorder, trainable
from sfumato.learning.dp_sgd.rehearsal import noted, rehearse
from sfumato.learning.dp_sgd.stepping import as_training_error
from sfumato.learning.dp_sgd.turns import Turns

__all__ = ["LotSums"]

_CROWD = 32  # units in the largest batch of the rehearsal
_ROWS = 2048  # at a time, added in single precision: within the allowance for rounding


@final
class LotSums:
    """Clipped sums of lots of one model's gradients.

    Args:
        model: any module that :class:`~sfumato.learning.dp_sgd.trainer.DPSGD` can train.
        loss: ``loss(model, *batch)``, one number for each row.
        like: tensors of the same kinds as batches, from which made-up rows are drawn; only their
            shapes and types matter.
        batch_size: rows in memory at a time.

    Raises:
        TrainingError: if the model or the loss cannot be treated row by row.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        like: tuple[Tensor, ...],
        batch_size: int = _ROWS,
    ) -> None:
        self.model, self._loss, self._batch_size = model, loss, batch_size
        self.parameters = trainable(model)
        self._recorder = Recorder(model, Tape(self.parameters))
        self._rehearse(Source(like))

    def _rehearse(self, source: Source) -> None:
        optimizer = torch.optim.SGD(self.parameters.values(), lr=1.0)  # never stepped
        with self._recorder.attached():
            rehearsal = rehearse(self._recorder, source.imitation, 1, _CROWD)
            turns = Turns(rehearsal, self._recorder, optimizer)
            for batch in turns.batches():
                with noted(True):
                    losses = self._loss(self.model, *batch)
                turns.hand_in(losses)

    def clipped(self, batch: tuple[Tensor, ...], clip: float) -> dict[str, Tensor]:
        """The sum over rows of gradients of norm at most ``clip``, by the parameter's name.

        Batches of rows are added in float64: what one row moves is not lost in a long sum.
        """
        total = {n: p.new_zeros(p.shape, dtype=torch.float64) for n, p in self.parameters.items()}
        with self._recorder.attached():
            for start in range(0, len(batch[0]), self._batch_size):
                lot = ClippedSum(self.parameters, Flat(clip))
                lot.watched = False
                self._add(lot, tuple(each[start : start + self._batch_size] for each in batch))
                for name, part in lot.sums.items():
                    total[name] += part
        return total

    def _add(self, lot: ClippedSum, batch: tuple[Tensor, ...]) -> None:
        rows = len(batch[0])
        self._recorder.expect(rows, rows)
        losses = self._loss(self.model, *batch)
        self._recorder.take()
        with as_training_error():
            gradients = self._recorder.tape.gradients(losses.sum())
        with torch.no_grad(), full_precision():
            lot.add(gradients, losses.detach())


def rows_of(positions: np.ndarray, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Those rows of each tensor."""
    where = torch.from_numpy(positions)
    return tuple(each[where.to(each.device)] for each in tensors)
