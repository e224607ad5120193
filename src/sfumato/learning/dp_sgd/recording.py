"""Recording a user's model: hooks that open the tape for as long as a forward pass runs.

The hooks are there only while a trainer is being iterated over, and only watch: outputs, names,
parameters and the state dict stay the model's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sfumato.learning.crafted_coins import Level
from sfumato.learning.dp_sgd.gradients.tape import Tape

__all__ = ["Expected", "Recorder", "trainable"]


@dataclass
class Expected:
    """A batch handed out, whose losses are awaited."""

    rows: int
    units: int
    learning: bool = False
    may_raise: bool = False
    """Whether losses that raise are no error: the batch holds what may have none."""
    level: Level | None = None
    """What the coins give first."""


class Recorder:
    """Opens ``tape`` around every forward pass of ``model`` while a batch is out."""

    def __init__(self, model: nn.Module, tape: Tape) -> None:
        self.model, self.tape = model, tape
        self.expected: Expected | None = None
        self._open: list[AbstractContextManager[None]] = []

    @contextlib.contextmanager
    def attached(self) -> Generator[None]:
        """Hooks on the model, for the time of the block."""
        before = self.model.register_forward_pre_hook(self._enter, prepend=True)
        after = self.model.register_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()
            while self._open:
                self._open.pop().__exit__(None, None, None)
            self.expected = None
            self.tape.clear()

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self.expected is None or not torch.is_grad_enabled():
            self._open.append(contextlib.nullcontext())
        else:
            e = self.expected
            self._open.append(self.tape.recording(e.rows, e.units, e.learning))
        self._open[-1].__enter__()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def expect(self, rows: int, units: int, learning: bool = False, **more: Any) -> None:
        """A batch goes out; what was recorded before is forgotten."""
        self.tape.clear()
        self.expected = Expected(rows, units, learning, **more)

    def take(self) -> Expected | None:
        """The batch whose losses have come, or None if none is out."""
        expected, self.expected = self.expected, None
        return expected


def trainable(model: nn.Module) -> dict[str, Tensor]:
    """Each trainable parameter once, under its first name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
