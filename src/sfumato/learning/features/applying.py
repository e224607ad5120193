"""Applying a feature module to many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn

from sfumato.core import validation

__all__ = ["transform"]

_ON_CPU, _ON_GPU = 256, 4096


def transform(
    module: nn.Module,
    inputs: Tensor,
    *,
    batch: int | None = None,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int, int], object] | None = None,
) -> Tensor:
    """The features of all rows, computed ``batch`` rows at a time, without gradients.

    On a CPU as many batches run side by side as torch has threads, each on one thread (torch's
    setting for the process is changed meanwhile, and restored): threads that work on one operation
    together wait for each other after each, which takes far longer on a busy machine.

    Args:
        module: as built (and fitted) by a :class:`~sfumato.learning.features.base.FeatureMap`.
        inputs: (n, *shape), of any numeric type; rows go to where the module is.
        batch: rows at a time; by default 256 on a CPU and 4096 elsewhere.
        dtype: of the result; half precision halves its memory.
        progress: called with (rows done, rows in all) after every batch. Under add/remove the
            number of rows is private: show it to the operator only.

    Returns:
        (n, *out_shape), where ``inputs`` are.
    """
    if not dtype.is_floating_point:
        validation.fail("dtype", "a floating-point type", dtype)
    own = next(chain(module.parameters(), module.buffers()), None)
    device = inputs.device if own is None else own.device
    usual = _ON_CPU if device.type == "cpu" else _ON_GPU
    size, total = validation.count("batch", usual if batch is None else batch), len(inputs)

    def found(start: int) -> Tensor:
        with torch.no_grad():
            return module(inputs[start : start + size].to(device, torch.float32))

    def fill(start: int) -> int:
        out[start : start + size] = found(start)
        return min(start + size, total)

    told = progress or _nobody
    with _workers(device) as mapped:
        first = found(0)
        out = torch.empty(total, *first.shape[1:], dtype=dtype, device=inputs.device)
        out[:size] = first
        told(len(first), total)
        for done in mapped(fill, range(size, total, size)):
            told(done, total)
    return out


def _nobody(done: int, total: int) -> None:
    """Without anybody to tell."""


@contextmanager
def _workers(device: torch.device) -> Iterator[Callable[..., Iterator[int]]]:
    """``map``, by several threads where that is quicker; in the order of its arguments."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads < 2:
        yield map
        return
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(1)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
