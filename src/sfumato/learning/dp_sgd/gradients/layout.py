"""Where in a tensor the batch is: found once, on a batch of a telling size, then looked up.

Most tensors carry the batch first; sequences may carry it second; some models fold time into it.
A batch whose size is a prime that divides no other length shows which: the one dimension that this
prime divides. A tensor with no such dimension does not depend on the batch at all (positions,
derived weights).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AmbiguousLayout", "Layout", "by_unit", "find_layout", "rows_first", "telling_sizes"]


class AmbiguousLayout(Exception):  # noqa: N818
    """Two dimensions could be the batch: look again with another size."""


@dataclass(frozen=True)
class Layout:
    """The batch is dimension ``dim``, each row of it ``folded`` consecutive places long."""

    dim: int = 0
    folded: bool = False

    def holds(self, shape: Sequence[int], rows: int) -> bool:
        """Whether a tensor of ``shape`` can hold a batch of ``rows`` so."""
        if self.dim >= len(shape):
            return False
        size = shape[self.dim]
        return size % rows == 0 if self.folded and rows else size == rows


def find_layout(shape: Sequence[int], rows: int) -> Layout | None:
    """The layout of a tensor made from a batch of ``rows``, a telling size; None if unbatched.

    Raises:
        AmbiguousLayout: if ``rows`` divides two dimensions.
    """
    hits = [dim for dim, size in enumerate(shape) if size and size % rows == 0]
    if not hits:
        return None
    if len(hits) > 1:
        raise AmbiguousLayout(f"{rows} divides two dimensions of {tuple(shape)}")
    return Layout(hits[0], folded=shape[hits[0]] != rows)


def rows_first(tensor: Tensor, layout: Layout) -> Tensor:
    """The same tensor with its batch as the first dimension."""
    return tensor.movedim(layout.dim, 0) if layout.dim else tensor


def by_unit(tensor: Tensor, layout: Layout, units: int, features: int = 1) -> Tensor:
    """``tensor`` as (units, places, *features): its last ``features`` dimensions are kept."""
    first = rows_first(tensor, layout)
    kept = first.shape[first.ndim - features :] if features else torch.Size()
    if units:
        return first.reshape(units, -1, *kept)
    return first.reshape(0, 1, *kept)


def telling_sizes(lengths: Iterable[int], count: int = 6) -> list[int]:
    """The first ``count`` primes from 11 on that divide none of ``lengths``."""
    known = {length for length in lengths if length}
    found: list[int] = []
    candidate = 11
    while len(found) < count:
        is_prime = all(candidate % d for d in range(2, int(candidate**0.5) + 1))
        if is_prime and all(length % candidate for length in known):
            found.append(candidate)
        candidate += 2
    return found
