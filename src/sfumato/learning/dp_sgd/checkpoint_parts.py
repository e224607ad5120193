"""Tensors over several files, none above a size: for whoever may move only small files.

>>> whole = {"a": torch.arange(10.0), "b": torch.ones(2, 2)}
>>> groups, cut = divided(whole, most=16)
>>> [sum(t.nbytes for t in group.values()) for group in groups], cut
([16, 16, 8, 16], {'a': [10]})
>>> joined(groups, cut)["a"].equal(whole["a"])
True
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["divided", "joined"]

_BETWEEN = "\x1f"  # a name and the number of its piece


def divided(
    tensors: Mapping[str, Tensor], most: int
) -> tuple[list[dict[str, Tensor]], dict[str, list[int]]]:
    """Groups of at most ``most`` bytes each, and the shapes of the tensors that were cut for it.

    There is at least one group, which may be empty.
    """
    cut = {name: list(t.shape) for name, t in tensors.items() if t.nbytes > most}
    groups: list[dict[str, Tensor]] = [{}]
    room = most
    for name, piece in _pieces(tensors, cut, most):
        if piece.nbytes > room and groups[-1]:
            groups.append({})
            room = most
        groups[-1][name] = piece
        room -= piece.nbytes
    return groups, cut


def _pieces(
    tensors: Mapping[str, Tensor], cut: Mapping[str, list[int]], most: int
) -> Iterable[tuple[str, Tensor]]:
    for name, tensor in tensors.items():
        if name not in cut:
            yield name, tensor
            continue
        pieces = tensor.flatten().split(max(1, most // tensor.element_size()))
        yield from ((f"{name}{_BETWEEN}{i}", piece.clone()) for i, piece in enumerate(pieces))


def joined(
    groups: Iterable[Mapping[str, Tensor]], cut: Mapping[str, list[int]]
) -> dict[str, Tensor]:
    """The inverse of :func:`divided`.

    Raises:
        KeyError: if a piece is missing.
        ValueError: if pieces do not make up a tensor of its shape.
    """
    found = {name: tensor for group in groups for name, tensor in group.items()}
    for name, shape in cut.items():
        pieces: list[Tensor] = []
        while (piece := found.pop(f"{name}{_BETWEEN}{len(pieces)}", None)) is not None:
            pieces.append(piece)
        if not pieces:
            raise KeyError(name)
        whole = torch.cat(pieces)
        if whole.numel() != math.prod(shape):
            raise ValueError(f"pieces of {name!r} do not make up its shape")
        found[name] = whole.reshape(shape)
    return found
