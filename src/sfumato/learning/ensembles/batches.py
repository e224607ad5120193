"""The batches of one epoch: for each model its own rows, in its own order."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["derived_seed", "epoch_rows", "steps_per_epoch"]


def derived_seed(*numbers: int) -> int:
    """A seed of its own for each sequence of numbers, the same on every machine."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def steps_per_epoch(longest: int, batch_size: int) -> int:
    """Steps in which the model with the most rows sees all of them."""
    return math.ceil(longest / batch_size)


def epoch_rows(rows: Tensor, batch_size: int, generator: torch.Generator) -> Tensor:
    """Numbers of rows, (steps, models, batch): each model's own, once each, shuffled.

    Models with fewer rows than others have their steps first, then -1. The last batch of a model
    may be smaller, filled up with -1.

    Args:
        rows: (models, longest), filled up with -1.
        batch_size: of one model.
        generator: on the CPU, whatever the device of ``rows``: orders are the same everywhere.
    """
    models, longest = rows.shape
    keys = torch.rand(rows.shape, generator=generator).to(rows.device)
    order = keys.masked_fill_(rows < 0, 2.0).argsort(dim=1, stable=True)
    steps = steps_per_epoch(longest, batch_size)
    filled = rows.new_full((models, steps * batch_size), -1)
    filled[:, :longest] = rows.gather(1, order)
    return filled.view(models, steps, batch_size).transpose(0, 1)
