"""Whether what one rank computes depends on what another has: found out on made-up rows.

A unit is clipped on the rank that has it, so that the sum over ranks moves by at most C with it.
That needs other ranks' losses and gradients to be no function of its rows; a model or a loss that
talks to other ranks by itself (an ``all_reduce`` of activations, a contrastive loss over gathered
features) breaks it, and each of W ranks may then move by up to 2 C for every unit that it has.

As long as all ranks play the same rows, none of that shows. So some ranks, the *strangers* of a
turn, get other rows: NaN for every number, other whole numbers. The rest play the rows of before,
and must find what they found then. For each bit of ranks' numbers the strangers are once those
who have it and once those who have it not: 2 ceil(log2 W) turns, in which each rank is a stranger
to each other one at least once.

    >>> [casts(rank, 3) for rank in range(3)]
    [[True, False, True, False], [False, True, True, False], [True, False, False, True]]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["casts", "strange"]


def casts(rank: int, count: int) -> list[bool]:
    """For each turn whether ``rank`` is a stranger in it; as many turns on every rank."""
    bits = range((count - 1).bit_length())
    return [(rank >> bit) & 1 == value for bit in bits for value in (0, 1)]


def strange(batch: Any) -> Any:
    """Other rows of the same shapes; whole numbers stay among those that their column has.

    Those of made-up rows, which are 0 or 1, are turned round.
    """
    return pytree.tree_map(_other, batch)


def _other(leaf: Tensor) -> Tensor:
    if leaf.is_floating_point() or leaf.is_complex():
        return torch.full_like(leaf, torch.nan)
    if leaf.dtype == torch.bool:
        return ~leaf
    if not leaf.numel():
        return leaf
    if int(leaf.min()) >= 0 and int(leaf.max()) <= 1:
        return 1 - leaf
    return leaf.amin(0).expand_as(leaf).clone()
