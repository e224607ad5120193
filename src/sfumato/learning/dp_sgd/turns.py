"""The rehearsal as a loop sees it: batches to hand out, losses to hand in, and an end."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.recording import Expected, Recorder

__all__ = ["Turns"]


class Turns:
    """Takes a rehearsal's turns: one made-up batch out, its losses in, the next batch out.

    What a rehearsal expects of its next batch counts from the moment that batch is handed out, not
    from the losses before it: what the loop body does in between is its own affair.

    Args:
        rehearsal: yields batches and is sent losses.
        recorder: where it says what it expects of each batch.
        optimizer: whose learning rates must be the same afterwards.
    """

    def __init__(
        self,
        rehearsal: Generator[Any, Tensor, None],
        recorder: Recorder,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        self._rehearsal, self._recorder, self._optimizer = rehearsal, recorder, optimizer
        self._batch: Any = None
        self._expected: Expected | None = None

    def batches(self) -> Iterator[Any]:
        """Every made-up batch; raises at the end if the loop stepped a schedule of its own."""
        rates = self._rates()
        self._advance(None)
        while self._batch is not None:
            self._recorder.expected = self._expected
            yield self._batch
        if rates != self._rates():
            raise TrainingError(
                "the learning rate changed in the rehearsal: give the trainer the scheduler "
                "(scheduler=), which it steps once a lot"
            )

    def hand_in(self, losses: Tensor) -> None:
        """The losses of the batch that is out; raises if they show that something is wrong."""
        try:
            self._advance(losses)
        except (TrainingError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise TrainingError(
                f"the gradients of made-up rows could not be formed ({type(error).__name__}: "
                f"{error}): a part of the model or the loss does not work on a few rows, or on one "
                "(experts that choose among the rows of a batch, say, which mixes them), or in "
                "torch.func. Change that part, or freeze its parameters with requires_grad_(False)"
            ) from error

    def pass_over(self) -> None:
        """No losses of the batch that is out: they raised, as they may."""
        self._recorder.take()
        self._recorder.tape.clear()
        self._advance(None)

    def _advance(self, losses: Any) -> None:
        try:
            self._batch = self._rehearsal.send(losses)
        except StopIteration:
            self._batch = None
        self._expected = self._recorder.take()

    def _rates(self) -> list[Any]:
        return [group.get("lr") for group in self._optimizer.param_groups]
