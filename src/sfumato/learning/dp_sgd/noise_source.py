"""What a source of noise is: normal numbers, a noisy mean, a noisy update.

Every source gives independent normal numbers; see :class:`NoiseSource`. A step needs "sum plus
noise, divided by the expected lot size" and then an update of the parameter. A source may offer
the first alone (:class:`FusedNoise`) or both (:class:`UpdatingNoise`) in one pass over memory.
What is released is the same noisy mean each time; the update is post-processing of it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.dp_sgd.kernels.updates import Update

__all__ = [
    "FusedNoise",
    "NoiseSource",
    "UpdatingNoise",
    "checked",
    "checked_mean",
    "noisy_mean",
]


class NoiseSource(Protocol):
    """Where the noise of a run comes from."""

    @property
    def name(self) -> str:
        """For the record."""
        ...

    @property
    def private(self) -> bool:
        """Whether the noise may be called private."""
        ...

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Fresh independent N(0, std^2) numbers in the shape, type and place of ``like``."""
        ...


@runtime_checkable
class FusedNoise(Protocol):
    """A source that adds its noise and divides in one pass."""

    def noisy_mean(self, total: Tensor, std: float, size: float, out: Tensor) -> None:
        """Writes ``(total + noise) / size`` to ``out``, with fresh N(0, std^2) noise."""
        ...


@runtime_checkable
class UpdatingNoise(Protocol):
    """A source that adds its noise, divides and updates a parameter in one pass."""

    def updates(self, total: Tensor) -> bool:
        """Whether it has a way to do so for such a sum that is quicker than a mean first."""
        ...

    def noisy_update(self, by: Update, total: Tensor, std: float, size: float) -> None:
        """Updates a parameter by ``(total + noise) / size``, with fresh N(0, std^2) noise.

        The sum stays as it is.
        """
        ...


@torch.no_grad()
def noisy_mean(source: NoiseSource, total: Tensor, std: float, size: float, out: Tensor) -> None:
    """Writes ``(total + noise) / size`` to ``out``, with fresh N(0, std^2) noise from ``source``.

    Args:
        source: where noise comes from; its own ``noisy_mean`` does the work if it has one.
        total: a clean sum.
        std: standard deviation of the noise.
        size: the expected lot size.
        out: of the sum's shape and place, of any floating-point type; ``total`` itself, or memory
            that does not overlap with it.
    """
    if isinstance(source, FusedNoise):
        source.noisy_mean(total, std, size, out)
    else:
        size = checked_mean(total, size, out)
        out.copy_((total + source.normal(total, std)) / size)


def as_noise_needs(source: NoiseSource, total: Tensor, precision: torch.dtype) -> Tensor:
    """What :meth:`NoiseSource.normal` is given for a float64 sum of such parameters.

    The sum itself, or for a source that makes float32 numbers faster on its device, a float32
    tensor of its shape. Noise is added in float64 either way.
    """
    if precision == torch.float64 or not isinstance(source, FusedNoise) or not total.is_cuda:
        return total
    return torch.empty_like(total, dtype=torch.float32)


def checked(like: Tensor, std: float) -> float:
    """A standard deviation for noise like ``like``."""
    if not like.is_floating_point():
        validation.fail("like", "a tensor of floating-point numbers", like.dtype)
    return validation.non_negative("std", std)


def checked_mean(total: Tensor, size: float, out: Tensor) -> float:
    """A lot size for a mean of ``total`` that goes to ``out``."""
    if out.shape != total.shape or out.device != total.device or not out.is_floating_point():
        needed = f"floating point, {tuple(total.shape)} on {total.device} like total"
        validation.fail("out", needed, (out.dtype, tuple(out.shape), out.device))
    return validation.positive("size", size)
