"""Gradients of convolutions, in one, two or three dimensions, plain or transposed.

A convolution is a matrix product of its kernel with patches of its input: with patches (places,
columns = taps x channels) and output gradients (rows, places), each example's gradient is their
product. Patches are laid out channels last, so that each is a few long runs of memory, and only for
as many examples at a time as stay in a processor's cache; no unfolded batch ever exists.

A transposed convolution exchanges the two: its kernel's gradient is that of a plain convolution
whose input is the output gradient and whose output gradient is the input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients import summing
from sfumato.learning.dp_sgd.gradients.cost import prefer_ghost
from sfumato.learning.dp_sgd.gradients.memory import Scratch, in_place
from sfumato.learning.dp_sgd.gradients.pieces import (
    Direct,
    Piece,
    exact,
    gram_norms,
)
from sfumato.learning.dp_sgd.gradients.summing import weigh, zero_rows

__all__ = ["Convolution", "Geometry", "resolve_padding"]

_CACHE_CPU = 2**19  # numbers of patches and gradients at a time: two megabytes stay in a cache
_CACHE_GPU = 2**27


@dataclass(frozen=True)
class Geometry:
    """A plain convolution's kernel lengths and how it walks."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1


def resolve_padding(
    padding: str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """(before, after) in each dimension, as torch reads ``padding``."""
    if padding == "valid":
        return tuple((0, 0) for _ in kernel)
    if padding == "same":
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    assert not isinstance(padding, str)
    return tuple((p, p) for p in padding)


@final
@dataclass
class Convolution(Piece):
    """A kernel's gradients: (rows, channels, *lengths) in, (rows, out channels, *places) back.

    ``rows`` is a multiple of ``units``: consecutive rows belong to one unit. Factors may come in
    the model's own precision; here they are used in float32.
    """

    inputs: Tensor
    outputs: Tensor
    units: int
    geometry: Geometry
    scratch: Scratch = field(default_factory=Scratch)
    name: str = ""

    @property
    def _lengths(self) -> torch.Size:
        return self.outputs.shape[2:]

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Places, rows and columns of one group's matrix."""
        copies = self.inputs.shape[0] // max(self.units, 1)
        groups, taps = self.geometry.groups, math.prod(self.geometry.kernel)
        channels = self.inputs.shape[1] // groups
        return copies * math.prod(self._lengths), self.outputs.shape[1] // groups, taps * channels

    def exactly(self) -> Convolution:
        """The same with factors in the precision of norms and sums."""
        return replace(self, inputs=exact(self.inputs), outputs=exact(self.outputs))

    def settle(self) -> Piece:
        """Writes the gradients out where that is cheaper."""
        found = self.exactly()
        if prefer_ghost(self.units, *self._sizes, self.outputs.device.type):
            return found
        return _Written(found._matrices(self.scratch), found)

    def squared_norms(self) -> Tensor:
        """From Gram matrices of patches and of output gradients, some examples at a time."""
        spread = summing.spread(self._sizes[0], self.outputs.dtype, whole=True)
        parts = [gram_norms(grads.mT, patches, spread) for grads, patches in self._chunks()]
        groups = self.geometry.groups
        norms = [p.view(-1, groups).sum(1) for p in parts]
        return torch.cat(norms) if norms else self.outputs.new_zeros(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Ordinary weight gradients, of output gradients times weights.

        In a graph that is traced, where each would be a part of its own: every unit's, some at a
        time.
        """
        copies = self.inputs.shape[0] // max(self.units, 1)
        per_row = weights.repeat_interleave(copies) if copies != 1 else weights
        outputs = weigh(self.outputs, per_row)
        inputs = zero_rows(self.inputs, per_row, owned=False)
        if not len(inputs):
            return _kernel_gradient(inputs, outputs, self.geometry).double()
        most = summing.units_of(self._sizes[0])
        if in_place(outputs):
            parts = (
                _kernel_gradient(inputs[rows], outputs[rows], self.geometry)
                for rows in summing.blocks(len(inputs), most * copies)
            )
        else:
            weighted = replace(self, inputs=inputs, outputs=outputs)
            every = (torch.bmm(grads, patches) for grads, patches in weighted._chunks())
            parts = (
                _to_kernel(
                    few.view(-1, self.geometry.groups, *few.shape[1:]).sum(0, dtype=torch.float64),
                    self.geometry,
                )
                for few in every
            )
        found = summing.added(parts)
        assert found is not None
        return found

    def written(self) -> Tensor:
        """(U, out channels, channels, *kernel), in memory of their own."""
        return _to_kernel(self.exactly()._matrices(scratch=Scratch()), self.geometry)

    def _matrices(self, scratch: Scratch) -> Tensor:
        """(U, groups, rows, taps x channels): every unit's gradient, channels last."""
        _, rows, columns = self._sizes
        groups = self.geometry.groups
        like = self.outputs
        if in_place(like):
            shape = (self.units, groups, rows, columns)
            out = scratch.take((self.name, "written"), shape, like)
            flat, start = out.view(-1, rows, columns), 0
            for grads, patches in self._chunks():
                torch.bmm(grads, patches, out=flat[start : start + len(grads)])
                start += len(grads)
            return out
        parts = [torch.bmm(grads, patches) for grads, patches in self._chunks()]
        flat = torch.cat(parts) if parts else like.new_zeros((0, rows, columns))
        return flat.view(self.units, groups, rows, columns)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """((n groups, rows, places), (n groups, places, columns)) for some units at a time."""
        places, rows, columns = self._sizes
        groups, units = self.geometry.groups, self.units
        if not units:
            return
        cache = _CACHE_CPU if in_place(self.outputs) else _CACHE_GPU
        step = max(1, cache // max(1, groups * places * (rows + columns)))
        copies = self.inputs.shape[0] // units
        grads = self.outputs.reshape(units, copies, groups, rows, -1)
        grads = grads.permute(0, 2, 3, 1, 4).reshape(-1, rows, places)  # a view of single copies
        windows = self._windows().unflatten(0, (units, copies)).movedim(-2, 1)
        for start in range(0, units, step):
            stop = min(start + step, units)
            patches = windows[start:stop].reshape(-1, places, columns)
            yield grads[start * groups : stop * groups], patches

    def _windows(self) -> Tensor:
        """A view of the inputs: (rows, *lengths, *taps, groups, their channels)."""
        g, inputs = self.geometry, _padded_channels_last(self.inputs, self.geometry)
        strides = inputs.stride()
        walk = [s * step for s, step in zip(strides[1:-1], g.stride, strict=True)]
        taps = [s * step for s, step in zip(strides[1:-1], g.dilation, strict=True)]
        shape = (len(inputs), *self._lengths, *g.kernel, inputs.shape[-1])
        view = inputs.as_strided(
            shape, (strides[0], *walk, *taps, strides[-1]), inputs.storage_offset()
        )
        return view.unflatten(-1, (g.groups, inputs.shape[-1] // g.groups))


def _padded_channels_last(inputs: Tensor, geometry: Geometry) -> Tensor:
    last = inputs.movedim(1, -1)
    pads = [p for pair in reversed(geometry.padding) for p in pair]
    if any(pads):
        return F.pad(last, [0, 0, *pads]).contiguous()
    return last.contiguous()


def _to_kernel(matrices: Tensor, geometry: Geometry) -> Tensor:
    """(..., groups, rows, taps x channels) as (..., out channels, channels, *kernel)."""
    tall = matrices.flatten(-3, -2)
    return tall.unflatten(-1, (*geometry.kernel, -1)).movedim(-1, matrices.ndim - 2)


def _kernel_gradient(inputs: Tensor, outputs: Tensor, geometry: Geometry) -> Tensor:
    """The ordinary gradient of a convolution's kernel, summed over all rows."""
    g, dims = geometry, len(geometry.kernel)
    before = [pair[0] for pair in g.padding]
    # Where the walk ends; an output padding may lie more than a step beyond it.
    ends = [
        (length - 1) * step + (taps - 1) * spread + 1
        for length, step, taps, spread in zip(
            outputs.shape[2:], g.stride, g.kernel, g.dilation, strict=True
        )
    ]
    beyond = [
        n + a + b - end for n, (a, b), end in zip(inputs.shape[2:], g.padding, ends, strict=True)
    ]
    uneven = any(a != b for a, b in g.padding)
    if uneven or any(n >= step for n, step in zip(beyond, g.stride, strict=True)):
        inputs = F.pad(inputs, [p for pair in reversed(g.padding) for p in pair])
        before = [0] * dims
        for dim, end in enumerate(ends):
            inputs = inputs.narrow(dim + 2, 0, end)
    kernel = inputs.new_empty((outputs.shape[1], inputs.shape[1] // g.groups, *g.kernel))
    if not inputs.shape[0]:
        return kernel.zero_()
    return torch.ops.aten.convolution_backward(
        outputs.contiguous(), inputs, kernel, None, list(g.stride), before, list(g.dilation),
        False, [0] * dims, g.groups, [False, True, False],
    )[1]  # fmt: skip


@final
@dataclass
class _Written(Piece):
    """A convolution's gradients written out, channels last."""

    matrices: Tensor
    source: Convolution

    def __post_init__(self) -> None:
        # The geometry is all that is still needed: activations and gradients may go.
        empty = self.matrices.new_empty(0)
        self.source = replace(self.source, inputs=empty, outputs=empty)

    def squared_norms(self) -> Tensor:
        """The sums of squares."""
        return Direct(self.matrices).squared_norms()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One product of a vector with a matrix, then the kernel's order."""
        return _to_kernel(Direct(self.matrices).weighted_sum(weights), self.source.geometry)

    def written(self) -> Tensor:
        """(U, out channels, channels, *kernel)."""
        return _to_kernel(self.matrices, self.source.geometry)
