"""One step of all models.

=========  =======================================================================================
stacked    every operation once for all models: for models so small that starting an operation
           costs more than the operation
apart      model by model, one on each core: on CPUs, where grouped convolutions are slow
recorded   model by model, recorded once and replayed side by side: on GPUs
fused      the same, each model's operations joined by the compiler first: on GPUs, for steps that
           take long enough to make up for compiling
=========  =======================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from typing import Protocol, final

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from sfumato.core import validation
from sfumato.learning.convolutions import convolutions_timed
from sfumato.learning.ensembles.optimizers import Optimizer
from sfumato.learning.ensembles.stacking import Weights, logits_of, weighted_loss

__all__ = ["ENGINES", "Apart", "Engine", "Fused", "Recorded", "Stacked", "make_engine"]

ENGINES = ("apart", "fused", "recorded", "stacked")
"""The names of engines; see the module."""

_STREAMS = 8  # more made nothing faster on an H200


class Engine(Protocol):
    """Takes steps, changing weights and the optimizer's state in place."""

    def step(self, inputs: Tensor, labels: Tensor, counted: Tensor, rate: float) -> None:
        """Inputs (models, batch, ...), labels and marks of rows that count (models, batch)."""
        ...


def make_engine(
    name: str | None, skeleton: nn.Module, weights: Weights, optimizer: Optimizer, half: bool
) -> Engine:
    """By name, or the fastest for the weights' device.

    Args:
        name: one of :data:`ENGINES`, or None.
        skeleton: a model whose own weights are not used.
        weights: of all models.
        optimizer: changes them.
        half: compute in bfloat16 where that is accurate enough (``torch.autocast``).
    """
    on_gpu = next(iter(weights.values())).is_cuda
    chosen = name or ("recorded" if on_gpu else "apart")
    if chosen not in ENGINES:
        validation.fail("engine", f"one of {', '.join(ENGINES)}", name)
    if chosen in ("fused", "recorded") and not on_gpu:
        validation.fail("engine", "'apart' or 'stacked' where there is no GPU", name)
    kinds = {"apart": Apart, "fused": Fused, "recorded": Recorded, "stacked": Stacked}
    return kinds[chosen](skeleton, weights, optimizer, half)


@final
class Stacked:
    """Every operation once, for all models (``torch.func.vmap``)."""

    def __init__(
        self, skeleton: nn.Module, weights: Weights, optimizer: Optimizer, half: bool
    ) -> None:
        self.weights, self.optimizer, self.half = weights, optimizer, half

        def loss(own: Weights, inputs: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
            return weighted_loss(logits_of(skeleton, own, inputs), labels, counted)

        self._gradients = vmap(grad(loss), randomness="different")

    def step(self, inputs: Tensor, labels: Tensor, counted: Tensor, rate: float) -> None:
        """See :class:`Engine`."""
        with torch.autocast(inputs.device.type, torch.bfloat16, self.half):
            gradients = self._gradients(self.weights, inputs, labels, counted)
        active = (counted.sum(dim=1) > 0).to(counted.dtype)
        at = torch.tensor(rate, device=inputs.device)
        self.optimizer.update(self.weights, gradients, at, active)


class _OwnGradients:
    """What engines share that go model by model."""

    _channels_last = False

    def __init__(
        self, skeleton: nn.Module, weights: Weights, optimizer: Optimizer, half: bool
    ) -> None:
        self.weights, self.optimizer, self.half = weights, optimizer, half
        models = len(next(iter(weights.values())))
        self._skeletons = [deepcopy(skeleton) for _ in range(models)]  # threads share none

    def _update(self, each: list[tuple[Tensor, ...]], counted: Tensor, rate: Tensor) -> None:
        gradients = {
            name: torch.stack([found[place] for found in each])
            for place, name in enumerate(self.weights)
        }
        active = (counted.sum(dim=1) > 0).to(counted.dtype)
        self.optimizer.update(self.weights, gradients, rate, active)

    def _gradients(
        self, model: int, inputs: Tensor, labels: Tensor, counted: Tensor
    ) -> tuple[Tensor, ...]:
        own = {name: self._own(weight[model]) for name, weight in self.weights.items()}
        kind = inputs.device.type
        with torch.autocast(kind, torch.bfloat16, self.half, cache_enabled=False):
            loss = self._loss(self._skeletons[model], own, inputs, labels, counted)
        return torch.autograd.grad(loss, list(own.values()))

    def _loss(
        self, skeleton: nn.Module, own: Weights, inputs: Tensor, labels: Tensor, counted: Tensor
    ) -> Tensor:
        return weighted_loss(logits_of(skeleton, own, inputs), labels, counted)

    def _own(self, weight: Tensor) -> Tensor:
        if self._channels_last and weight.dim() == 4:
            weight = weight.contiguous(memory_format=torch.channels_last)
        return weight.detach().requires_grad_(True)


@final
class Apart(_OwnGradients):
    """Model by model, as many at a time as torch has threads, each with one thread."""

    def step(self, inputs: Tensor, labels: Tensor, counted: Tensor, rate: float) -> None:
        """See :class:`Engine`."""
        models = range(len(inputs))
        with _one_thread_each() as workers:
            if workers is None:
                each = [self._gradients(m, inputs[m], labels[m], counted[m]) for m in models]
            else:
                each = list(workers.map(self._gradients, models, inputs, labels, counted))
        self._update(each, counted, torch.tensor(rate, device=inputs.device))


_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


@contextmanager
def _one_thread_each() -> Iterator[ThreadPoolExecutor | None]:
    """Workers whose operations do not split up further; none if torch has one thread."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield None
        return
    key = os.getpid(), threads
    if key not in _POOLS:
        _POOLS[key] = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    torch.set_num_threads(1)
    try:
        yield _POOLS[key]
    finally:
        torch.set_num_threads(threads)


class Recorded(_OwnGradients):
    """Every model's own operations, recorded once as a CUDA graph on several streams.

    Convolutions of one model are faster than grouped ones of all; the recording makes starting
    them free, and streams let small ones run side by side. Images lie with their channels last, and
    convolutions are timed first, so that the recording has the fastest: of every model, since where
    its slice of a weight begins decides which algorithms there are.
    """

    _channels_last = True

    def __init__(
        self, skeleton: nn.Module, weights: Weights, optimizer: Optimizer, half: bool
    ) -> None:
        super().__init__(skeleton, weights, optimizer, half)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._streams = [torch.cuda.Stream() for _ in range(_STREAMS)]

    def step(self, inputs: Tensor, labels: Tensor, counted: Tensor, rate: float) -> None:
        """See :class:`Engine`. All steps have the same shapes."""
        if self._graph is None:
            self._at = torch.tensor(rate, device=inputs.device)
            self._given = (self._laid_out(inputs), labels.clone(), counted.clone())
            self._graph = self._record()
        for kept, given in zip(self._given, (inputs, labels, counted), strict=True):
            kept.copy_(given)
        self._at.fill_(rate)
        self._graph.replay()

    def _laid_out(self, inputs: Tensor) -> Tensor:
        """A copy, with each model's images in the order that the GPU's convolutions want."""
        if inputs.dim() != 5:
            return inputs.clone()
        return inputs.permute(0, 1, 3, 4, 2).contiguous().permute(0, 1, 4, 2, 3)

    def _record(self) -> torch.cuda.CUDAGraph:
        changed = [*self.weights.values(), *self.optimizer.state.values()]
        before = [tensor.clone() for tensor in changed]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), convolutions_timed():
            self._update(self._each(), self._given[2], self._at)
        torch.cuda.current_stream().wait_stream(side)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), convolutions_timed():
            self._all_models()
        return graph

    def _each(self) -> list[tuple[Tensor, ...]]:
        """Every model's gradients, one after the other."""
        models = zip(*self._given, strict=True)
        return [self._gradients(number, *given) for number, given in enumerate(models)]

    def _all_models(self) -> None:
        inputs, labels, counted = self._given
        here = torch.cuda.current_stream()
        for stream in self._streams:
            stream.wait_stream(here)
        each: list[tuple[Tensor, ...]] = []
        for model in range(len(inputs)):
            with torch.cuda.stream(self._streams[model % _STREAMS]):
                each.append(self._gradients(model, inputs[model], labels[model], counted[model]))
        for stream in self._streams:
            here.wait_stream(stream)
        self._update(each, counted, self._at)


@final
class Fused(Recorded):
    """As :class:`Recorded`, with fewer and larger operations: ``torch.compile`` of one model's."""

    def __init__(
        self, skeleton: nn.Module, weights: Weights, optimizer: Optimizer, half: bool
    ) -> None:
        super().__init__(skeleton, weights, optimizer, half)
        whole = super()._loss
        first = self._skeletons[0]  # all are the same, and one is compiled

        def loss(own: Weights, inputs: Tensor, labels: Tensor, counted: Tensor) -> Tensor:
            return whole(first, own, inputs, labels, counted)

        self._compiled = torch.compile(loss, fullgraph=True, dynamic=False)

    def _loss(
        self, skeleton: nn.Module, own: Weights, inputs: Tensor, labels: Tensor, counted: Tensor
    ) -> Tensor:
        del skeleton
        return self._compiled(own, inputs, labels, counted)
