"""The rows of some teachers, part by part, as their models are fed with them.

What stands before a model (scattering, scaling) works on each row alone, and the parts are
disjoint, so every row is computed once. Each part is computed by itself, in batches of one public
shape that are filled up with zeros. In exact arithmetic that would not matter; in floating point
the last bits of a product may depend on the shape of a batch and on a row's place in it, and a row
that moved others into another batch would change other teachers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.learning.features import transform

__all__ = ["FiniteFeatures", "LaidOut"]

_ROWS = 128  # of one batch, whatever the part's size


@final
class FiniteFeatures(nn.Module):
    """What models are fed with, from rows as they come; what is not finite becomes 0.

    Args:
        prepare: from a batch of float rows to features, each row by itself; None for the rows.
    """

    def __init__(self, prepare: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.prepare = prepare

    def forward(self, rows: Tensor) -> Tensor:
        """One row of features for each row."""
        rows = rows.float()
        found = rows if self.prepare is None else self.prepare(rows)
        return torch.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0)


@final
class LaidOut:
    """The features and labels of some teachers' rows on a device.

    A teacher without rows has a row of zeros, which never counts.

    Args:
        inputs: all rows of the table.
        labels: their classes.
        parts: the numbers of each teacher's rows.
        features: what the models are fed with, on the device of the models.
    """

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        parts: list[NDArray[np.int64]],
        features: nn.Module,
        device: torch.device,
    ) -> None:
        self.sizes = [len(part) for part in parts]
        places = [max(1, -(-size // _ROWS)) * _ROWS for size in self.sizes]
        self._starts = torch.tensor(np.cumsum([0, *places[:-1]]), device=device)
        self._known = torch.tensor([size > 0 for size in self.sizes], device=device)
        raw = inputs.new_zeros((sum(places), *inputs.shape[1:]))
        wanted = torch.zeros(len(raw), dtype=torch.int64)
        for start, part in zip(self._starts.tolist(), parts, strict=True):
            own = torch.from_numpy(part)
            raw[start : start + len(part)] = inputs[own]
            wanted[start : start + len(part)] = labels[own]
        self._features = transform(features, raw, batch=_ROWS).to(device)
        self._labels = wanted.to(device)

    def batch(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, labels and marks of rows that count, by places in parts (teachers, batch)."""
        rows = self._starts[:, None] + places
        counted = self._known[:, None].expand(rows.shape).to(self._features.dtype)
        return self._features[rows], self._labels[rows], counted
