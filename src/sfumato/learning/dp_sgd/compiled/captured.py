"""A compiled call, recorded once on the GPU and then replayed: for models of many small kernels.

A small model's step is a few hundred kernels of some microseconds each, and the processor that
launches them one by one is the slower of the two. A CUDA graph is launched as a whole. What is
replayed is what was recorded: the same kernels at the same addresses. So

- what varies (the batch, the weights, the clip norms) is copied into inputs of fixed place,
- parameters and buffers are read where they were; if any has moved, the call is recorded anew,
- results lie in memory that the next replay overwrites. Noise is added to them in place, and what
  is written there next has none: if anyone still holds a result by then (an optimizer that keeps
  gradients, say), it is left to them, and calls are ordinary from then on.

Dropout still draws anew at each replay: torch registers its generator with the graph, which reads
the key and the counter that :mod:`~sfumato.learning.secret_coins` gave it for the batch. The noise
of differential privacy is not part of what is recorded.

Reference: PyTorch documentation, "CUDA graphs", in "CUDA semantics".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["AFTER", "Captured", "record_on_gpu"]

AFTER = 3
"""Ordinary calls before one is recorded: compilers and libraries settle on their kernels first."""

Call = Callable[..., Any]
Record = Callable[[Callable[[], Any]], tuple[Callable[[], None], Any]]


class _Recording(NamedTuple):
    places: tuple[Any, ...]
    inputs: list[Tensor]
    replay: Callable[[], None]
    results: Any
    holders: tuple[int, ...]


def record_on_gpu(call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Records ``call`` on the current device; it runs once for real beforehand.

    Returns:
        What replays it, and its results, which only hold something after a replay.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads, which may be fetching data, are free to allocate meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = call()
    return graph.replay, results


class Captured:
    """The same call, replayed from the fourth time on.

    Args:
        call: takes tensors of the same shapes each time; must not keep or return its inputs.
        fixed: how many of the inputs, from the first, keep their places (parameters and buffers).
        record: records a call; :func:`record_on_gpu` but for tests.

    Attributes:
        refused: whether recording failed once, or results were kept; it is never tried again, and
            calls stay ordinary.
    """

    def __init__(self, call: Call, fixed: int, record: Record = record_on_gpu) -> None:
        self._call, self._fixed, self._record = call, fixed, record
        self._recording: _Recording | None = None
        self._runs = 0
        self.refused = False

    def __call__(self, *inputs: Tensor) -> Any:
        """The call's results, valid until the next call."""
        if self.refused or self._runs < AFTER:
            self._runs += 1
            return self._call(*inputs)
        recording = self._recording
        if recording is not None and _holders(recording.results) != recording.holders:
            self._recording, self.refused = None, True
            return self._call(*inputs)
        if recording is None or recording.places != _places(inputs[: self._fixed]):
            recording = self._recorded(inputs)
        if recording is None:
            return self._call(*inputs)
        for held, given in zip(recording.inputs, inputs[self._fixed :], strict=True):
            held.copy_(given, non_blocking=True)
        recording.replay()
        # Aliases: whoever keeps one, or a view of it, is seen as a holder of its memory.
        return pytree.tree_map_only(Tensor, Tensor.detach, recording.results)

    def _recorded(self, inputs: Sequence[Tensor]) -> _Recording | None:
        self._recording = None  # its memory may be used for the next
        fixed, varying = inputs[: self._fixed], inputs[self._fixed :]
        held = [given.clone() for given in varying]
        try:
            if len({given.device for given in inputs}) != 1:
                raise RuntimeError("inputs lie on several devices")
            replay, results = self._record(lambda: self._call(*fixed, *held))
            holders = _holders(results)
        except Exception:  # the driver, libraries and kernels raise many kinds here
            self.refused = True
            return None
        self._recording = _Recording(_places(fixed), held, replay, results, holders)
        return self._recording


def _places(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """Where tensors lie, and how."""
    return tuple((tensor.data_ptr(), tensor.stride()) for tensor in tensors)


def _holders(results: Any) -> tuple[int, ...]:
    """How many tensors lie in the memory of each."""
    tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, Tensor)]
    count = torch._C._storage_Use_Count  # pyright: ignore
    return tuple(count(tensor.untyped_storage()._cdata) for tensor in tensors)
