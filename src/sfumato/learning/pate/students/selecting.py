"""Which public inputs to ask the teachers about, chosen without any label.

==============  ====================================================================================
``random``      each input as likely as any other
``spread``      k-means++: each next one with probability in proportion to its squared distance from
                the nearest chosen
``centres``     greedy k-centres: each next one the farthest from all chosen
``typical``     k-means from that start, then the input nearest to each mean: few are odd ones, of
                which teachers would disagree
``uncertain``   those of which a student, trained on earlier answers, is least sure
==============  ====================================================================================

Guarantee: inputs are public and a student's own predictions are post-processing of released labels,
so the choice costs nothing. Every choice is the same for the same seed. Which inputs are asked must
not depend on private rows by any other way.

References: Arthur and Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007;
Sener and Savarese, "Active learning for convolutional neural networks: a core-set approach",
arXiv:1708.00489; Settles, "Active learning literature survey", 2009, section 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.pate.students.data import as_inputs
from sfumato.learning.pate.students.predicting import logits_of

__all__ = [
    "choose",
    "choose_centres",
    "choose_random",
    "choose_spread",
    "choose_typical",
    "choose_uncertain",
]

_LLOYD = 15  # times that means are taken


def choose(
    name: str, count: int, inputs: Tensor | NDArray[Any], *, asked: Tensor | None = None,
    seed: int = 0,
) -> Tensor:  # fmt: skip
    """The choice called ``name``: "random", "spread", "centres" or "typical".

    Args:
        name: of the rule.
        count: how many to choose.
        inputs: (n, *shape), public inputs or public features of them, one a row.
        asked: numbers of rows that were asked about before; they are not chosen again, and count
            as chosen for what is far.
        seed: public.

    Returns:
        Numbers of rows, (count,), in the order in which to ask.
    """
    if name not in _RULES:
        validation.fail("rule", f"one of {', '.join(_RULES)}", name)
    return _RULES[name](count, inputs, asked=asked, seed=seed)


def choose_random(
    count: int, inputs: Tensor | NDArray[Any], *, asked: Tensor | None = None, seed: int = 0
) -> Tensor:
    """Without replacement, all as likely.

    >>> choose_random(3, torch.zeros(3, 1), seed=0).sort().values
    tensor([0, 1, 2])
    """
    rows, before = _checked(count, inputs, asked)
    free = torch.ones(len(rows), dtype=torch.bool)
    free[before] = False
    left = free.nonzero().squeeze(1)
    return left[torch.randperm(len(left), generator=_coins(seed))[:count]]


def choose_spread(
    count: int, inputs: Tensor | NDArray[Any], *, asked: Tensor | None = None, seed: int = 0
) -> Tensor:
    """k-means++: far from what is chosen, at random."""

    def draw(distances: Tensor, free: Tensor, coins: torch.Generator) -> int:
        weights = torch.where(free, distances, 0.0).double()
        # Where all that is left is a copy of what is chosen, any of it.
        weights = weights if float(weights.sum()) > 0 else free.double()
        sums = weights.cumsum(0)
        drawn = torch.rand((), generator=coins, dtype=torch.float64) * sums[-1]
        place = int(torch.searchsorted(sums, drawn, right=True))
        last = int(weights.nonzero()[-1])
        return min(place, last)

    return _one_by_one(count, inputs, asked, seed, draw)


def choose_centres(
    count: int, inputs: Tensor | NDArray[Any], *, asked: Tensor | None = None, seed: int = 0
) -> Tensor:
    """Greedy k-centres: the largest distance to a chosen row is at most twice the least possible.

    The first is drawn at random.
    """

    def draw(distances: Tensor, free: Tensor, coins: torch.Generator) -> int:
        return int(torch.where(free, distances, -1.0).argmax())

    return _one_by_one(count, inputs, asked, seed, draw)


def choose_typical(
    count: int, inputs: Tensor | NDArray[Any], *, asked: Tensor | None = None, seed: int = 0
) -> Tensor:
    """k-means among what was not asked yet, then the input nearest to each mean, none twice.

    >>> choose_typical(2, torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])).sort().values
    tensor([1, 4])
    """
    rows, before = _checked(count, inputs, asked)
    left = choose_random(len(rows) - len(before), rows, asked=before, seed=seed).sort().values
    rows = rows[left].flatten(1)
    means = rows[choose_spread(count, rows, seed=seed)]
    for _ in range(_LLOYD):
        nearest = _squared(rows, means).argmin(1)
        sums = torch.zeros_like(means).index_add_(0, nearest, rows)
        sizes = nearest.bincount(minlength=count).unsqueeze(1)
        means = torch.where(sizes > 0, sums / sizes.clamp_min(1), means)
    distances = rows.square().sum(1, keepdim=True) + _squared(rows, means)
    chosen: list[int] = []
    for column in range(count):
        chosen.append(int(distances[:, column].argmin()))
        distances[chosen[-1]] = torch.inf
    return left[chosen]


def choose_uncertain(
    count: int,
    inputs: Tensor | NDArray[Any],
    student: nn.Module,
    *,
    asked: Tensor | None = None,
    pool: int | None = None,
    seed: int = 0,
) -> Tensor:
    """The inputs with the least difference between a student's two most probable classes.

    Args:
        count: how many to choose.
        inputs: (n, *shape), public, as the student takes them.
        student: from inputs to logits, as :meth:`Student.fit` returns it.
        asked: numbers of rows that were asked about before; they are not chosen again.
        pool: choose among so many rows drawn at random; among all by default. The least certain
            inputs are alike, and often such that teachers disagree: a smaller pool varies them.
        seed: of the pool. Public.
    """
    rows, before = _checked(count, inputs, asked)
    left = len(rows) - len(before)
    size = left if pool is None else min(left, validation.at_least("pool", pool, count))
    drawn = choose_random(size, rows, asked=before, seed=seed)
    two = logits_of(student, rows[drawn]).softmax(1).topk(2, dim=1).values
    return drawn[(two[:, 0] - two[:, 1]).argsort(stable=True)[:count]]


_RULES: dict[str, Callable[..., Tensor]] = {
    "random": choose_random,
    "spread": choose_spread,
    "centres": choose_centres,
    "typical": choose_typical,
}


def _one_by_one(
    count: int,
    inputs: Tensor | NDArray[Any],
    asked: Tensor | None,
    seed: int,
    draw: Callable[[Tensor, Tensor, torch.Generator], int],
) -> Tensor:
    """Chooses a row after another from their squared distances to the nearest chosen one."""
    rows, before = _checked(count, inputs, asked)
    rows, coins = rows.flatten(1), _coins(seed)
    distances = torch.full((len(rows),), torch.inf)
    free = torch.ones(len(rows), dtype=torch.bool)

    def mark(row: int) -> None:
        free[row] = False
        torch.minimum(distances, (rows - rows[row]).square().sum(1), out=distances)

    for row in before.tolist():
        mark(row)
    chosen: list[int] = []
    for _ in range(count):
        nothing_yet = bool(free.all())
        anywhere = int(torch.randint(len(rows), (), generator=coins))
        chosen.append(anywhere if nothing_yet else draw(distances, free, coins))
        mark(chosen[-1])
    return torch.tensor(chosen, dtype=torch.int64)


def _squared(rows: Tensor, means: Tensor) -> Tensor:
    """Squared distances, up to a number for each row."""
    return means.square().sum(1) - 2 * rows @ means.T


def _checked(
    count: int, inputs: Tensor | NDArray[Any], asked: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows = as_inputs("inputs", inputs).cpu()
    none = torch.empty(0, dtype=torch.int64)
    before = none if asked is None else torch.as_tensor(asked, dtype=torch.int64).cpu().unique()
    if len(before) and not 0 <= int(before.min()) <= int(before.max()) < len(rows):
        validation.fail("asked", f"numbers of rows, from 0 to {len(rows) - 1}", before.tolist())
    left = len(rows) - len(before)
    if validation.count("count", count) > left:
        validation.fail("count", f"at most the {left} inputs not asked about yet", count)
    return rows, before


def _coins(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(validation.at_least("seed", seed, 0))
