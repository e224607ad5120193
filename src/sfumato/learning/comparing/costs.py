"""What the runs of a comparison cost together.

Every run is a release from the same records. If all are published, or if one of them is *chosen* by
how well they did, all of them count: the choice depends on each. By basic composition their
epsilons and deltas add up (Dwork and Roth, "The Algorithmic Foundations of Differential Privacy",
2014, theorem 3.16), which holds whatever the runs are; a ledger may find less.

Guarantees of different units or relations are not added: they are about different neighbours. Where
all are to be covered by one, add/remove counts twice towards a replacement
(:meth:`~sfumato.core.guarantee.Guarantee.under`), and what protects a record protects its label.

    >>> from sfumato.core.guarantee import Guarantee
    >>> runs = [Guarantee(1.0, 1e-5, "add-remove"), Guarantee(2.0, 1e-5, "add-remove")]
    >>> print(costs_of(runs)[0])
    epsilon 3, delta 2e-05, add or remove one record (2 runs)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

__all__ = ["Cost", "costs_of"]

_LABEL = "label"
_ALMOST_ONE = math.nextafter(1.0, 0.0)


@final
@dataclass(frozen=True)
class Cost:
    """What some runs promise together.

    Attributes:
        guarantee: of all of them.
        runs: how many.
        in_all: whether runs of several relations are in it, all as replacements.
    """

    guarantee: Guarantee
    runs: int
    in_all: bool = False

    def __str__(self) -> str:
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        return f"{self.guarantee} ({runs}{' in all' if self.in_all else ''})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return self.guarantee.to_dict() | {"runs": self.runs, "in_all": self.in_all}


def costs_of(promised: Iterable[Guarantee]) -> tuple[Cost, ...]:
    """The sums, one for each unit and relation; runs without privacy promise nothing.

    Where a unit has two relations, the last of its sums is of all its runs, as replacements; and
    where labels have runs of their own, the last of all is what everything tells of a label.
    """
    kinds: dict[str, dict[Neighbours, list[Guarantee]]] = {}
    for one in promised:
        if math.isfinite(one.epsilon):
            kinds.setdefault(one.unit, {}).setdefault(one.neighbours, []).append(one)
    found: list[Cost] = []
    for relations in kinds.values():
        found += [_sum(several) for several in relations.values()]
        if len(relations) > 1:
            every = [one for several in relations.values() for one in several]
            found.append(_sum([one.under(Neighbours.REPLACE_ONE) for one in every], in_all=True))
    if (labels := kinds.pop(_LABEL, None)) and kinds:
        others = [one for unit in kinds.values() for several in unit.values() for one in several]
        every = [*labels[Neighbours.REPLACE_ONE], *others]
        found.append(_sum([one.under(Neighbours.REPLACE_ONE) for one in every], in_all=True))
    return tuple(found)


def _sum(several: list[Guarantee], in_all: bool = False) -> Cost:
    first = several[0]
    epsilon = math.fsum(one.epsilon for one in several)
    delta = min(math.fsum(one.delta for one in several), _ALMOST_ONE)
    made = Guarantee(epsilon, delta, first.neighbours, first.unit, "basic")
    return Cost(made, len(several), in_all)
