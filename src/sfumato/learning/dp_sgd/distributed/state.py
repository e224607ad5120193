"""Checkpoints of many ranks: the files of one process, which any number of ranks can go on from.

Rank 0 writes. Sharded tensors are gathered whole, one at a time, and kept by rank 0 alone, on the
processor. On resuming rank 0 reads, tells the others, and each takes its part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.checkpoints import Checkpoint
from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.dp_sgd.distributed.shards import is_placed, part_of, whole

__all__ = ["gathered_tensors", "placed_state", "told_checkpoint"]


@torch.no_grad()
def gathered_tensors(ranks: Ranks, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """All tensors whole, on the leader; collective. Nothing elsewhere."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if is_placed(tensor):
            full = whole(tensor.detach())
            if ranks.leads:
                found[name] = full.cpu()
        elif ranks.leads:
            found[name] = tensor
    return found


def told_checkpoint(ranks: Ranks, found: Checkpoint | None) -> Checkpoint | None:
    """The leader's checkpoint, on every rank; tensors one at a time."""
    outline = ranks.leading(
        lambda: None if found is None else (
            found.step,
            found.facts,
            {n: (list(t.shape), str(t.dtype)) for n, t in found.tensors.items()},
        )
    )  # fmt: skip
    if outline is None or ranks.count == 1:
        return found
    step, facts, shapes = outline
    tensors: dict[str, Tensor] = {}
    for name, (shape, dtype) in shapes.items():
        own = getattr(torch, dtype.removeprefix("torch."))
        given = found.tensors[name].contiguous() if found else torch.empty(shape, dtype=own)
        if given.numel():
            ranks.broadcast(given.view(-1).view(torch.uint8))
        tensors[name] = given
    return Checkpoint(step, tensors, facts)


def placed_state(name: str, state: Any, holder: Any) -> Any:
    """A stored state with its tensors laid out as the holder's parameters are.

    Args:
        name: "model", "optimizer", "scheduler" or "average".
        state: as one process would load it.
        holder: the model, the optimizer, and so on.
    """
    if name == "model":
        own = holder.state_dict()
        return {key: _placed(value, own.get(key)) for key, value in state.items()}
    if name == "average":
        own = holder.state()
        return {key: _placed(value, own.get(key)) for key, value in state.items()}
    if name == "optimizer":
        parameters = [p for group in holder.param_groups for p in group["params"]]
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        by_number = dict(zip(numbers, parameters, strict=False))
        return state | {
            "state": {
                number: {key: _placed(value, by_number.get(number)) for key, value in kept.items()}
                for number, kept in state["state"].items()
            }
        }
    return state


def _placed(value: Any, like: Any) -> Any:
    """A part, if ``like`` is in parts and of the same shape."""
    if isinstance(value, Tensor) and is_placed(like) and value.shape == like.shape:
        return part_of(value, like)
    return value
