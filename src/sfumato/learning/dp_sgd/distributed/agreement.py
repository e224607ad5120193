"""What every rank must have been given alike: compared before anything is spent.

Ranks that disagree about the plan would account for another run than the one that happens; about
the number of turns, wait for each other for ever. Facts are compared by their hashes, and an error
names the fact and the rank, not the values, some of which are private.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Generator, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sfumato.core.randomness import Coins, SeededCoins
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.deferred import Deferred
from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.dp_sgd.distributed.shards import local
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.pieces import exact_type
from sfumato.learning.dp_sgd.noise_source import NoiseSource
from sfumato.learning.dp_sgd.optimizer_state import flatten_state

__all__ = [
    "checksums",
    "coins_of_rank",
    "layout_facts",
    "optimizer_facts",
    "refuse_deferred",
    "refuse_wrapped",
    "require_all_well",
    "require_own_noise",
    "require_same",
    "share_weights",
    "some_rows",
    "telling",
]

_KNOWN = "_known_to_all_ranks"
_ROWS = 64  # that are compared, if the data are tensors


def refuse_wrapped(model: nn.Module) -> None:
    """Raises if somebody else would sum gradients across processes or devices."""
    fsdp = sys.modules.get("torch.distributed.fsdp")  # nobody has used it if it is not there
    for module in model.modules():
        if isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            raise TrainingError(
                f"the model is wrapped in {type(module).__name__}, which sums gradients before "
                "they are clipped: give the trainer the module itself (model.module); it sums "
                "clipped gradients across ranks by itself"
            )
        if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
            raise TrainingError(
                "the model is wrapped in FullyShardedDataParallel (FSDP1), which flattens "
                "parameters: call torch.distributed.fsdp.fully_shard(model) instead (FSDP2)"
            )


def refuse_deferred(data: Any, ranks: Ranks) -> None:
    """Raises if rows would be made anew, and what is released for them drawn anew, on each rank."""
    if ranks.count > 1 and isinstance(data, Deferred):
        raise TrainingError(
            "rows that are made later would be made on every rank, and what is released for them "
            "drawn and seen several times: make them first, in one process, or train in one"
        )


def require_same(ranks: Ranks, **facts: Any) -> None:
    """Raises on every rank if one has another value than rank 0.

    Args:
        ranks: who is asked.
        facts: by name, in words of one's own; values whose ``repr`` says everything.
    """
    if ranks.count == 1:
        return
    own = {name: hashlib.sha256(repr(value).encode()).hexdigest() for name, value in facts.items()}
    everyone = ranks.gathered(own)
    for name in own:
        for rank, theirs in enumerate(everyone):
            if theirs.get(name) != everyone[0].get(name):
                raise TrainingError(
                    f"every rank must have the same {name.replace('_', ' ')}, but rank {rank} has "
                    "another than rank 0: give all ranks the same, and let only the trainer change "
                    "weights"
                )


def require_all_well(ranks: Ranks, problem: str | None = None) -> None:
    """Raises on ranks that are well if one is not; all ranks must come here.

    Args:
        ranks: who is asked.
        problem: this rank's, if it has one, which it raises itself.
    """
    everyone = ranks.gathered(problem)
    for rank, theirs in enumerate(everyone):
        if theirs is not None and problem is None:
            raise _known_to_all(TrainingError(f"rank {rank} {theirs}"))


@contextlib.contextmanager
def telling(ranks: Ranks, during: str = "") -> Generator[None]:
    """What goes wrong in the block is told to the others, who wait in :func:`require_all_well`.

    Once: blocks may be nested, and what came from another rank is not told again.

    Args:
        ranks: who is told.
        during: what the block does with private data; then others learn an error's kind alone,
            as its words may say something of the data. Otherwise it is one before the run.
    """
    try:
        yield
    except Exception as error:
        kind = type(error).__name__
        told = (
            f"met a {kind} {during}" if during else f"was refused before the run: {kind}: {error}"
        )
        if not getattr(error, _KNOWN, False):
            with contextlib.suppress(TrainingError):  # the others may be gone: its own error counts
                require_all_well(ranks, told)
            _known_to_all(error)
        raise


def _known_to_all(error: Exception) -> Exception:
    with contextlib.suppress(AttributeError):  # of an exception that takes none
        setattr(error, _KNOWN, True)
    return error


def coins_of_rank(coins: Coins, ranks: Ranks) -> Coins:
    """Coins for a rank's own noise: seeded ones, which are for tests, differ from rank to rank."""
    if ranks.rank and isinstance(coins, SeededCoins):
        return SeededCoins((coins.seed << 20) + ranks.rank)
    return coins


def require_own_noise(ranks: Ranks, noise: NoiseSource, parameters: Iterable[Tensor]) -> None:
    """Raises if two ranks draw the same numbers, as from generators seeded alike.

    Args:
        ranks: who is asked.
        noise: this rank's.
        parameters: like whose sums it will be drawn; a source may have a generator for each place.
    """
    if ranks.count == 1:
        return
    kinds = dict.fromkeys((local(p).device, exact_type(p.dtype)) for p in parameters)
    drawn = [_a_few_of(noise, device, dtype) for device, dtype in kinds]
    for here in zip(*ranks.gathered(drawn), strict=True):
        some = [tuple(numbers) for numbers in here if numbers]  # a test may have no noise
        if len(set(some)) < len(some):
            raise TrainingError(
                "two ranks draw the same noise, so that different coordinates would get the same: "
                "leave out noise=, or start each rank's generator differently"
            )


def _a_few_of(noise: NoiseSource, device: torch.device, dtype: torch.dtype) -> tuple[float, ...]:
    drawn = noise.normal(torch.zeros(8, dtype=dtype, device=device), 1.0)
    return tuple(number for number in drawn.tolist() if number)


def layout_facts(parameters: Mapping[str, Tensor]) -> list[Any]:
    """What ranks' sums must have in common, to be added up number by number."""
    return [
        (name, tuple(p.shape), p.dtype, p.stride(), p.device.type) for name, p in parameters.items()
    ]


def optimizer_facts(ranks: Ranks, optimizer: torch.optim.Optimizer) -> Any:
    """Kind, options and state, in short; of what cannot be told in words, the kind alone."""
    kind = type(optimizer).__name__
    if ranks.count == 1:
        return kind
    try:
        tensors, facts = flatten_state(optimizer.state_dict())
    except ValueError:
        return kind
    placed = any(local(t) is not t for t in tensors.values())
    return kind, facts, [] if placed else checksums(tensors)


def checksums(tensors: Mapping[str, Tensor]) -> list[str]:
    """A number for each tensor; the same for the same tensors."""
    return [repr(float(t.detach().double().sum())) for t in tensors.values()]


@torch.no_grad()
def share_weights(ranks: Ranks, model: nn.Module, sharded: bool) -> None:
    """Everyone gets rank 0's buffers and, of a replicated model, its parameters."""
    if ranks.count == 1:
        return
    held = list(model.buffers()) + ([] if sharded else list(model.parameters()))
    for tensor in held:
        given = tensor.detach().contiguous()
        ranks.broadcast(given)
        if given.data_ptr() != tensor.data_ptr():
            tensor.copy_(given)


def some_rows(source: Source) -> Any:
    """A hash of a few rows of tensors at fixed places; nothing of a data set, which may be random.

    Reads private rows: to be called after the charge.
    """
    if source.is_dataset or not len(source):
        return None
    places = np.linspace(0, len(source) - 1, min(_ROWS, len(source))).astype(np.int64)
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(source.fetch(places)):
        if isinstance(leaf, Tensor):
            digest.update(leaf.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
