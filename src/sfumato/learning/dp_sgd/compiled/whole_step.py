"""Forward, backward and clipping as one graph, for ``torch.compile``.

The private step is ordinary tensor code: the tape records it, autograd runs it backwards, norms and
weighted sums follow. Traced once on fake tensors (``make_fx``), all of that is one graph without
hooks or Python in it. It is rearranged to hold little memory, then ``torch.compile`` optimises it
as a whole.

The model runs with the float32 precision that the user allows; norms and sums do not
(:mod:`~sfumato.learning.dp_sgd.compiled.exact_products`). A call never waits for the GPU.

A graph has fixed shapes. Physical batches are therefore filled up to a common number of units with
rows of weight 0, which contribute exactly nothing. A model whose course depends on values cannot be
traced and says so.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.clipped_sum import ClippedSum, clip_and_sum, group_norms
from sfumato.learning.dp_sgd.clipping import Adaptive
from sfumato.learning.dp_sgd.compiled.captured import Captured
from sfumato.learning.dp_sgd.compiled.collecting import without_collection
from sfumato.learning.dp_sgd.compiled.exact_products import keep_whole
from sfumato.learning.dp_sgd.compiled.real_errors import RealErrors
from sfumato.learning.dp_sgd.compiled.rematerialised import (
    as_traced,
    reads_short_numbers,
    rematerialised,
)
from sfumato.learning.dp_sgd.compiled.roles import UNAVAILABLE, products_in_norms, simplified
from sfumato.learning.dp_sgd.compiled.together import apart, together
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.settling import allowances
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.physical import Part
from sfumato.learning.functions import standardised_conv2d

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


class _Step(NamedTuple):
    """A compiled step.

    Attributes:
        call: takes what ``_inputs`` gives; returns losses, norms and sums.
        names: whose sums these are.
        exactly: whether float32 products must not be shortened, whatever the user allows.
        rearranged: whether the graph is the one that holds little.
    """

    call: Callable[..., Any]
    names: list[str]
    exactly: bool
    rearranged: bool


class CompiledSum:
    """Clipped sums of physical batches, by a compiled graph for each padded size.

    Args:
        model: the user's.
        loss: ``loss(model, *batch)``.
        tape: whose sites the rehearsal filled in.
        total: where sums go.
        backend: what ``torch.compile`` is told; "eager" runs the traced graph as it is.
        channels_last: whether images and kernels are laid out so; by default on GPUs, where
            convolutions are faster for it. Results are the same.
        capture: whether to record the compiled call as a CUDA graph and replay it; by default on
            GPUs.
        room: how many units a graph is made for; a larger batch makes another.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        tape: Tape,
        total: ClippedSum,
        backend: str = "inductor",
        channels_last: bool | None = None,
        capture: bool | None = None,
        room: int = 0,
    ) -> None:
        self._module = _Losses(model, loss)
        self._tape, self._total, self._backend = tape, total, backend
        on_gpu = self._device.type == "cuda"
        self._channels_last = on_gpu if channels_last is None else channels_last
        self._capture = on_gpu and capture is not False
        self._graphs: dict[Any, _Step] = {}
        self._sent: tuple[tuple[float, ...], Tensor] | None = None
        self._room = _rounded_up(room)

    def __call__(self, batch: tuple[Any, ...], part: Part, loss_scale: float) -> None:
        """Adds a physical batch to the lot's sum."""
        copies = len(part.rows) // part.units
        if part.units > self._room:
            self._room = _rounded_up(int(part.units * 1.05))
        units = self._room
        leaves, spec = pytree.tree_flatten(batch)
        leaves = [_fill(leaf, units * copies) for leaf in leaves]
        inputs = self._inputs(leaves, self._weights(part.weights, units * copies))
        key = (units, spec, tuple(map(_kind, leaves)), self._training(), loss_scale, _allowed())
        # Mixed precision is part of the graph where the loss asks for it, and nowhere else.
        with torch.autocast(self._device.type, enabled=False):
            first = key not in self._graphs
            if first:
                self._graphs[key] = self._compiled(leaves, spec, units, loss_scale, inputs)
            step = self._graphs[key]
            precision = full_precision() if step.exactly else contextlib.nullcontext()
            with precision, without_collection(first), RealErrors():
                losses, norms, *sums = step.call(*inputs)
        found = dict(zip(step.names, sums, strict=True))
        whole = part.last and self._total.facts.units == 0  # its sums need no other place
        self._total.merge(found, norms[: part.present], losses[: len(part.rows)], whole)

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
        leaves, spec = pytree.tree_flatten(values)
        for leaf in leaves:
            _kind(leaf)  # or says why not
        weights = self._weights(np.full(rows, 1 / copies), rows)
        with torch.autocast(self._device.type, enabled=False):
            self._trace(leaves, spec, _GRAIN, loss_scale, self._inputs(leaves, weights))

    # --- what a graph takes -----------------------------------------------------------------------

    @property
    def _device(self) -> torch.device:
        return next(iter(self._total.parameters.values())).device

    def _inputs(self, leaves: list[Any], weights: Tensor) -> tuple[Tensor, ...]:
        """Parameters and buffers, the batch's tensors, the rows' weights and the clip norms."""
        held = [value.detach() for value in self._held().values()]
        return *held, *(leaf for leaf in leaves if isinstance(leaf, Tensor)), weights, self._bound()

    def _held(self) -> dict[str, Tensor]:
        return dict(self._module.named_parameters()) | dict(self._module.named_buffers())

    def _weights(self, weights: NDArray[np.float64], rows: int) -> Tensor:
        """Filled up with zeros, and on its way to the device without waiting for it."""
        filled = torch.zeros(rows, dtype=torch.float32)
        filled[: len(weights)] = torch.as_tensor(weights, dtype=torch.float32)
        if self._device.type == "cuda":
            filled = filled.pin_memory()
        return filled.to(self._device, non_blocking=True)

    def _bound(self) -> Tensor:
        """The clip norms, sent to the device only when they change."""
        bounds = self._total.bounds
        if self._sent is None or self._sent[0] != bounds:
            sent = torch.tensor(bounds, dtype=torch.float64, device=self._device)
            self._sent = (bounds, sent)
        return self._sent[1]

    def _training(self) -> tuple[bool, ...]:
        return tuple(module.training for module in self._module.modules())

    # --- how a graph is made ----------------------------------------------------------------------

    def _compiled(
        self, leaves: list[Any], spec: Any, units: int, loss_scale: float, inputs: Sequence[Tensor]
    ) -> _Step:
        graph, names, extra = self._trace(leaves, spec, units, loss_scale, inputs)
        weights = len(inputs) - 2
        final, exactly, rounds = None, True, True
        with contextlib.suppress(*UNAVAILABLE):  # then it runs as it was traced
            plain = simplified(graph, (*inputs, inputs[weights] * loss_scale), extra)
            if _allowed() != ("highest", False):
                keep_whole(plain)
            exactly, rounds = bool(products_in_norms(plain)), reads_short_numbers(plain)
            final = rematerialised(plain, weights, loss_scale)
        rearranged = final is not None
        if final is None:
            exactly = rounds = True  # its products are torch's own, which would shorten them
            final = as_traced(graph, weights, loss_scale, 1 + sum(extra))
        call = self._optimised(final, rounds)
        if self._capture:
            call = Captured(call, len(self._held()))
        return _Step(call, names, exactly, rearranged)

    def _optimised(self, graph: GraphModule, rounds: bool) -> Callable[..., Any]:
        if self._backend == "eager":
            return graph
        # Channels are laid out in the graph itself: the compiler must not change its mind.
        # And where a value is rounded to 16 bits it must be rounded for all who read it: a norm
        # computed beside it would otherwise see it as it was before. Kernels of our own read what
        # is in memory, and need no such care.
        options: dict[str, Any] = {"layout_optimization": False, "emulate_precision_casts": rounds}
        if self._device.type == "cpu":  # where the compiler's own generator has a key of 32 bits
            options["fallback_random"] = True
        return torch.compile(
            graph,
            backend=self._backend,
            dynamic=False,
            fullgraph=True,
            options=options if self._backend == "inductor" else None,
        )

    def _trace(
        self, leaves: list[Any], spec: Any, units: int, loss_scale: float, inputs: Sequence[Tensor]
    ) -> tuple[GraphModule, list[str], tuple[int, int]]:
        """The graph, whose sums it returns, and how many results more it has at its end.

        These are the output gradients that the chain rule delivered, and the allowances for
        rounding in norms. It takes the ``inputs`` and the tangent: the derivative of what is summed
        by each loss.
        """
        total, groups = self._total, self._total.groups
        names = list(self._held())
        trained = {f"model.{name}": name for name in total.parameters}
        summed: list[str] = []
        delivered: list[Tensor] = []
        allowed: list[Tensor] = []

        def clipped(*flat: Tensor) -> tuple[Tensor, ...]:
            *given, weights, bound, tangent = (self._laid_out(v) for v in flat)
            held = dict(zip(names, given, strict=False))
            tensors = iter(given[len(names) :])
            batch = [next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            own = {n: held[n].detach().requires_grad_() for n in trained}
            tape = _WatchedTape(
                {trained[n]: p for n, p in own.items()}, self._tape.sites,
                channels_last=self._channels_last,
            )  # fmt: skip
            with tape.recording(len(weights), units):
                losses = torch.func.functional_call(
                    self._module, {**held, **own}, pytree.tree_unflatten(batch, spec)
                )
            counted = torch.where(weights > 0, losses, torch.zeros_like(losses))
            gradients = tape.gradients((counted * tangent).sum())
            like = next(iter(own.values()))
            joined, regrouped = together(gradients, groups)
            norms = group_norms(joined, regrouped, like) / loss_scale
            scales = _scales(total, norms, bound) / loss_scale
            sums = apart(clip_and_sum(joined, regrouped, scales), joined)
            summed[:], delivered[:] = sums, tape.delivered
            allowed[:] = allowances(joined.pieces.values())
            more = scales, *delivered, *allowed
            return (counted * weights).detach(), norms, *sums.values(), *more

        tangent = inputs[-2] * loss_scale
        try:
            graph = make_fx(clipped, tracing_mode="fake", _allow_non_fake_inputs=True)(
                *inputs, tangent
            )
        except Exception as error:  # torch and the model's own code raise many kinds here
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise TrainingError(
                "the model cannot be compiled, most likely because its course depends on values "
                f"({reason}): train it with compile=False"
            ) from error
        return graph, summed, (len(delivered), len(allowed))

    def _laid_out(self, value: Tensor) -> Tensor:
        """Images and kernels with their channels last, where that is faster."""
        if not self._channels_last or value.ndim != 4:
            return value
        return value.contiguous(memory_format=torch.channels_last)


_CONVOLUTIONS = (F.conv2d, torch.conv2d, standardised_conv2d)


class _WatchedTape(Tape):
    """A tape that remembers which output gradients the chain rule delivered.

    With ``channels_last``, images and gradients reach two-dimensional convolutions laid out so: a
    normalisation before or after one may have changed it, and each would make a copy for itself.

    Gradients reach matrices in bfloat16 with 0 in place of what is not finite, for the chain rule,
    norms and sums alike, so that an ordinary matrix product can add them up. It costs nothing where
    the gradient is computed number by number anyway.
    """

    def __init__(self, *args: Any, channels_last: bool) -> None:
        super().__init__(*args)
        self._channels_last = channels_last
        self.delivered: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if self._channels_last and func in _CONVOLUTIONS and args and args[0].ndim == 4:
            args = (args[0].contiguous(memory_format=torch.channels_last), *args[1:])
        return super().__torch_function__(func, types, args, kwargs)

    def _await(self, call: Any, output: Tensor, key: Any, site: Any) -> None:
        if self._channels_last and call[0] in _CONVOLUTIONS and output.ndim == 4:
            output.register_hook(lambda grad: grad.contiguous(memory_format=torch.channels_last))
        super()._await(call, output, key, site)

    def _made_finite(self, call: Any, output: Tensor) -> bool:
        if call[0] not in (F.linear, torch.addmm) or output.dtype != torch.bfloat16:
            return False
        output.register_hook(lambda grad: torch.nan_to_num(grad, 0.0, 0.0, 0.0))
        return True

    def _receive(self, call: Any, grad: Tensor) -> None:
        self.delivered.append(grad.detach())
        super()._receive(call, grad)


def _scales(total: ClippedSum, norms: Tensor, bound: Tensor) -> Tensor:
    eta = total.eta
    if isinstance(total.clipping, Adaptive):  # its norm changes from lot to lot: an input
        ratio = norms / bound.to(norms.dtype)
        return total.clipping.scales(ratio, (1.0,), eta)
    return total.clipping.scales(norms, total.bounds, eta)


def _allowed() -> tuple[str, bool]:
    """What the user allows of shortened products, which a graph may have built in."""
    convolutions = torch.cuda.is_available() and torch.backends.cudnn.allow_tf32
    return torch.get_float32_matmul_precision(), convolutions


def _rounded_up(units: int) -> int:
    grain = _GRAIN if units >= 8 * _GRAIN else _GRAIN // 4
    return -(-units // grain) * grain


def _kind(leaf: Any) -> Any:
    """What a graph depends on: a tensor's shape and type, or the value itself."""
    if isinstance(leaf, Tensor):
        return tuple(leaf.shape), leaf.dtype
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return type(leaf), leaf
    raise TrainingError(
        f"a compiled step takes batches of tensors and plain values, got a {type(leaf).__name__}: "
        "make it a tensor, or train with compile=False"
    )


def _fill(leaf: Any, rows: int) -> Any:
    """The same rows, then the first of them again up to ``rows``."""
    if not isinstance(leaf, Tensor):
        return copy.copy(leaf)
    extra = rows - len(leaf)
    return torch.cat([leaf, leaf[:1].expand(extra, *leaf.shape[1:])]) if extra else leaf
