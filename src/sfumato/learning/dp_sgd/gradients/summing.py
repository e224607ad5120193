"""Sums over units whose rounding is bounded, whatever the units hold and however many there are.

A float32 sum of n contributions of length C may be off by about n^2 u C, u = 2^-24, and one unit
less changes how: rows can be made up by which a running sum then moves by several C (Casacuberta
et al., "Widespread underestimation of sensitivity in differentially private libraries and how to
fix it", arXiv:2207.10635). So sums are formed in float32 only within *blocks* of at most
:data:`TERMS` terms, which are whole units, and blocks are added in float64.

*Theorem.* Let contributions be at most c long. One unit more or less moves the sum of a lot of n
units by at most c (1 + :data:`MOVED` + n^2 2^-62) in float32, and by at most c (1 + 2^-29 + n^2
2^-62) where factors are float64. (The last term is what float64 loses in adding blocks:
:data:`ALLOWANCE` holds it up to four million units, and for float64 models up to 131,000.)

*Proof.* A lot's units stand in a secret uniformly random order, such that one unit more takes the
place of another, who goes to the end (:func:`~sfumato.learning.dp_sgd.draws.arrangement`); for
fixed coins of the others, all blocks but two hold the same units at the same places, hence the same
numbers. Of n terms added in any order, fused or not, the error is at most n u times the sum of
their absolute values (Jeannerod and Rump, "Improved error bounds for inner products in
floating-point arithmetic", 2013), coordinate by coordinate; as vectors, n u times the sum of the
terms' lengths. Terms of a block of b units:

* one of each unit (a gradient that is written out, or has one place): at most b c long in all.
* T places of each, which may cancel: S_u = sum_t |g_t| |x_t| may exceed a contribution's length.
  The norm that is clipped by is at least S_u / :func:`spread` for that reason, so that all terms
  together are at most b c spread long.

Either way a block's error is at most TERMS^2 u c. Adding up to FEW blocks in float32 before float64
takes over costs less than FEW^2 TERMS u c. Four such numbers take part: two blocks, each with and
without the unit. QED. (Where a lot keeps the table's order, one block differs; a replaced unit is
two steps.)

That is of contributions as they were computed. It takes for granted that a unit's own gradient is
the same, bit for bit, in batches that differ elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients.memory import in_place

__all__ = [
    "ALLOWANCE",
    "FEW",
    "MOVED",
    "SHORT",
    "TERMS",
    "added",
    "blocks",
    "product",
    "rows",
    "spread",
    "units_of",
    "weigh",
    "zero_rows",
]

TERMS = 256
"""The most terms that are added in float32 at a time."""

FEW = 4
"""Blocks that are added in float32 before float64 takes over."""

MOVED = 4 * TERMS * (TERMS + FEW**2) * 2.0**-24
"""What rounding may add to the distance of two sums, relatively: 0.0166."""

SHORT = 2**13
"""Units of a lot whose whole sum may be rounded to float32 before noise is added: 2^-10 at most."""

ALLOWANCE: Mapping[str, float] = {"float64": 2.0**-28, "float32": MOVED + 2.0**-10 + 2.0**-18}
"""What rounding in sums may add to a contribution, relatively, by the type of its numbers."""

_PLACES = 16  # from which units may cancel to a sixteenth, at least

_CACHE = 2**17  # numbers of a result at a time on a CPU: half a megabyte stays in a cache
_WIDE = 2**19  # numbers of a factor likewise
_AT_ONCE = 2**26  # numbers of all blocks' results elsewhere


def units_of(places: int) -> int:
    """How many units of so many places make a block; of few places fewer, see :func:`spread`."""
    places = max(1, places)
    terms = TERMS if places == 1 or places >= _PLACES else TERMS // 2
    return max(1, terms // places)


def spread(places: int, dtype: torch.dtype, whole: bool = False) -> float:
    """How many times longer than a contribution its terms may be together.

    It is 8 for two places and at least 16 for more than three; where places point anywhere, it
    would be about the root of their number. In float64 there is room for any.

    Args:
        places: of a unit, at least 1.
        dtype: in which they are added.
        whole: whether more than :data:`TERMS` places are added in one piece.
    """
    if dtype == torch.float64:
        return math.inf
    units, places = units_of(places), max(1, places)
    return TERMS**2 / (units * (units * places if whole else min(TERMS, units * places)))


def blocks(units: int, most: int = TERMS) -> Iterator[slice]:
    """Consecutive units, ``most`` of them but for the last."""
    for start in range(0, units, most):
        yield slice(start, min(start + most, units))


def weigh(tensor: Tensor, weights: Tensor) -> Tensor:
    """Each unit's numbers times its weight; exactly 0 where the weight is 0."""
    shaped = weights.to(tensor.dtype).view(-1, *(1,) * (tensor.ndim - 1))
    return torch.where(shaped == 0, torch.zeros((), dtype=tensor.dtype), tensor * shaped)


def zero_rows(tensor: Tensor, weights: Tensor, owned: bool) -> Tensor:
    """The same numbers, but 0 for units whose weight is 0; in place where the tensor is ours."""
    if owned and in_place(tensor):
        return tensor.index_fill_(0, (weights == 0).nonzero().flatten(), 0)
    shaped = weights.view(-1, *(1,) * (tensor.ndim - 1))
    return torch.where(shaped == 0, torch.zeros((), dtype=tensor.dtype), tensor)


def added(parts: Iterable[Tensor]) -> Tensor | None:
    """The sum of blocks' sums, in float64; None of nothing."""
    total: Tensor | None = None
    some: Tensor | None = None
    for number, part in enumerate(parts):
        if number % FEW == 0 and some is not None:
            total = _with(total, some)
            some = None
        some = part if some is None else some + part
    return total if some is None else _with(total, some)


def _with(total: Tensor | None, some: Tensor) -> Tensor:
    return some.double() if total is None else total + some


def rows(flat: Tensor, weights: Tensor, most: int = TERMS) -> Tensor:
    """(columns,) in float64: the sum over units of weight times row, of (units, columns)."""
    if not flat.numel():
        return flat.new_zeros(flat.shape[1], dtype=torch.float64)
    if not in_place(flat):  # all blocks in one launch
        return _small(weights.to(flat.dtype).view(-1, 1, 1), flat.unsqueeze(1), most)[0]
    found = added(weights[b].to(flat.dtype) @ flat[b] for b in blocks(len(flat), most))
    assert found is not None
    return found


def product(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """(rows, columns) in float64: the sum over units and places of weight times left right^T.

    On a CPU some units at a time: their copies stay in a cache, where a copy of all would cost more
    than the product.

    Args:
        left: (units, places, rows), which is weighted.
        right: (units, places, columns), of which units without weight are blanked.
        weights: (units,).
    """
    units, places, tall = left.shape
    wide = right.shape[2]
    total = left.new_zeros((tall, wide), dtype=torch.float64)
    if not left.numel() or not right.numel():
        return total
    most, results = units_of(places), tall * wide
    by_hand = in_place(left) and results > _CACHE // 4
    if by_hand:
        many = min(FEW, max(1, _WIDE // (most * places * wide))) * most
    else:
        many = max(1, (_CACHE if in_place(left) else _AT_ONCE) // results) * most
    for group in blocks(units, many):
        one = weigh(left[group], weights[group])
        two = zero_rows(right[group], weights[group], owned=False)
        for start in range(0, places, TERMS):
            ours, theirs = one[:, start : start + TERMS], two[:, start : start + TERMS]
            if by_hand:
                _add_large(total, ours.flatten(0, 1), theirs.flatten(0, 1), most * ours.shape[1])
            else:
                total = total + _small(ours, theirs, most)
    return total


def _small(left: Tensor, right: Tensor, most: int) -> Tensor:
    """Blocks' products side by side."""
    units = len(left)
    even = units - units % most
    found: list[Tensor] = []
    if even:
        one, two = (f[:even].reshape(even // most, -1, f.shape[2]) for f in (left, right))
        found.append(torch.bmm(one.mT, two).sum(0, dtype=torch.float64))
    if even < units:
        found.append((left[even:].flatten(0, 1).mT @ right[even:].flatten(0, 1)).double())
    return found[0] if len(found) == 1 else found[0] + found[1]


def _add_large(total: Tensor, left: Tensor, right: Tensor, terms: int) -> None:
    """A few blocks' products, tile by tile of the result, which stays in a cache; in place."""
    tall, wide = total.shape
    height = max(64, _CACHE // wide)
    spare = left.new_empty((min(height, tall), wide))
    for top in range(0, tall, height):
        tile = left[:, top : top + height]
        first: Tensor | None = None
        for block in blocks(len(left), terms):
            if first is None:
                first = tile[block].mT @ right[block]
            else:
                first += torch.mm(tile[block].mT, right[block], out=spare[: tile.shape[1]])
        assert first is not None
        total[top : top + height] += first
