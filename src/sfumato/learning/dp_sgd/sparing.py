"""Rows whose loss cannot be computed: they contribute nothing, and no error tells.

A label that is no class, a token beyond the vocabulary, a date that a loss cannot read: the loss of
such a row raises. Made-up rows went through the same loss in the rehearsal, so what raises is the
row. When a batch fails in :meth:`~sfumato.learning.dp_sgd.trainer.DPSGD.fit`, each of its rows is
tried by itself; those that fail get weight 0, another row stands in for them, and the batch runs
again. So a row is left out or not for what it is itself, whatever its company, and one row more or
less still moves a sum by at most C.

If made-up rows fail as well, or no row does by itself, the program is at fault (memory ran out, a
file is gone), and its error is raised. A GPU's own assertions end the process's use of that GPU:
there, let the loss look after labels (``ignore_index``), or check them when the data is loaded. In
a loop of one's own nobody else can catch what the loss raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

__all__ = ["failing_rows", "taken_from", "values_of"]

Loss = Callable[..., Tensor]


def values_of(batch: Any) -> tuple[Any, ...]:
    """What a loss is called with, besides the model."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def taken_from(batch: Any, rows: NDArray[np.int64]) -> Any:
    """These rows of a batch."""

    def take(leaf: Any) -> Any:
        return leaf[torch.from_numpy(rows).to(leaf.device)] if isinstance(leaf, Tensor) else leaf

    return pytree.tree_map(take, batch)


def failing_rows(
    model: nn.Module, loss: Loss, made_up: Any, alone: Callable[[int], Any], rows: int, copies: int
) -> NDArray[np.bool_] | None:
    """Which rows of a batch have no loss by themselves; None if the program is at fault.

    Args:
        model: whose loss it is.
        loss: ``loss(model, *batch)``.
        made_up: a batch of ``copies`` made-up rows.
        alone: a batch of ``copies`` times the row of this number.
        rows: how many there are.
        copies: rows of a unit: as many as the rehearsal tried by themselves.
    """

    def fails(make: Callable[[], Any]) -> bool:
        try:
            losses = loss(model, *values_of(make()))
        except Exception:  # whatever a private row makes the user's code do
            return True
        return not isinstance(losses, Tensor) or losses.shape != (copies,)

    if fails(lambda: made_up):
        return None
    found = np.array([fails(lambda i=i: alone(i)) for i in range(rows)], dtype=bool)
    return found if found.any() else None
