"""Groups of models spread over ranks: each trains some, the folder gathers them.

Models of an ensemble know nothing of each other, so ranks need not talk while they train: rank r
takes groups r, r + W, r + 2W, ... Each finished group is a file in the folder, which all ranks
share; at the end every rank reads all of them. What a model becomes depends on its group's number
and size, not on who trains it: give ``together`` to be free to change the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from sfumato.learning.dp_sgd.distributed.agreement import require_all_well, telling
from sfumato.learning.dp_sgd.distributed.ranks import Alone, Ranks
from sfumato.learning.ensembles.stacking import Weights
from sfumato.learning.ensembles.store import Store

__all__ = ["claim_together", "group_size", "train_spread"]

Group = TypeVar("Group")


def group_size(models: int, together: int | None, ranks: Ranks | None) -> int:
    """How many models at once: as asked, or a rank's even share.

    >>> group_size(10, None, None), group_size(10, 4, None)
    (10, 4)
    """
    return -(-models // (ranks or Alone()).count) if together is None else together


def claim_together(store: Store, claim: Callable[[], object], ranks: Ranks | None) -> None:
    """Rank 0 writes down what the folder is for; the others find it there, or another's.

    Raises:
        ValueError: on every rank, if there is no folder that several ranks could share.
    """
    ranks = ranks or Alone()
    if ranks.count > 1 and store.folder is None:
        raise ValueError(
            "folder must be given where several ranks train, one that all of them see: their "
            "models are gathered there"
        )
    ranks.by_leader(claim)
    with telling(ranks):
        if not ranks.leads:
            claim()
    require_all_well(ranks)


def train_spread(
    groups: Sequence[Group],
    train: Callable[[int, Group], Weights],
    store: Store,
    ranks: Ranks | None,
    device: str | torch.device,
) -> list[Weights]:
    """All groups' weights, on every rank.

    Args:
        groups: which models are trained at the same time.
        train: trains a group, by its number, and leaves it in the store.
        store: the folder.
        ranks: who takes part; None for this process alone.
        device: where weights go.
    """
    ranks = ranks or Alone()
    own: dict[int, Weights] = {}
    with telling(ranks, "while it trained its models"):
        for number in range(ranks.rank, len(groups), ranks.count):
            own[number] = train(number, groups[number])
    require_all_well(ranks)
    return [own.get(number) or _read(store, number, device) for number in range(len(groups))]


def _read(store: Store, number: int, device: str | torch.device) -> Weights:
    found = store.finished(number)
    if found is None:
        raise ValueError(
            f"folder must be one that all ranks see, but group {number}, which another rank has "
            f"trained, is not in {store.folder}"
        )
    return {name: weight.to(device) for name, weight in found.items()}
