"""Tensors made of parameters alone, such as a transposed weight, and how gradients go on from them.

A tape tracks them like parameters. After the backward pass each one's per-example gradients are
handed to what it was made of: turned or stacked where that is all the call did, and by autograd's
own rule for the call otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.gradients.fallback import pull_back
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer, Piece, Stacked, combine
from sfumato.learning.dp_sgd.gradients.settling import settle

__all__ = ["Derived", "Function", "to_parameters"]

_TURNS = {
    Tensor.t, torch.t, Tensor.transpose, torch.transpose,
    Tensor.T.__get__, Tensor.mT.__get__,  # type: ignore[attr-defined]
}  # fmt: skip
_SPLITS = {Tensor.chunk, torch.chunk, Tensor.split, torch.split}

Function = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""A function and its arguments."""


@dataclass(eq=False)
class Derived:
    """A call on parameters alone."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parents: tuple[Tensor, ...]
    names: tuple[str, ...]

    def is_of(self, call: Function) -> bool:
        """Whether it came of such a call: the same function, the same arguments besides tensors."""
        return self.function == call[0] and _plain(self.args, self.kwargs) == _plain(*call[1:])

    def to_parents(
        self, pieces: Mapping[str, Piece], parents: Mapping[str, Tensor]
    ) -> dict[str, Piece]:
        """The gradients of what it was made of, by name, from those of its outputs."""
        if not pieces:
            return {}
        first, name = next(iter(pieces.values())), next(iter(parents))
        if self.function in _TURNS and parents[name].ndim == 2 and isinstance(first, Outer):
            return {name: first.turned()}
        whole = len(pieces) == len(self.names)
        if self.function in _SPLITS and self._along_first and whole:
            return {name: Stacked([settle(pieces[n]) for n in self.names])}
        written = {self.names.index(n): piece.written() for n, piece in pieces.items()}
        gradients = pull_back(self.function, self.args, self.kwargs, self.parents, written)
        return {n: Direct(g) for n, g in zip(parents, gradients, strict=True)}

    @property
    def _along_first(self) -> bool:
        return self.kwargs.get("dim", self.args[2] if len(self.args) > 2 else 0) == 0


def to_parameters(
    found: dict[str, list[Piece]], made: Sequence[Derived], names: Mapping[int, str]
) -> dict[str, Piece]:
    """Every parameter's gradients in one piece, those of what was made of it included.

    Args:
        found: by name, a piece for each use; what was derived is taken out.
        made: in the order of the forward pass.
        names: of tensors, by their identity.
    """
    for derived in reversed(made):
        pieces = {n: combine(found.pop(n)) for n in derived.names if n in found}
        parents = {names[id(p)]: p for p in derived.parents}
        for name, piece in derived.to_parents(pieces, parents).items():
            found.setdefault(name, []).append(piece)
    return {name: settle(combine(pieces)) for name, pieces in found.items()}


def _plain(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What a call was given besides tensors."""
    leaves = pytree.tree_leaves((args, kwargs))
    return [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
