"""What a function with a declared sensitivity is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.sensitivity.values import Vector

__all__ = ["DeclaredFunction", "scalar_sensitivity"]


class DeclaredFunction(Protocol):
    """A function of a table that knows how far one neighbour step can move it."""

    def __call__(self, data: Iterable[Any], /) -> np.float64 | Vector:
        """The function's value on ``data``, a sequence of rows."""
        ...

    def sensitivity(
        self, neighbours: Neighbours | str = ..., norm: Norm | str | None = ...
    ) -> Sensitivity:
        """The declared bound for a relation, in a norm."""
        ...


def scalar_sensitivity(
    neighbours: Neighbours | str,
    norm: Norm | str | None,
    *,
    add_remove: float,
    replace_one: float,
    zero_out: float,
) -> Sensitivity:
    """One of three bounds on a single number, for which all norms agree."""
    relation = Neighbours.parse(neighbours)
    bound = {
        Neighbours.ADD_REMOVE: add_remove,
        Neighbours.REPLACE_ONE: replace_one,
        Neighbours.ZERO_OUT: zero_out,
    }[relation]
    return Sensitivity(bound, validation.choice("norm", norm or Norm.L1, Norm), relation)
