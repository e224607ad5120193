"""What a participant may do to a gradient before she sends it. Defences compose.

==================  ==========================================================================
``LocalSteps``      k steps of descent on her own examples first; sends their average gradient
``Clipping``        the whole gradient scaled down to a norm of at most S
``GaussianNoise``   noise of standard deviation s on every number of it
``PrivateSteps``    DP-SGD: each example's gradient clipped to C, noise of z C on their sum
``Dropout``         each activation left out with probability p
``Pruning``         a share p of the numbers, the smallest ones, set to zero
==================  ==========================================================================

Only one of them is a guarantee. ``PrivateSteps`` bounds what one example contributes to the sum by
C *before* noise that does not depend on any example is added, so the update of B examples, B
public, is a Gaussian release with noise multiplier z under add-or-remove of one record, for every
attacker and every model; no amplification, since the attacker knows whose update it is. The others
change what an attack finds, more or less: see docs/attacks-gradients.md for how much.

    >>> noisy = GaussianNoise(0.1)
    >>> str(noisy), str(Pruning(0.9)), PrivateSteps(clip=1.0, noise_multiplier=2.0).event()
    ('noise 0.1', 'pruning 90 %', GaussianEvent(noise_multiplier=2.0, ...))

In simulations noise follows a generator that is given, so that they can be repeated; for a release
use :class:`sfumato.DPSGD`, whose noise cannot.

The list is that of Liu, Wang and Lei, "Data reconstruction attacks and defenses: a systematic
evaluation", arXiv:2402.09478, and of a lecture by Lei (2024, table 1).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import Event, GaussianEvent

__all__ = [
    "Clipping",
    "Defence",
    "Dropout",
    "GaussianNoise",
    "Gradient",
    "LocalSteps",
    "Masks",
    "PrivateSteps",
    "Pruning",
    "norms_of",
    "scaled_rows",
]

Gradient = dict[str, Tensor]
"""By the name of the parameter."""
Masks = Mapping[str, Tensor]
"""By the name of the layer: what its output is multiplied with."""

_ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Softplus, nn.Tanh, nn.Sigmoid,
)  # fmt: skip


class Defence(ABC):
    """One thing that is done on the way from examples to an update; by default nothing.

    Attributes:
        random: whether it draws masks or noise.
        needs_examples: whether it treats gradients of examples one by one.
    """

    random: ClassVar[bool] = False
    needs_examples: ClassVar[bool] = False

    @abstractmethod
    def __str__(self) -> str:
        """In a few words."""

    def on_examples(self, each: Gradient) -> Gradient:
        """Of gradients of single examples, one a row."""
        return each

    def on_step(
        self, steps: Gradient, batch: int, generator: np.random.Generator | None
    ) -> Gradient:
        """Of mean gradients of a local step on ``batch`` examples, one participant a row."""
        return steps

    def on_updates(self, updates: Gradient, generator: np.random.Generator | None) -> Gradient:
        """Of what is about to be sent, one participant a row."""
        return updates

    def event(self) -> Event | None:
        """What one local step amounts to as a private release; None if it is none."""
        return None


@final
@dataclass(frozen=True)
class LocalSteps(Defence):
    """k steps of gradient descent on her own examples.

    Attributes:
        steps: k.
        rate: of a step.
        batch: examples of a step, in order and round again; None for all.
    """

    steps: int = 1
    rate: float = 0.1
    batch: int | None = None

    def __post_init__(self) -> None:
        validation.count("steps", self.steps)
        validation.positive("rate", self.rate)
        if self.batch is not None:
            validation.count("batch", self.batch)

    def __str__(self) -> str:
        return f"{self.steps} local step{'s' * (self.steps > 1)}"

    def rows(self, step: int, examples: int, device: torch.device | str = "cpu") -> Tensor:
        """Which examples a step takes; made on the device, so that a graph can hold it."""
        if self.batch is None or self.batch >= examples:
            return torch.arange(examples, device=device)
        first = step * self.batch
        return torch.arange(first, first + self.batch, device=device) % examples


@final
@dataclass(frozen=True)
class Clipping(Defence):
    """The whole update scaled down to a norm of at most ``norm``."""

    norm: float

    def __post_init__(self) -> None:
        validation.positive("norm", self.norm)

    def __str__(self) -> str:
        return f"clipped to {self.norm:g}"

    def on_updates(self, updates: Gradient, generator: np.random.Generator | None) -> Gradient:
        """S g / max(S, |g|)."""
        return scaled_rows(updates, self.norm / norms_of(updates).clamp_min(self.norm))


@final
@dataclass(frozen=True)
class GaussianNoise(Defence):
    """Noise of standard deviation ``deviation`` on every number of the update."""

    deviation: float
    random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validation.non_negative("deviation", self.deviation)

    def __str__(self) -> str:
        return f"noise {self.deviation:.3g}"

    def on_updates(self, updates: Gradient, generator: np.random.Generator | None) -> Gradient:
        """With s N(0, I) added."""
        return _noisy(updates, self.deviation, generator)


@final
@dataclass(frozen=True)
class PrivateSteps(Defence):
    """DP-SGD: gradients of examples clipped to ``clip``, noise on the sum of those of a step.

    Guarantee: a step on B examples, B public, is a Gaussian release with noise multiplier z for
    add-or-remove of one record: one record moves the sum by at most C in L2, the noise has standard
    deviation z C on every number. Dividing by B, and all later defences, are post-processing.

    Attributes:
        clip: C.
        noise_multiplier: z.
    """

    clip: float
    noise_multiplier: float
    random: ClassVar[bool] = True
    needs_examples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validation.positive("clip", self.clip)
        validation.positive("noise_multiplier", self.noise_multiplier)

    def __str__(self) -> str:
        return f"DP-SGD, clip {self.clip:g}, noise multiplier {self.noise_multiplier:.3g}"

    def on_examples(self, each: Gradient) -> Gradient:
        """Each scaled down to a norm of at most C; one that is no number is left out."""
        norms = norms_of(each)
        good = torch.isfinite(norms)
        clean = {
            name: torch.where(good.reshape((-1,) + (1,) * (part.ndim - 1)), part, 0.0)
            for name, part in each.items()
        }
        return scaled_rows(clean, self.clip / norms.nan_to_num(0.0).clamp_min(self.clip))

    def on_step(
        self, steps: Gradient, batch: int, generator: np.random.Generator | None
    ) -> Gradient:
        """Noise of z C on the sum is z C / B on the mean."""
        return _noisy(steps, self.noise_multiplier * self.clip / batch, generator)

    def event(self) -> GaussianEvent:
        """Of one step."""
        return GaussianEvent(self.noise_multiplier)


@final
@dataclass(frozen=True)
class Dropout(Defence):
    """Each activation left out with probability ``share``, the others scaled up, anew each update.

    A mask lasts for all examples and local steps of an update, and is told to the attacker: where a
    unit is left out, the gradients of its weights are zero, and she sees that.
    """

    share: float
    random: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validation.open_probability("share", self.share)

    def __str__(self) -> str:
        return f"dropout {self.share:.0%}".replace("%", " %")

    def masks(
        self, module: nn.Module, inputs: Tensor, count: int, generator: np.random.Generator
    ) -> Masks:
        """For every layer that is an activation function, and each participant: 0 or 1 / (1 - p).

        Args:
            module: the model.
            inputs: an example or more, of which only the shape matters.
            count: of participants.
            generator: of the coins.
        """
        shapes: dict[str, Tensor] = {}
        layers = [(n, m) for n, m in module.named_modules() if isinstance(m, _ACTIVATIONS)]
        if not layers:
            wanted = "a model whose activation functions are layers, for dropout"
            validation.fail("module", wanted, type(module).__name__)
        hooks = [
            layer.register_forward_hook(lambda _m, _given, out, name=n: shapes.update({name: out}))
            for n, layer in layers
        ]
        try:
            with torch.no_grad():
                module(inputs[:1])
        finally:
            for hook in hooks:
                hook.remove()
        coins, keep = _torch_generator(generator), 1 - self.share
        return {
            name: ((torch.rand((count, *out.shape), generator=coins) < keep) / keep).to(out)
            for name, out in shapes.items()
        }


@final
@dataclass(frozen=True)
class Pruning(Defence):
    """A share of the update's numbers, those of the least size, set to zero."""

    share: float

    def __post_init__(self) -> None:
        validation.open_probability("share", self.share)

    def __str__(self) -> str:
        return f"pruning {100 * self.share:.4g} %"

    def on_updates(self, updates: Gradient, generator: np.random.Generator | None) -> Gradient:
        """Over all parameters together; at least one number stays."""
        flat = torch.cat([part.flatten(1).abs() for part in updates.values()], dim=1)
        gone = min(flat.shape[1] - 1, round(self.share * flat.shape[1]))
        if gone == 0:
            return updates
        limits = flat.kthvalue(gone, dim=1).values
        return {
            name: part * (part.abs() > limits.reshape((-1,) + (1,) * (part.ndim - 1)))
            for name, part in updates.items()
        }


def norms_of(rows: Gradient) -> Tensor:
    """The L2 norm of each row, over all parameters."""
    squares = [part.flatten(1).double().square().sum(dim=1) for part in rows.values()]
    return torch.stack(squares).sum(dim=0).sqrt()


def scaled_rows(rows: Gradient, scales: Tensor) -> Gradient:
    """Each row times its own number."""
    return {
        name: part * scales.to(part.dtype).reshape((-1,) + (1,) * (part.ndim - 1))
        for name, part in rows.items()
    }


def _noisy(rows: Gradient, deviation: float, generator: np.random.Generator | None) -> Gradient:
    assert generator is not None  # asked for before
    coins = _torch_generator(generator)
    return {
        name: part + deviation * torch.randn(part.shape, generator=coins).to(part)
        for name, part in rows.items()
    }


def _torch_generator(generator: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(generator.integers(2**63)))
