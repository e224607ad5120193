"""Company that made-up rows do not have: numbers of other sizes, missing ones, infinite ones.

Made-up numbers are standard normal, zeros and ones. Much mixing sets in with others: a scale by the
batch's largest whole number, missing values that become the mean of the column, a batch that is
left out because one loss is infinite, a mean number of labels that are not -100. So of three units
one or two get such numbers, and the losses and gradients of those that stay must stay, too.

A row of such numbers may have no loss: a token beyond the vocabulary. In
:meth:`~sfumato.learning.dp_sgd.looping.Loop.fit` such rows are left out, so that a trial that
raises there says nothing. Elsewhere nobody could catch the error, and on a GPU nobody at all: there
whole numbers are tried only as far as what is known of where they are looked up
(:mod:`~sfumato.learning.dp_sgd.lookups`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.lookups import Looked
from sfumato.learning.dp_sgd.made_up import MARKS, WHOLE, with_holes

__all__ = ["Strangers", "companies_of_classes", "strangers"]

_ALONE = 4  # so many parts are tried one by one
_BEYOND = 30_000  # of most tables
_CLASSES = 64


class Strangers(NamedTuple):
    """Three units, some of them strange.

    Attributes:
        batch: their rows.
        units: those that must stay as they are in ``usual``.
        usual: the same units in other company; None for the usual batch.
    """

    batch: Any
    units: tuple[int, ...]
    usual: Any = None


def strangers(
    batch: Any, copies: int, looked: Mapping[int, Looked], caught: bool
) -> Iterator[Strangers]:
    """What is tried.

    Args:
        batch: the usual one, of three units.
        copies: rows of one unit.
        looked: what is known of the batch's parts by their numbers.
        caught: whether a row that has no loss is left out, so that every number can be tried.
    """
    leaves, spec = pytree.tree_flatten(batch)

    def known(number: int) -> Looked:
        return looked.get(number, Looked(at=True, top=-1))

    def made(changed: Mapping[int, Tensor]) -> Any:
        return pytree.tree_unflatten([changed.get(i, e) for i, e in enumerate(leaves)], spec)

    points = [
        i for i, leaf in enumerate(leaves)
        if leaf.is_floating_point() and (caught or not known(i).at)
    ]  # fmt: skip
    if points:
        far = {i: _with(leaves[i], 0, copies, _large(leaves[i].dtype)) for i in points}
        yield Strangers(made({i: _with(far[i], 1, copies, math.inf) for i in points}), (2,))
    for group in _groups(points):
        for hole in (math.nan, math.inf, -math.inf):
            held = {i: _holed_behind(leaves[i], copies, hole) for i in group}
            other = math.inf if hole != math.inf else None
            yield Strangers(
                made({
                    i: _with(leaf, 0, copies, other or _large(leaf.dtype))
                    for i, leaf in held.items()
                }),
                (1, 2),
                made(held),
            )  # fmt: skip
        marks = [*dict.fromkeys((*MARKS, *(m for i in group for m in known(i).marks if m)))]
        for shift in range(0, len(marks), 2):
            held = {i: _marked_behind(leaves[i], copies, marks, shift) for i in group}
            far = {i: _with(leaf, 0, copies, math.inf) for i, leaf in held.items()}
            yield Strangers(made(far), (1, 2), made(held))
    whole = [i for i, leaf in enumerate(leaves) if _is_whole(leaf)]
    several = {i: _several(leaves[i], i, known(i), caught) for i in whole}
    if any(found is not leaves[i] for i, found in several.items()):
        for unit in range(3):  # beside two others, and beside its like
            alike = {i: _all_like(leaf, unit, copies) for i, leaf in several.items()}
            rest = {i: _all_like(leaf, unit, copies) for i, leaf in enumerate(leaves)}
            yield Strangers(made(rest | alike), (unit,), made(several))
    for group in _groups(whole):
        any_number = caught and not any(known(i).unchecked for i in group)
        for value in _values([known(i) for i in group], any_number):
            changed = {
                i: _with(leaves[i], 0, copies, _within(value, leaves[i].dtype)) for i in group
            }
            yield Strangers(made(changed), (1, 2))
        if any_number or all(known(i).takes(2) for i in group):
            raised = {i: _raised(leaves[i]) for i in group}
            least = {i: _with(leaf, 0, copies, 0) for i, leaf in raised.items()}
            yield Strangers(made(least), (1, 2), made(raised))
    for i in whole:
        for value in known(i).compared:
            fits = _within(value, leaves[i].dtype) == value and value not in (0, 1)
            tried = (caught and not known(i).unchecked) or known(i).takes(value)
            if fits and leaves[i].ndim > 1 and tried:
                ending, full = _padded(leaves[i], copies, value)
                yield Strangers(made({i: full}), (1, 2), made({i: ending}))
    for i in points:
        for value in (*MARKS[:1], *known(i).marks) if leaves[i].ndim > 1 else ():
            ending, full = _padded(leaves[i], copies, value)
            yield Strangers(made({i: full}), (1, 2), made({i: ending}))


def companies_of_classes(
    company: Any, copies: int, looked: Mapping[int, Looked], caught: bool
) -> Iterator[Any]:
    """The same rows with all classes in turn, and with one of the rarer ones in ten rows.

    Weights by how often a class comes, and hard examples that are chosen among all, depend on what
    classes the rest of a whole batch has.

    Args:
        company: a large batch of units.
        copies: rows of one unit.
        looked: what is known of the batch's parts by their numbers.
        caught: whether a batch that has no loss is left out.
    """
    leaves, spec = pytree.tree_flatten(company)
    classes = {
        i: found
        for i, leaf in enumerate(leaves)
        if (found := _classes_of(leaf, looked.get(i, Looked(at=True, top=-1)), caught))
    }
    marked = any(extra for _, extra in classes.values())
    for tenth, more in ((False, False), (True, False), (False, True))[: 2 + marked] * bool(classes):
        changed = list[Tensor]()
        for i, leaf in enumerate(leaves):
            if i not in classes:
                changed.append(leaf)
                continue
            unit = torch.arange(len(leaf), device=leaf.device) // copies
            usual, extra = classes[i]
            values = torch.tensor(usual + extra * more, device=leaf.device).to(leaf.dtype)
            turn = (unit % 10 == 0) * (1 + unit // 10) if tenth else unit
            chosen = values[turn % len(values)]
            changed.append(chosen.reshape(-1, *[1] * (leaf.ndim - 1)).expand_as(leaf).clone())
        yield pytree.tree_unflatten(changed, spec)


def _classes_of(
    leaf: Tensor, known: Looked, caught: bool
) -> tuple[list[float], list[float]] | None:
    """Numbers that stand for classes, and such as stand for none; None where there are none."""
    if leaf.ndim > 1 or leaf.is_complex():
        return None
    if leaf.is_floating_point():
        return [0.0, 1.0], [mark for mark in known.marks if mark not in (0, 1)]
    if leaf.dtype == torch.bool:
        return [0, 1], []
    top = known.top if known.at and known.itself and known.top is not None else 9
    whole = [*range(min(max(top, 0) + 1, _CLASSES))], [v for v in known.compared if v not in (0, 1)]
    any_number = caught and known.itself and not known.unchecked
    usual, extra = ([float(v) for v in values if any_number or known.takes(v)] for values in whole)
    return (usual, extra) if usual else None


def _several(leaf: Tensor, number: int, known: Looked, caught: bool) -> Tensor:
    """Another number for each row and place: zeros and ones may make all rows alike."""
    top = known.top if known.at and known.itself and known.top is not None else 9
    any_number = caught and not known.unchecked
    values = [v for v in range(min(max(top, 0) + 1, _CLASSES)) if any_number or known.takes(v)]
    if len(values) < 3 or not leaf.numel():
        return leaf
    row = torch.arange(len(leaf), device=leaf.device)[:, None]
    place = torch.arange(leaf[0].numel(), device=leaf.device)[None, :]
    turn = row + place * (row + 2) + place * place // 3 + number
    chosen = torch.tensor(values, device=leaf.device)[turn % len(values)]
    return chosen.reshape(leaf.shape).to(leaf.dtype)


def _all_like(leaf: Tensor, unit: int, copies: int) -> Tensor:
    """The rows of one unit in the place of the others'."""
    one = leaf[unit * copies : (unit + 1) * copies]
    return torch.cat([one] * (len(leaf) // copies))


def _values(group: list[Looked], caught: bool) -> list[int]:
    """Whole numbers to try in the place of zeros and ones."""
    compared = [value for looked in group for value in looked.compared]
    tops = [looked.top for looked in group if looked.at and looked.top is not None]
    top = min(tops, default=-1)
    known = all(looked.itself for looked in group) and top >= 0
    if caught:
        usual = [2, top, _BEYOND] if known else [*WHOLE]
        found = [v for v in (*usual, *compared) if v != top or top >= 0]
    else:
        found = [v for v in (*WHOLE, top, *compared) if all(looked.takes(v) for looked in group)]
        if tops:  # as all others between are alike
            found = [v for v in found if v in (2, top, *compared)]
    return [v for v in dict.fromkeys(found) if v not in (0, 1)]


def _groups(parts: list[int]) -> list[list[int]]:
    """Parts that are changed together: each alone, or, of many, any two apart at least once.

    A part whose missing numbers make every loss NaN, as a label's do, would hide all others.
    """
    if len(parts) <= _ALONE:
        return [[part] for part in parts]
    found = list[list[int]]()
    for bit in range((len(parts) - 1).bit_length()):
        for side in (0, 1):
            found.append([part for i, part in enumerate(parts) if i >> bit & 1 == side])
    return [group for group in found if group]


def _with(leaf: Tensor, unit: int, copies: int, value: float) -> Tensor:
    changed = leaf.clone()
    changed[unit * copies : (unit + 1) * copies] = value
    return changed


def _raised(leaf: Tensor) -> Tensor:
    """Ones and twos, in case code begins to count at the batch's smallest."""
    return leaf + (leaf < 2).to(leaf.dtype)


def _holed_behind(leaf: Tensor, copies: int, hole: float) -> Tensor:
    """With holes in all units but the first."""
    changed = with_holes(leaf, hole)
    changed[:copies] = leaf[:copies]
    return changed


def _marked_behind(leaf: Tensor, copies: int, marks: list[float], shift: int) -> Tensor:
    """With marks in all units but the first: another in each column, so that all take turns."""
    changed = leaf.clone().reshape(len(leaf), -1)
    turn = torch.arange(changed.shape[1], device=leaf.device)
    values = torch.tensor(marks, dtype=leaf.dtype, device=leaf.device)
    changed[copies : 2 * copies] = values[(turn + shift) % len(marks)]
    changed[2 * copies :] = values[(turn + shift + 1) % len(marks)]
    return changed.reshape(leaf.shape)


def _padded(leaf: Tensor, copies: int, value: float) -> tuple[Tensor, Tensor]:
    """Rows that end in ``value``, and the same but for the first unit, which is full."""
    ending = leaf.clone()
    ending[:, max(1, ending.shape[1] // 2) :] = value
    full = ending.clone()
    full[:copies] = leaf[:copies]
    return ending, full


def _large(dtype: torch.dtype) -> float:
    """Whose square overflows."""
    return math.sqrt(torch.finfo(dtype).max) * 1e4 if dtype != torch.float16 else 6e4


def _within(value: int, dtype: torch.dtype) -> int:
    limits = torch.iinfo(dtype)
    return max(limits.min, min(limits.max, value))


def _is_whole(leaf: Tensor) -> bool:
    return not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool)
