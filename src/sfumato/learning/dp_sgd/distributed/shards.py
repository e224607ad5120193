"""Models whose parameters are sharded by ``torch.distributed.fsdp.fully_shard`` (FSDP2).

Between two passes a parameter is a ``DTensor``, of which each rank holds a part. While a module
runs, forward or backward, the whole parameter stands in its place. Per-example norms need no sum
across shards: an example's activations and output gradients are all on the rank that has the
example, and its gradient of the *whole* parameter follows from them. What is sharded is the
clipped sum: each parameter's is reduce-scattered as soon as it is formed, so that a rank never
holds all of them.

Formal guarantee. As for replicas (:mod:`~sfumato.learning.dp_sgd.distributed.noisy_sum`), with a
parameter's shard in place of a stretch of coordinates: rank j gets its shard of the lot's total,
adds fresh noise to it once, and updates its own shard with it. Every coordinate of every parameter
is in exactly one shard; filling up to equal sizes has no coordinate and no noise.

Covered: one-dimensional meshes over all ranks, any dimension of a parameter. Refused with an error
before anything is spent: hybrid sharding and tensor parallelism (meshes of more dimensions),
parameters offloaded to the processor, some sharded and some not, ``compile=True``, a mixed
precision whose whole parameters are summed in another type than their shards are.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast, final

import torch
from torch import Tensor, nn

from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.pieces import exact_type
from sfumato.learning.dp_sgd.gradients.tape import Gradients, Tape

if TYPE_CHECKING:  # half a second to load: only where somebody else has done so
    from torch.distributed.tensor import DTensor, Shard

__all__ = [
    "Shards",
    "add_up",
    "as_gradient",
    "find_shards",
    "is_placed",
    "kind_of",
    "local",
    "part_of",
    "whole",
]

_BUCKET = 1 << 25  # numbers of a sum that are exchanged at a time


def is_placed(tensor: object) -> TypeGuard[DTensor]:
    """Whether it is a ``DTensor``."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def _gathers(module: object) -> bool:
    """Whether ``fully_shard`` was called on it."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def find_shards(model: nn.Module, ranks: Ranks) -> Shards | None:
    """The model's shards, or None if it has none.

    Raises:
        TrainingError: if they are laid out in a way that is not covered.
    """
    roots = [module for module in model.modules() if _gathers(module)]
    for module in roots:
        cast(Any, module).reshard()
    placed = {n: p for n, p in model.named_parameters() if is_placed(p)}
    if not placed:
        return None
    if not roots:
        raise TrainingError(
            f"{next(iter(placed))!r} is a DTensor that fully_shard did not make (tensor "
            "parallelism), which is not covered: shard the model by fully_shard alone"
        )
    if not _gathers(model):
        raise TrainingError(
            "parts of the model are sharded, the model itself is not: call fully_shard on it, too"
        )
    for name, p in model.named_parameters():
        _check(name, p, ranks)
    return Shards(model, ranks)


def _check(name: str, p: Tensor, ranks: Ranks) -> None:
    from torch.distributed.tensor import Shard

    if not is_placed(p):
        raise TrainingError(
            f"{name!r} is not sharded, other parameters are: shard all of them (no ignored_params)"
        )
    mesh, placements = p.device_mesh, p.placements
    if mesh.ndim != 1 or len(placements) != 1 or type(placements[0]) is not Shard:
        raise TrainingError(
            f"{name!r} is laid out as {placements} on a mesh of {mesh.ndim} dimensions: hybrid "
            "sharding and tensor parallelism are not covered; use fully_shard with one mesh over "
            "all ranks"
        )
    if mesh.size() != ranks.count:
        raise TrainingError(
            f"{name!r} is sharded over {mesh.size()} ranks, the run has {ranks.count}: shard it "
            "over all of them"
            + (" (the trainer was told to keep to itself)" if ranks.count == 1 else "")
        )
    if p.to_local().device.type != mesh.device_type:
        raise TrainingError(
            f"{name!r} is offloaded to the processor, which is not covered: leave out "
            "offload_policy"
        )


def _check_type(name: str, held: torch.dtype, used: torch.dtype) -> None:
    """Raises if norms and sums are formed in another type than the one that is clipped for.

    The allowance for rounding follows from the type of the shards; and a rank without a part in a
    parameter sends zeros of that type, where others would send what they have formed.
    """
    if exact_type(used) != exact_type(held):
        raise TrainingError(
            f"{name!r} is held in {held} and used in {used}, so that sums would be rounded "
            "otherwise than they are clipped for: leave out param_dtype in MixedPrecisionPolicy, "
            f"or hold the model in the precision that it is used in (model.to({used})) before "
            "fully_shard"
        )


@final
class Shards:
    """The places where a sharded model's parameters stand, whole or in part.

    Args:
        model: a module on which ``fully_shard`` was called; sharded at the moment.
        ranks: all of whom hold a part.
    """

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self.ranks = model, ranks
        self.parameters = {n: cast("DTensor", p) for n, p in model.named_parameters()}
        names = {id(p): name for name, p in self.parameters.items()}
        self._twins: dict[int, Tensor] = {}
        self._places: dict[nn.Module, list[tuple[nn.Module, str, str]]] = {}
        self._owner: dict[str, Any] = {}
        for root, module in _with_roots(model):
            for attribute, p in module._parameters.items():
                if p is not None:
                    place = (module, attribute, names[id(p)])
                    self._places.setdefault(root, []).append(place)
                    self._owner[names[id(p)]] = root

    @contextlib.contextmanager
    def attached(self, tape: Tape) -> Generator[None]:
        """Tells ``tape``, as modules begin to run, which whole tensors stand for parameters."""
        handles = [
            root.register_forward_pre_hook(lambda m, _: self._tell(tape, m))
            for root in self._places
        ]
        tape.on_needed = self._hold
        try:
            yield
        finally:
            tape.on_needed = None
            for handle in handles:
                handle.remove()

    def _tell(self, tape: Tape, root: nn.Module) -> None:
        for module, attribute, name in self._places[root]:
            stands = module._parameters[attribute]
            if stands is not None and not is_placed(stands):
                self._twins[id(stands)] = stands
                if name in tape.parameters:
                    _check_type(name, self.parameters[name].dtype, stands.dtype)
                    tape.stand_in(name, stands)

    def _hold(self, name: str) -> None:
        """Keeps a parameter whole after both passes: its gradient is still being formed."""
        root = self._owner[name]
        root.set_reshard_after_forward(False, recurse=False)
        root.set_reshard_after_backward(False, recurse=False)

    def is_twin(self, tensor: Tensor) -> bool:
        """Whether it stands for a parameter at times."""
        return id(tensor) in self._twins

    def reshard(self) -> None:
        """Every parameter in parts; before weights change, or whole copies would be out of date."""
        for root in self._places:
            cast(Any, root).reshard()


def _with_roots(model: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Every module with the sharded module that gathers its parameters."""
    modules = dict(model.named_modules())
    roots = {name: module for name, module in modules.items() if _gathers(module)}
    for name, module in modules.items():
        path = name
        while path not in roots:
            path = path.rpartition(".")[0]
        yield roots[path], module


# --- parts and wholes -----------------------------------------------------------------------------


def kind_of(holder: object) -> str:
    """A holder's class, of a sharded model the one that it had before."""
    kinds = type(holder).__mro__
    return kinds[2 if _gathers(holder) else 0].__name__


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if is_placed(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of it, on every rank; collective."""
    return tensor.full_tensor() if is_placed(tensor) else tensor


def part_of(full: Tensor, like: DTensor) -> DTensor:
    """A whole tensor laid out as ``like``; no rank tells another anything."""
    dim, chunk, start = _chunk(like)
    length = max(0, min(chunk, full.shape[dim] - start))
    own = full.narrow(dim, min(start, full.shape[dim]), length)
    return _laid_out(own.to(like.device).contiguous().clone(), like)


def as_gradient(mean: Tensor, parameter: Tensor) -> Tensor:
    """This rank's part of a gradient as the optimizer wants it."""
    return _laid_out(mean, cast("DTensor", parameter))


def _laid_out(own: Tensor, like: DTensor) -> DTensor:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        own, like.device_mesh, like.placements, run_check=False,
        shape=like.size(), stride=like.stride(),
    )  # fmt: skip


def _chunk(p: DTensor) -> tuple[int, int, int]:
    """The sharded dimension, a full part's length, and where this rank's begins."""
    dim = cast("Shard", p.placements[0]).dim % p.ndim
    count = p.device_mesh.size()
    chunk = -(-p.shape[dim] // count)
    return dim, chunk, chunk * p.device_mesh.get_local_rank()


# --- sums -----------------------------------------------------------------------------------------


@torch.no_grad()
def add_up(
    shards: Shards,
    sums: Mapping[str, Tensor],
    gradients: Gradients,
    groups: Sequence[Sequence[str]],
    scales: Tensor,
    bucket: int = _BUCKET,
) -> None:
    """Adds all ranks' clipped sums of a physical batch to this rank's parts of them.

    Every rank takes part with every parameter, also with one that had no part in its loss.

    Args:
        shards: of the model.
        sums: this rank's parts so far, by name; changed.
        gradients: of this rank's units.
        groups: names that are clipped together.
        scales: (U, k).
        bucket: numbers to exchange at a time, at least: whole parameters.
    """
    waiting: list[tuple[str, Tensor]] = []
    for column, group in enumerate(groups):
        for name in group:
            like = shards.parameters[name]
            if name in gradients.pieces:
                formed = gradients.pieces[name].weighted_sum(scales[:, column])
            else:
                formed = torch.zeros(like.shape, dtype=torch.float64, device=local(like).device)
            waiting.append((name, _in_rows(formed, like)))
            gradients.pieces.pop(name, None)  # its factors are not needed again
            if sum(rows.numel() for _, rows in waiting) >= bucket:
                _scatter(shards, sums, waiting)
    _scatter(shards, sums, waiting)


def _in_rows(full: Tensor, like: DTensor) -> Tensor:
    """(ranks, numbers): what each rank is to get, filled up with zeros."""
    dim, chunk, _ = _chunk(like)
    count, first = like.device_mesh.size(), full.movedim(dim, 0)
    missing = chunk * count - len(first)
    if missing:
        first = torch.cat([first, first.new_zeros(missing, *first.shape[1:])])
    return first.reshape(count, -1)


def _scatter(shards: Shards, sums: Mapping[str, Tensor], waiting: list[tuple[str, Tensor]]) -> None:
    kinds = {rows.dtype for _, rows in waiting}
    for dtype in sorted(kinds, key=str):
        some = [(name, rows) for name, rows in waiting if rows.dtype == dtype]
        parts = torch.cat([rows for _, rows in some], 1)
        own = parts.new_empty(parts.shape[1])
        shards.ranks.reduce_scatter(own, parts.view(-1))
        for (name, _), mine in zip(some, own.split([r.shape[1] for _, r in some]), strict=True):
            like, held = shards.parameters[name], sums[name]
            dim, _, _ = _chunk(like)
            rest = [n for i, n in enumerate(like.shape) if i != dim]
            length = held.shape[dim]
            numbers = length * math.prod(rest)
            held += mine[:numbers].view(length, *rest).movedim(0, dim)
    waiting.clear()
