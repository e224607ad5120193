"""Where tensors lie in memory: side by side, so that one kernel does for all, and never shared.

Noise is added in place. Two parameters in the same memory would get the same noise, so that is
looked at each time, not assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["each_its_own", "fills_its_memory", "in_one_piece", "views_like"]


def each_its_own(sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same sums; copies if two lie in the same memory, or each would get the other's noise.

    A compiler may hand out one result for two parameters whose sums are the same.
    """
    end = 0
    for tensor in sorted(sums.values(), key=Tensor.data_ptr):
        if tensor.numel() and (tensor.data_ptr() < end or not fills_its_memory(tensor)):
            return {name: value.clone() for name, value in sums.items()}
        end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    return dict(sums)


def in_one_piece(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Vectors that hold the same numbers in the same memory, as few as possible."""
    pieces: list[Tensor] = []
    loose: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        if fills_its_memory(tensor):
            loose.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
        else:
            pieces.append(tensor)
    for neighbours in loose.values():
        neighbours.sort(key=lambda t: (_offset(t), t.numel()))
        first = end = _offset(neighbours[0])
        for i, tensor in enumerate(neighbours):
            if _offset(tensor) != end:
                pieces.append(_vector(neighbours[i - 1], first, end))
                first = _offset(tensor)
            end = _offset(tensor) + tensor.numel()
        pieces.append(_vector(neighbours[-1], first, end))
    return [piece for piece in pieces if piece.numel()]


def _vector(like: Tensor, first: int, end: int) -> Tensor:
    return like.as_strided((end - first,), (1,), first)


def views_like(vector: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Consecutive parts of ``vector``, shaped and laid out in memory as the parameters are."""
    views: dict[str, Tensor] = {}
    start = 0
    for name, p in parameters.items():
        stride = p.stride() if fills_its_memory(p) else torch.empty(p.shape, device="meta").stride()
        views[name] = vector.as_strided(p.shape, stride, start)
        start += p.numel()
    return views


def fills_its_memory(tensor: Tensor) -> bool:
    """Whether its numbers lie without gaps or overlaps, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _offset(tensor: Tensor) -> int:
    return int(tensor.storage_offset())
