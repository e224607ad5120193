"""What a tape notes of a batched call, until the gradient of its output has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch.autograd.graph import GradientEdge
from torch.utils.hooks import RemovableHandle

from sfumato.learning.dp_sgd.gradients.pieces import Piece
from sfumato.learning.dp_sgd.gradients.uses import Use

__all__ = ["Call", "Key", "is_in_place"]

_IN_PLACE_OPERATORS = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}


class Key(NamedTuple):
    """A place in the program."""

    what: str
    targets: tuple[str, ...]
    where: tuple[int, ...]
    dims: int

    def __str__(self) -> str:
        return f"{self.what} of {self.targets[0]!r}"


@dataclass(eq=False)
class Call:
    """A batched call whose output gradient is awaited."""

    use: Use
    key: Key
    edge: GradientEdge
    pieces: dict[str, Piece] = field(default_factory=dict[str, Piece])
    hook: RemovableHandle | None = None

    def release(self) -> None:
        """Lets go of the graph, which holds the hook, which holds this call, which holds the graph.

        Left to Python's collector of cycles, activations and gradients of many steps pile up.
        """
        if self.hook is not None:
            self.hook.remove()
        self.pieces = {}
        self.use.builds.clear()


def is_in_place(what: str) -> bool:
    """Whether a function of this name changes its first argument."""
    return (what.endswith("_") and not what.endswith("__")) or what in _IN_PLACE_OPERATORS
