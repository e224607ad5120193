"""Checkpointed parts of a model, whose activations are thrown away and computed again.

``torch.utils.checkpoint`` (without re-entering autograd) saves nothing of a part but its inputs.
When the backward pass first asks for a saved activation, the part runs once more. The tape holds
activations, too: held as they are, they would undo what the checkpoint saves. So inside a
checkpointed part an activation is handed to the checkpoint, as autograd itself would do it, and
asked back when its output's gradient has arrived.

The checkpoint finds what was saved by counting. The tape therefore watches the second run as well,
hands over the same activations in the same order, and records nothing. (That also lets a rehearsal
hold chance still in both runs.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["Awaited", "Hooks", "hooks_here", "run_backward"]

_HOME = "torch.utils.checkpoint"
_VERSION = "_version_when_kept"


class Hooks(NamedTuple):
    """What a checkpoint does with a tensor that autograd saves, and how it gives it back."""

    pack: Callable[[Tensor], Any]
    unpack: Callable[[Any], Tensor]


def hooks_here() -> Hooks | None:
    """Those of the checkpointed part that is running, in its first run or its second."""
    found = torch._C._autograd._top_saved_tensors_default_hooks(False)  # pyright: ignore
    if found is None or getattr(found[0], "__module__", "") != _HOME:
        return None
    return Hooks(*found)


class Awaited:
    """An activation that a checkpoint will give back.

    Attributes:
        shell: a tensor without numbers until :meth:`load`.
    """

    def __init__(self, tensor: Tensor, hooks: Hooks) -> None:
        self.shell = tensor.new_empty(0)
        self._unpack = hooks.unpack
        kept = tensor.detach()
        setattr(kept, _VERSION, tensor._version)
        self._held: Any = hooks.pack(kept)

    def load(self) -> bool:
        """Asks for it, once, which may run the part again; whether it is as it was when used."""
        if self._held is None:
            return True
        found, self._held = self._unpack(self._held), None
        self.shell.data = found.detach()
        return getattr(found, _VERSION, None) == found._version


def run_backward(total: Tensor, inputs: Iterable[Any]) -> tuple[Tensor | None, ...]:
    """``torch.autograd.grad`` of a number, under the function modes that are active here.

    (``grad`` is itself a function that modes replace, and would run without them.)
    """
    engine: Any = torch.autograd.Variable._execution_engine
    start = torch.ones_like(total)
    return engine.run_backward((total,), (start,), False, False, tuple(inputs), True, False)
