"""Forward, backward and clipping as one graph, for ``torch.compile``.

The private step is ordinary tensor code: the tape records it, autograd runs it backwards, norms and
weighted sums follow. Traced once on fake tensors (``make_fx``), all of that is one graph without
hooks or Python in it, which ``torch.compile`` then optimises as a whole.

A graph has fixed shapes. Physical batches are therefore filled up to a common number of units with
rows of weight 0, which contribute exactly nothing. A model whose course depends on values cannot be
traced and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.clipped_sum import ClippedSum, clip_and_sum, group_norms
from sfumato.learning.dp_sgd.clipping import Adaptive
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.physical import Part

__all__ = ["CompiledSum"]

_GRAIN = 32


class _Losses(nn.Module):
    """The model and its loss as one module, so that parameters can be passed in."""

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *batch: Any) -> Tensor:
        """One loss for each row."""
        return self.loss(self.model, *batch)


class CompiledSum:
    """Clipped sums of physical batches, by a compiled graph for each padded size.

    Args:
        model: the user's.
        loss: ``loss(model, *batch)``.
        tape: whose sites the rehearsal filled in.
        total: where sums go.
        backend: what ``torch.compile`` is told; "eager" runs the traced graph as it is.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        tape: Tape,
        total: ClippedSum,
        backend: str = "inductor",
    ) -> None:
        self._module = _Losses(model, loss)
        self._tape, self._total, self._backend = tape, total, backend
        self._graphs: dict[Any, Callable[..., Any]] = {}
        self._capacity = 0

    def __call__(self, batch: tuple[Any, ...], part: Part, loss_scale: float) -> None:
        """Adds a physical batch to the lot's sum."""
        copies = len(part.rows) // part.units
        if part.units > self._capacity:
            self._capacity = -(-int(part.units * 1.05) // _GRAIN) * _GRAIN
        units = self._capacity
        names, spec, inputs = self._inputs(batch, units * copies, part.weights)
        key = (units, spec, tuple(map(_kind, inputs[1])), self._training(), loss_scale)
        # Mixed precision is part of the graph where the loss asks for it, and nowhere else.
        with torch.autocast(inputs[2].device.type, enabled=False), full_precision():
            if key not in self._graphs:
                graph = self._trace(names, spec, units, loss_scale, inputs)
                self._graphs[key] = torch.compile(
                    graph, backend=self._backend, dynamic=False, fullgraph=True
                )
            sums, norms, losses = self._graphs[key](*inputs)
        names = [n for group in self._total.groups for n in group]
        found = {n: s for n, s in zip(names, sums, strict=True) if s is not None}
        self._total.merge(found, norms[: part.units], losses[: len(part.rows)])

    def check(self, imitate: Callable[[int], Any], copies: int, loss_scale: float) -> None:
        """Traces a batch of made-up rows: before anything is spent.

        Args:
            imitate: makes a batch of so many rows up.
            copies: rows of one unit.
            loss_scale: as for a call.

        Raises:
            TrainingError: if the model cannot be traced.
        """
        rows = _GRAIN * copies
        batch = imitate(rows)
        values = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
        names, spec, inputs = self._inputs(values, rows, np.full(rows, 1 / copies))
        with torch.autocast(inputs[2].device.type, enabled=False), full_precision():
            self._trace(names, spec, _GRAIN, loss_scale, inputs)

    def _inputs(
        self, batch: tuple[Any, ...], rows: int, weights: NDArray[np.float64]
    ) -> tuple[list[str], Any, tuple[Any, ...]]:
        """What a graph takes, the batch filled up to ``rows``."""
        leaves, spec = pytree.tree_flatten(batch)
        like = next(iter(self._total.parameters.values()))
        filled = torch.zeros(rows, dtype=torch.float32, device=like.device)
        filled[: len(weights)] = torch.as_tensor(weights, dtype=torch.float32)
        bound = torch.tensor(self._total.bounds, dtype=torch.float64, device=like.device)
        values = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        held = [v.detach() for v in values.values()]
        return list(values), spec, (held, [_fill(leaf, rows) for leaf in leaves], filled, bound)

    def _training(self) -> tuple[bool, ...]:
        return tuple(module.training for module in self._module.modules())

    def _trace(
        self, names: list[str], spec: Any, units: int, loss_scale: float, inputs: tuple[Any, ...]
    ) -> Callable[..., Any]:
        total, groups = self._total, self._total.groups
        trained = {f"model.{name}": name for name in total.parameters}

        def clipped(
            values: list[Tensor], leaves: list[Any], weights: Tensor, bound: Tensor
        ) -> tuple[list[Tensor | None], Tensor, Tensor]:
            held = dict(zip(names, values, strict=True))
            own = {n: held[n].detach().requires_grad_() for n in trained}
            tape = Tape({trained[n]: p for n, p in own.items()}, self._tape.sites)
            batch = pytree.tree_unflatten(leaves, spec)
            with tape.recording(len(weights), units):
                losses = torch.func.functional_call(self._module, {**held, **own}, batch)
            counted = torch.where(weights > 0, losses, torch.zeros_like(losses)) * weights
            gradients = tape.gradients(counted.sum() * loss_scale)
            like = next(iter(own.values()))
            norms = group_norms(gradients, groups, like) / loss_scale
            scales = _scales(total, norms, bound) / loss_scale
            sums = clip_and_sum(gradients, groups, scales)
            return [sums.get(n) for g in groups for n in g], norms, counted.detach()

        try:
            return make_fx(clipped, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
        except Exception as error:  # torch and the model's own code raise many kinds here
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise TrainingError(
                "the model cannot be compiled, most likely because its course depends on values "
                f"({reason}): train it with compile=False"
            ) from error


def _scales(total: ClippedSum, norms: Tensor, bound: Tensor) -> Tensor:
    eta = total.eta
    if isinstance(total.clipping, Adaptive):  # its norm changes from lot to lot: an input
        ratio = norms / bound.to(norms.dtype)
        return total.clipping.scales(ratio, (1.0,), eta)
    return total.clipping.scales(norms, total.bounds, eta)


def _kind(leaf: Any) -> Any:
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else repr(leaf)


def _fill(leaf: Any, rows: int) -> Any:
    """The same rows, then the first of them again up to ``rows``."""
    if not isinstance(leaf, Tensor):
        return copy.copy(leaf)
    extra = rows - len(leaf)
    return torch.cat([leaf, leaf[:1].expand(extra, *leaf.shape[1:])]) if extra else leaf
