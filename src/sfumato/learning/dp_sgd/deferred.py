"""Rows that do not exist yet: made when the first lot is read, after the run was charged.

Features may have to be fitted on the private rows themselves (a private PCA), or take minutes to
compute. Both belong after the rehearsal and after the charge: a run that is refused has then read
nothing, and what the fit releases is paid for before it is drawn.

    >>> rows = Deferred(lambda: (torch.ones(100, 3),), like=(torch.empty(0, 3),), rows=100)
    >>> len(rows), rows.is_made
    (100, False)
    >>> rows.made()[0].shape
    torch.Size([100, 3])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch

from sfumato.core import validation
from sfumato.learning.dp_sgd.structure import common_length, require_same_structure

__all__ = ["Deferred"]


@final
class Deferred:
    """Data for a trainer, to be made by the first lot that is read.

    Args:
        make: makes the tensors or arrays; called once, in the trainer's process. If it fails it is
            not called again: what it releases may have been drawn, and a second draw is not paid.
        like: what they will look like: the same structure, shapes after the first dimension and
            types, with any number of rows, which are not looked at.
        rows: how many there will be.
    """

    def __init__(self, make: Callable[[], Any], like: Any, rows: int) -> None:
        common_length(like, "like")
        self.like, self._rows = like, validation.at_least("rows", rows, 0)
        self._make: Callable[[], Any] | None = make
        self._made: Any = None
        self._is_made = False

    def __len__(self) -> int:
        return self._rows

    @property
    def is_made(self) -> bool:
        """Whether the rows exist."""
        return self._is_made

    @torch.no_grad()
    def made(self) -> Any:
        """The rows; the first call makes them.

        Raises:
            ValueError: if they are not as was announced, or could not be made before.
        """
        if not self._is_made:
            make, self._make = self._make, None
            if make is None:
                raise ValueError(
                    "the rows could not be made, and are not made again, as what was released for "
                    "them is paid once: resume the run from its checkpoints"
                )
            made = make()
            require_same_structure(self.like, made, "what make() returns", "like")
            if common_length(made, "made") != self._rows:  # by how many is the data's secret
                raise ValueError("make() must return as many rows as were announced")
            self._made, self._is_made = made, True
        return self._made
