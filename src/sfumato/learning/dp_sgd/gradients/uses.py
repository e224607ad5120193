"""A use: one call of one function with a trainable parameter, while its backward is awaited."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sfumato.learning.dp_sgd.gradients.checkpointed import Awaited, hooks_here
from sfumato.learning.dp_sgd.gradients.layout import Layout, by_unit, rows_first
from sfumato.learning.dp_sgd.gradients.memory import Scratch
from sfumato.learning.dp_sgd.gradients.pieces import Piece, exact

__all__ = ["NotCovered", "Site", "Use", "function_name"]

Build = Callable[[Tensor], Piece]


class NotCovered(Exception):  # noqa: N818
    """This use of a parameter has no exact per-example gradient here; says why."""


@dataclass(frozen=True)
class Site:
    """What was learned of a place in the program: where the batch is in its output and inputs."""

    output: Layout | None
    inputs: tuple[Layout | None, ...] = ()


@dataclass
class Use:
    """What a rule fills in: for each tracked argument, how its gradients follow from the output's.

    Attributes:
        site: where the batch is.
        units: how many units the batch holds.
        names: tracked tensors' names, by identity.
        scratch: memory to work in.
        finite: whether output gradients come with 0 in place of what is not finite.
    """

    site: Site
    units: int
    names: dict[int, str]
    scratch: Scratch
    finite: bool = False
    builds: dict[int, Build] = field(default_factory=dict[int, Build])
    kept: list[tuple[Tensor, int]] = field(default_factory=list[tuple[Tensor, int]])
    awaited: list[Awaited] = field(default_factory=list[Awaited])

    @property
    def layout(self) -> Layout:
        """Of the output, which is batched."""
        assert self.site.output is not None
        return self.site.output

    def tracks(self, value: object) -> bool:
        """Whether gradients for ``value`` are asked for."""
        return id(value) in self.names

    def name(self, value: object) -> Hashable:
        """The tracked tensor's name."""
        return self.names[id(value)]

    def give(self, target: Tensor | None, build: Build) -> None:
        """States how ``target``'s gradients are built, if it is tracked."""
        if target is None or not self.tracks(target):
            return
        if id(target) in self.builds:
            raise NotCovered("the parameter is passed twice to one function")
        self.builds[id(target)] = build

    def keep(self, tensor: Tensor) -> Tensor:
        """Holds an activation until the backward pass, and notes that it may not change.

        In a checkpointed part the checkpoint holds it, and its numbers come with :meth:`load`.
        """
        hooks = hooks_here()
        if hooks is not None:
            self.awaited.append(Awaited(tensor, hooks))
            return self.awaited[-1].shell
        held = tensor.detach()
        self.kept.append((tensor, tensor._version))
        return held

    def load(self) -> None:
        """Fetches what checkpoints hold, which runs their parts again.

        Raises:
            NotCovered: if an activation was modified in place after it was used.
        """
        if not all(each.load() for each in self.awaited):
            raise NotCovered("an activation it used was modified in place afterwards")
        self.awaited.clear()

    def check_kept(self) -> None:
        """Raises if an activation was modified in place after it was used."""
        for tensor, version in self.kept:
            if tensor._version != version:
                raise NotCovered("an activation it used was modified in place afterwards")
        self.kept.clear()

    def places(self, tensor: Tensor, features: int = 1) -> Tensor:
        """(units, places, *features), in the precision of norms and sums."""
        return exact(by_unit(tensor, self.layout, self.units, features))

    def factor(self, tensor: Tensor) -> Tensor:
        """(units, places, features), in the tensor's own precision."""
        return by_unit(tensor, self.layout, self.units)

    def sum_rows(self, per_row: Tensor) -> Tensor:
        """(units, ...) from (rows, ...): the sum over each unit's consecutive rows."""
        copies = per_row.shape[0] // max(self.units, 1)
        return per_row.reshape(self.units, copies, *per_row.shape[1:]).sum(1)

    def rows(self, tensor: Tensor) -> Tensor:
        """(rows, ...), in the precision of norms and sums."""
        return exact(self.rows_as_they_are(tensor))

    def rows_as_they_are(self, tensor: Tensor) -> Tensor:
        """(rows, ...), in the tensor's own precision."""
        return rows_first(tensor, self.layout)


def function_name(function: Any) -> str:
    """A name for readers."""
    return str(getattr(function, "__name__", function))
