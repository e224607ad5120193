"""Watching what only the trainer may change: weights, gradients, buffers and modes.

Everything here is about the program, not about the data: who changed what between two steps.
"""

from __future__ import annotations

# pyright: reportPrivateUsage=false
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.distributed.shards import local
from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["MODULES_OWN", "Watch", "modules_of"]

MODULES_OWN = frozenset(vars(nn.Module()))
_PLAIN = frozenset({str, int, float, bool, type(None)})  # what settings are made of

_Key = tuple[Any, ...]
"""The id of a module, the name of what it holds, and its number if it is in a list or the like."""


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
        # Tensors and modules are held: a new one cannot come to lie where an old one was.
        self._held = dict(_kept(self._model, self._shards))
        self._modules = list(modules_of(self._model))
        self._states = {key: _state(t) for key, t in self._held.items()}
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
        for module in modules_of(self._model):
            for name, p in module._parameters.items():
                if p is None or not p.requires_grad or id(p) in own:
                    continue
                if self._shards is None or not self._shards.is_twin(p):
                    raise TrainingError(
                        f"{self._name((id(module), name))!r} became trainable during the run: "
                        "unfreeze or add parameters before making the trainer"
                    )

    def _check_kept(self) -> None:
        for key, tensor in _kept(self._model, self._shards):
            if _state(tensor) != self._states.get(key):
                self._put_back()
                raise TrainingError(
                    f"buffer {self._name(key)!r} changed during the run: it would carry private "
                    "data into the model without noise. Use a layer without running statistics"
                )

    def _name(self, key: _Key) -> str:
        """What a key stands for, as users know it."""
        known = {id(module): prefix for prefix, module in self._model.named_modules()}
        prefix, name = known.get(key[0], ""), f"{key[1]}"
        number = f"[{key[2]}]" if len(key) > 2 else ""
        return (f"{prefix}.{name}" if prefix else name) + number

    @torch.no_grad()
    def _put_back(self) -> None:
        for name, buffer in self._model.named_buffers():
            if name in self._copies and buffer.shape == self._copies[name].shape:
                buffer.copy_(self._copies[name])


def _state(tensor: Tensor) -> tuple[int, int]:
    tensor = local(tensor)
    return tensor._version, tensor.data_ptr()


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in modules_of(model))


def modules_of(model: nn.Module) -> Iterator[nn.Module]:
    """All of them, each once, in torch's order; without their names, which take long to join."""
    seen: set[int] = set()
    waiting: list[nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting.extend(reversed(module._modules.values()))


def _kept(model: nn.Module, shards: Any = None) -> Iterator[tuple[_Key, Tensor]]:
    """Buffers, frozen parameters, and tensors in plain attributes, also in lists and the like."""
    for module in modules_of(model):
        own = id(module)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield (own, name), buffer
        if shards is None:
            for name, p in module._parameters.items():
                if p is not None and not p.requires_grad:
                    yield (own, name), p
        for name, value in vars(module).items():
            if name not in MODULES_OWN:
                yield from _tensors((own, name), value)
    if shards is not None:
        yield from (((0, name), p) for name, p in shards.parameters.items() if not p.requires_grad)


def _tensors(key: _Key, value: Any) -> Iterator[tuple[_Key, Tensor]]:
    if isinstance(value, Tensor):
        found = [(key, value)]
    elif isinstance(value, (list, tuple, dict, deque)):
        items = value.values() if isinstance(value, dict) else value
        if all(type(item) in _PLAIN for item in items):
            return
        found = [((*key, i), leaf) for i, leaf in enumerate(pytree.tree_leaves(value))]
    else:
        return
    for path, leaf in found:  # weights may be listed in several places
        if isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter):
            yield path, leaf
