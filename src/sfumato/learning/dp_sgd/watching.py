"""Watching what only the trainer may change: weights, gradients, buffers and modes.

Everything here is about the program, not about the data: who changed what between two steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.distributed.shards import local
from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Watch"]

_MODULES_OWN = frozenset(vars(nn.Module()))


class Watch:
    """Notes the state of a model, and raises if someone else changed it.

    By tensors' version counters and addresses: an edit through ``.data`` goes unseen. What a
    forward pass left in a buffer or a gradient is removed before an error is raised, because it
    was read from private data without noise.
    """

    def __init__(
        self, model: nn.Module, parameters: Mapping[str, Tensor], shards: Any = None
    ) -> None:
        self._model, self._parameters, self._shards = model, dict(parameters), shards
        self.accept()

    def accept(self) -> None:
        """Takes the present state as the trainer's own."""
        self.accept_weights()
        self.accept_kept()
        self._modes: tuple[bool, ...] | None = None  # those of the next forward pass

    def clear_gradients(self) -> None:
        """Forgets gradients that were there before a loop."""
        for p in self._parameters.values():
            p.grad = None

    def accept_weights(self) -> None:
        """After a step: only weights may have changed."""
        self._weights = {name: _state(p) for name, p in self._parameters.items()}

    def accept_kept(self) -> None:
        """Takes what buffers and attributes hold now, to put it back if a run changes them."""
        # Tensors are held: a new one cannot come to lie where an old one was.
        self._held = dict(_kept(self._model, self._shards))
        self._states = {name: _state(t) for name, t in self._held.items()}
        self._copies = {name: b.detach().clone() for name, b in self._model.named_buffers()}

    def check(self) -> None:
        """Raises if something changed since."""
        for name, p in self._parameters.items():
            if p.grad is not None:
                self.clear_gradients()
                raise TrainingError(
                    f"{name!r} has a gradient that the trainer did not form: call "
                    "trainer.backward(losses) instead of loss.backward(); nothing was applied. (To "
                    "train another network through this one, as a GAN's generator: "
                    "loss.backward(inputs=list(other.parameters())))"
                )
            if not p.requires_grad:
                raise TrainingError(
                    f"{name!r} was frozen during the run: freeze parameters before making the "
                    "trainer"
                )
            if _state(p) != self._weights[name]:
                raise TrainingError(
                    f"{name!r} was edited between two steps: only the trainer's optimizer may "
                    "change weights during a run (for an average of them use ema_decay; an "
                    "embedding's max_norm edits them, too)"
                )
        self._check_trainable()
        self._check_kept()

    def check_modes(self) -> None:
        """After a forward pass: raises if its modes are not those of the first since accepted."""
        modes = _modes(self._model)
        self._modes = self._modes or modes
        if modes != self._modes:
            raise TrainingError(
                "the model went from train() to eval() mode, or back, since it was checked: put "
                "it back before backward"
            )

    def _check_trainable(self) -> None:
        own = {id(p) for p in self._parameters.values()}
        for name, p in self._model.named_parameters():
            twin = self._shards is not None and self._shards.is_twin(p)
            if p.requires_grad and id(p) not in own and not twin:
                raise TrainingError(
                    f"{name!r} became trainable during the run: unfreeze or add parameters before "
                    "making the trainer"
                )

    def _check_kept(self) -> None:
        for name, tensor in _kept(self._model, self._shards):
            if _state(tensor) != self._states.get(name):
                self._put_back()
                raise TrainingError(
                    f"buffer {name!r} changed during the run: it would carry private data into the "
                    "model without noise. Use a layer without running statistics"
                )

    @torch.no_grad()
    def _put_back(self) -> None:
        for name, buffer in self._model.named_buffers():
            if name in self._copies and buffer.shape == self._copies[name].shape:
                buffer.copy_(self._copies[name])


def _state(tensor: Tensor) -> tuple[int, int]:
    tensor = local(tensor)
    return tensor._version, tensor.data_ptr()


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in model.modules())


def _kept(model: nn.Module, shards: Any = None) -> Iterator[tuple[str, Tensor]]:
    """Buffers, frozen parameters, and tensors in plain attributes, also in lists and the like."""
    yield from model.named_buffers()
    named = model.named_parameters() if shards is None else shards.parameters.items()
    yield from ((name, p) for name, p in named if not p.requires_grad)
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in _MODULES_OWN:
                yield from _tensors(f"{prefix}.{name}" if prefix else name, value)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        found = [(name, value)]
    elif isinstance(value, (list, tuple, dict, deque)):
        leaves = pytree.tree_leaves(value)
        found = [(f"{name}[{i}]", leaf) for i, leaf in enumerate(leaves)]
    else:
        return
    for path, leaf in found:  # weights may be listed in several places
        if isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter):
            yield path, leaf
