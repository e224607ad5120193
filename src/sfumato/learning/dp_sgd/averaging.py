"""A moving average of the weights: a better model from the same noisy steps, for nothing.

The average is computed from released weights alone, so it is post-processing and costs no privacy.

With decay d, after step t = 0, 1, 2, ..::

    average = d_t average + (1 - d_t) weights,    d_t = min(d, (1 + t) / (10 + t))

from the initial weights on. Without the warm-up d_t = d, and the initial weights keep a share d^t.

    >>> model = nn.Linear(2, 1)
    >>> average = WeightAverage(model, decay=0.999)
    >>> average.update()
    >>> with average.applied():
    ...     prediction = model(torch.ones(2))

Reference: De et al., "Unlocking high-accuracy differentially private image classification through
scale", arXiv:2204.13650, section 3.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import final

import torch
from torch import Tensor, nn

from sfumato.core import validation

__all__ = ["WeightAverage"]

_COUNT = "updates"
_PREFIX = "average."  # before a parameter's name, which may be anything


@final
class WeightAverage:
    """The average of a model's trainable parameters, in float32 at least.

    Args:
        model: its parameters that are trainable now are averaged, each once. They are followed if
            the model moves to another device.
        decay: at least 0, below 1.
        warmup: whether the first steps are forgotten sooner.

    Attributes:
        decay: as given.
        warmup: as given.
        updates: how many steps were averaged.
    """

    def __init__(self, model: nn.Module, decay: float, warmup: bool = True) -> None:
        self.decay = validation.delta("decay", decay)
        self.warmup = bool(warmup)
        self._model = model
        self._parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self._applied = False
        self.restart()

    def restart(self) -> None:
        """Begins again, from the weights that the model has now."""
        if self._applied:
            raise RuntimeError("the model holds the average itself: restart outside applied()")
        self.updates = 0
        self._averages = {name: _precise(p) for name, p in self._parameters.items()}

    @property
    def is_applied(self) -> bool:
        """Whether the model holds the average at present."""
        return self._applied

    @torch.no_grad()
    def update(self) -> None:
        """Takes the model's weights in: once after every step."""
        if self._applied:
            raise RuntimeError("the model holds the average itself: update outside applied()")
        keep = self.decay
        if self.warmup:
            keep = min(keep, (1 + self.updates) / (10 + self.updates))
        for name, parameter in self._parameters.items():
            average = self._averages[name].to(parameter.device)
            self._averages[name] = average.lerp_(parameter.to(average.dtype), 1 - keep)
        self.updates += 1

    @contextlib.contextmanager
    def applied(self) -> Generator[nn.Module]:
        """The model with averaged weights for the time of the block.

        Afterwards, also after an exception, its weights are what they were, to the bit, in the same
        parameters and the same memory; what the block did to them is undone. Their version
        counters move.
        """
        if self._applied:
            raise RuntimeError("the model holds the average already: applied() does not nest")
        with torch.no_grad():
            kept = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._applied = True
        try:
            self._put(self._averages)
            yield self._model
        finally:
            self._put(kept)
            self._applied = False

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(values[name])

    def state(self, half: bool = False) -> dict[str, Tensor]:
        """What a checkpoint keeps; the averages share memory with this object.

        Args:
            half: averages in bfloat16 (8 bits), for half the room; resumed from, an average is off
                by 2^-9 of itself at most, which the steps that follow forget.
        """
        state = {_PREFIX + name: average for name, average in self._averages.items()}
        if half:
            state = {name: average.to(torch.bfloat16) for name, average in state.items()}
        return state | {_COUNT: torch.tensor(self.updates)}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Goes on from what :meth:`state` gave.

        Raises:
            ValueError: unless names, shapes and types are this average's; nothing changes then.
        """
        own = self.state()
        if state.keys() != own.keys():
            different = sorted(state.keys() ^ own.keys())[:3]
            raise ValueError(
                f"state must be of the same trainable parameters, differs in {different}: freeze "
                "and name them as they were"
            )
        for name, tensor in own.items():
            kept = (tensor.dtype,) if name == _COUNT else (tensor.dtype, torch.bfloat16)
            if state[name].shape != tensor.shape or state[name].dtype not in kept:
                raise ValueError(
                    f"state[{name!r}] must have shape {tuple(tensor.shape)} and type "
                    f"{tensor.dtype}, got {tuple(state[name].shape)} and {state[name].dtype}: "
                    "build the model as it was"
                )
        for name, average in self._averages.items():
            average.copy_(state[_PREFIX + name])
        self.updates = int(state[_COUNT])


def _precise(parameter: Tensor) -> Tensor:
    dtype = torch.promote_types(parameter.dtype, torch.float32)
    return parameter.detach().to(dtype, copy=True)
