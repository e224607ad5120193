"""Which way to a weight's norms: a cost model, and where that is close, a short timing.

Sizes alone decide, never numbers: what is timed are made-up factors of the same sizes, once for
each size and type on each kind of GPU. See :mod:`~sfumato.learning.dp_sgd.gradients.products` for
the ways.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from sfumato.learning.dp_sgd.kernels import products
from sfumato.learning.dp_sgd.kernels.products import Shape

__all__ = ["choose_way", "confirmed_way", "forget"]

CLOSE = 3.0
"""Ways whose arithmetic differs by less are timed."""

_UNITS = 264  # enough to fill a large GPU, few enough to take no time
_WARM, _RUNS = 2, 5
_NAP = (
    10_000_000  # clock ticks: the GPU waits until all has been started, so Python's time is not in
)
_known: dict[Hashable, str] = {}

Measure = Callable[[Callable[[], Any]], float]


def forget() -> None:
    """Ways are timed anew."""
    _known.clear()


def choose_way(shape: Shape, factors: int) -> str:
    """The cheapest way to the norms by arithmetic and memory.

    Args:
        shape: of the product.
        factors: bytes of both factors.
    """
    if shape.places == 1:
        return "one place"
    if 4 * shape.units * shape.rows * shape.columns <= factors:
        return "written"
    return "gram" if _costs(shape)["gram"] < _costs(shape)["direct"] else "direct"


def _costs(shape: Shape) -> dict[str, float]:
    """Multiply-adds of a unit; about three quarters of a Gram matrix's tiles are computed."""
    gram = 0.75 * shape.places**2 * (shape.rows + shape.columns)
    return {"gram": gram, "direct": float(shape.places * shape.rows * shape.columns)}


def confirmed_way(
    x: Tensor,
    g: Tensor,
    geometry: list[int],
    units: int,
    scale: bool = False,
    measure: Measure | None = None,
) -> str:
    """The same, timed where it is a close call and kernels run.

    Args:
        x: (n, height, width, channels), real or made up by a tracer.
        g: (n, out height, out width, rows).
        geometry: kernel, stride, padding, dilation.
        units: U.
        scale: whether Gram matrices are followed by an ordinary matrix product.
        measure: seconds of a call; by default on GPUs alone.
    """
    shape = products.shape_of(x, g, geometry, units)
    way = choose_way(shape, 2 * (x.numel() + g.numel()))
    gram, direct = _costs(shape).values()
    if way not in ("gram", "direct") or max(gram, direct) > CLOSE * min(gram, direct):
        return way
    if measure is None and x.device.type != "cuda":
        return way
    sizes = x.shape[1:], g.shape[1:], tuple(geometry), len(x) // units
    key = (str(x.device), x.dtype, sizes, scale)
    if key not in _known:
        _known[key] = _quickest(x, g, geometry, units, scale, measure or _on_gpu)
    return _known[key]


def _quickest(
    x: Tensor, g: Tensor, geometry: list[int], units: int, scale: bool, measure: Measure
) -> str:
    few = min(units, _UNITS)
    rows = few * (len(x) // units)
    with _disable_current_modes(), torch.no_grad():  # real tensors, also while a graph is traced
        made = [torch.ones((rows, *f.shape[1:]), dtype=f.dtype, device=f.device) for f in (x, g)]
        weights = torch.ones(few, device=x.device)
        ways = products.ways(made[0], made[1], weights, geometry, few, scale)
        times = {way: measure(call) for way, call in ways.items()}
    return min(times, key=times.__getitem__)


def _on_gpu(call: Callable[[], Any]) -> float:
    for _ in range(_WARM):
        call()
    times: list[float] = []
    for _ in range(_RUNS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_NAP)  # pyright: ignore[reportPrivateUsage]
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)
