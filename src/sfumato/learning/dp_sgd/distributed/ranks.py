"""The processes of one run: who leads, what one tells the others, and sums across all of them.

    >>> ranks = Alone()
    >>> ranks.count, ranks.leads, ranks.leading(lambda: 3), ranks.gathered("a")
    (1, True, 3, ['a'])

A trainer has one path for one process and for many: it asks its :class:`Ranks`. :class:`Alone` is
one process. :class:`TorchRanks` are those of ``torch.distributed``, as ``torchrun`` starts them.

Rules
- Rank 0 leads: it alone draws lots, writes the journal and checkpoints, and opens the ledger. What
  it finds, or the error that it meets, comes to every rank (:meth:`Ranks.leading`), so that ranks
  cannot go different ways.
- Words and positions go through a group on the processors (gloo) that is made for it. Tensors go
  the way of their device: NCCL on GPUs.
- If a rank ends or does not answer, the others raise :class:`TrainingError`.

Every rank is inside the trust boundary: it holds the data and sees clean sums. What they send each
other is not encrypted; use a network that is yours alone.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar, cast, final

import torch
import torch.distributed as dist
from torch import Tensor

from sfumato.learning.dp_sgd.distributed.words import error_from, packed, unpacked, words_of
from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Alone", "Ranks", "TorchRanks", "find_ranks"]

T = TypeVar("T")

# Newer names first, where torch has them.
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Ranks(ABC):
    """The processes of one run.

    Attributes:
        rank: this one's number.
        count: how many there are.
        sent: bytes of tensors that this rank sent so far, by the ring algorithm's count.
    """

    rank: int = 0
    count: int = 1
    sent: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    @abstractmethod
    def leading(self, act: Callable[[], T]) -> T:
        """Rank 0 acts; every rank gets its result, or raises its error.

        The result is JSON, arrays of numbers allowed (:mod:`.words`).
        """

    def by_leader(self, act: Callable[[], T]) -> T | None:
        """Rank 0 acts and keeps the result, others get None; its error reaches everyone."""
        kept: list[T] = []
        self.leading(lambda: kept.append(act()))
        return kept[0] if kept else None

    @abstractmethod
    def gathered(self, value: T) -> list[T]:
        """Everyone's value, in the order of ranks; JSON, as of :meth:`leading`."""

    @abstractmethod
    def total(self, values: Sequence[float]) -> list[float]:
        """Sums over ranks, in float64 and in the order of ranks: the same bits everywhere."""

    @abstractmethod
    def broadcast(self, tensor: Tensor) -> None:
        """Overwrites everyone's tensor by rank 0's."""

    @abstractmethod
    def reduce_scatter(self, out: Tensor, parts: Tensor) -> None:
        """``out`` becomes this rank's part of the sum over ranks of ``parts``.

        Args:
            out: (n,), contiguous.
            parts: (count * n,), contiguous: part j is for rank j.
        """

    @abstractmethod
    def all_gather(self, parts: Tensor, own: Tensor) -> None:
        """``parts`` (count * n,) becomes everyone's ``own`` (n,), in the order of ranks."""


@final
class Alone(Ranks):
    """One process. Give it to a trainer that is to keep to itself among others."""

    def leading(self, act: Callable[[], T]) -> T:
        """Acts."""
        return act()

    def gathered(self, value: T) -> list[T]:
        """The value itself."""
        return [value]

    def total(self, values: Sequence[float]) -> list[float]:
        """The values themselves."""
        return [float(value) for value in values]

    def broadcast(self, tensor: Tensor) -> None:
        """Nothing."""

    def reduce_scatter(self, out: Tensor, parts: Tensor) -> None:
        """A copy."""
        out.copy_(parts)

    def all_gather(self, parts: Tensor, own: Tensor) -> None:
        """A copy."""
        parts.copy_(own)


@final
class TorchRanks(Ranks):
    """The ranks of ``torch.distributed``'s default group.

    Making one is a collective act: every rank must.

    Raises:
        TrainingError: if there is no such group.
    """

    def __init__(self) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise TrainingError(
                "torch.distributed is not initialised: start the script by torchrun and call "
                "torch.distributed.init_process_group() first"
            )
        self.rank, self.count, self.sent = dist.get_rank(), dist.get_world_size(), 0
        self._words = _words_group()

    def __repr__(self) -> str:
        return f"TorchRanks({self.rank} of {self.count})"

    # --- words ------------------------------------------------------------------------------------

    def leading(self, act: Callable[[], T]) -> T:
        """See :class:`Ranks`."""
        error: Exception | None = None
        message, result = b"", cast(Any, None)
        if self.leads:
            try:
                result = act()
                message = packed({"result": result})
            except Exception as raised:  # whatever it is, the others must not wait for ever
                error = raised
                message = packed({"error": words_of(raised)})
        message = self._told(message)
        if self.leads:
            if error is not None:
                raise error
            return result
        told = unpacked(message)
        if "error" in told:
            raise error_from(told["error"])
        return told["result"]

    def _told(self, message: bytes) -> bytes:
        with _in_company():
            size = torch.tensor([len(message)])
            dist.broadcast(size, 0, group=self._words)
            data = torch.empty(int(size), dtype=torch.uint8)
            if self.leads:
                data = torch.frombuffer(bytearray(message), dtype=torch.uint8)
            dist.broadcast(data, 0, group=self._words)
        return data.numpy().tobytes()

    def gathered(self, value: T) -> list[T]:
        """See :class:`Ranks`."""
        message = torch.frombuffer(bytearray(packed([value])), dtype=torch.uint8)
        lengths = [int(length) for length in self._everyones(torch.tensor([len(message)]))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(message)] = message
        found = zip(self._everyones(padded), lengths, strict=True)
        return [unpacked(data[:length].numpy().tobytes())[0] for data, length in found]

    def _everyones(self, own: Tensor) -> list[Tensor]:
        everyone = [torch.empty_like(own) for _ in range(self.count)]
        with _in_company():
            dist.all_gather(everyone, own, group=self._words)
        return everyone

    def total(self, values: Sequence[float]) -> list[float]:
        """See :class:`Ranks`."""
        own = torch.tensor([float(value) for value in values], dtype=torch.float64)
        return torch.stack(self._everyones(own)).sum(0).tolist()

    # --- tensors ----------------------------------------------------------------------------------

    def _group(self, tensor: Tensor) -> Any:
        return self._words if tensor.device.type == "cpu" else None

    def broadcast(self, tensor: Tensor) -> None:
        """See :class:`Ranks`."""
        with _in_company():
            dist.broadcast(tensor, 0, group=self._group(tensor))
        self.sent += tensor.numel() * tensor.element_size() * (self.count > 1)

    def reduce_scatter(self, out: Tensor, parts: Tensor) -> None:
        """See :class:`Ranks`."""
        with _in_company():
            _reduce_scatter(out, parts, group=self._group(parts))
        self._count_ring(parts)

    def all_gather(self, parts: Tensor, own: Tensor) -> None:
        """See :class:`Ranks`."""
        with _in_company():
            _all_gather(parts, own, group=self._group(parts))
        self._count_ring(parts)

    def _count_ring(self, parts: Tensor) -> None:
        whole = parts.numel() * parts.element_size()
        self.sent += whole * (self.count - 1) // self.count


def find_ranks() -> Ranks:
    """Those of ``torch.distributed`` if it is initialised, or this process alone."""
    started = dist.is_available() and dist.is_initialized()
    return TorchRanks() if started else Alone()


_known: dict[str, Any] = {}


def _words_group() -> Any:
    """A gloo group of all ranks, made once for each default group."""
    world = dist.group.WORLD
    if _known.get("world") is not world:
        _known.update(world=world, words=dist.new_group(backend="gloo", timeout=_timeout(world)))
    return _known["words"]


def _timeout(group: Any) -> Any:
    """How long the default group waits; None where it does not say."""
    with contextlib.suppress(Exception):
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        return group._get_backend(device).options._timeout
    return None


@contextlib.contextmanager
def _in_company() -> Generator[None]:
    """Says of an error between processes what it means."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(
            "a rank of this run ended or does not answer: what was begun counts as spent. Start "
            f"all ranks again, with checkpoints and resume() to go on ({error})"
        ) from error
