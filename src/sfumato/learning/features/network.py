"""Features from a network that was trained on public data.

    features = PublicNetwork(
        "cifar100.safetensors", "wrn", source="trained on CIFAR-100 by the authors, 2024"
    )

The weights are a safetensors file, read whole, checked against its SHA-256, and never unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import Coins
from sfumato.learning.features.base import FeatureMap, checked_shape
from sfumato.learning.models import make_model
from sfumato.learning.models.public_weights import (
    check_weights,
    checked_digest,
    checked_source,
    public_weights,
)

__all__ = ["PublicNetwork"]

_Options = Mapping[str, Any] | tuple[tuple[str, Any], ...]


@final
@dataclass(frozen=True)
class PublicNetwork(FeatureMap):
    """A frozen network, cut before its last layer or layers.

    Costs no privacy *if the weights are public*: that they are, and do not stem from the private
    data, is declared by whoever uses them, in ``source``, and stated in the record.

    Attributes:
        path: a safetensors file with the weights of the whole network or of the part that is kept,
            named as in ``make_model(model, shape, ...).state_dict()``; a run's
            ``model.safetensors`` will do.
        model: the architecture, a name for :func:`~sfumato.learning.models.make_model`.
        source: one line that says where the weights come from.
        layers: how many of the last layers that have weights are cut off, with all that follows
            the first of them.
        options: of the architecture.
        sha256: of the file. By default of the file as it is now; a file that changes is refused.
    """

    kind: ClassVar[str] = "network"
    path: str
    model: str
    source: str
    layers: int = 1
    options: _Options = ()
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path):
            validation.fail("path", "a safetensors file", self.path)
        checked_source(self.source)
        values = {
            "path": str(self.path),
            "model": validation.name("model", self.model),
            "layers": validation.count("layers", self.layers),
            "options": tuple((str(k), _frozen(v)) for k, v in dict(self.options).items()),
            "sha256": checked_digest(self.sha256, str(self.path)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The network, its weights as buffers, always in eval mode."""
        kept, rest = self._cut(checked_shape(shape))
        own = kept.state_dict()
        weights = public_weights(self.path, self.sha256, [*own, *rest])
        check_weights(weights, own, set(rest), self.path)
        kept.load_state_dict({name: weights[name] for name in own})
        return _Frozen(kept)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """What the part that is kept gives for one row; does not read the file."""
        kept, _ = self._cut(checked_shape(shape))
        with torch.no_grad():
            return tuple(kept.eval()(torch.zeros(1, *shape, dtype=torch.float32)).shape[1:])

    def event(self, neighbours: Neighbours, unit: str) -> None:
        """Nothing is released."""

    def fit(self, module: nn.Module, inputs: Tensor, coins: Coins) -> None:
        """Nothing to fit."""

    @property
    def provenance(self) -> str:
        """The declared source, and which file it was."""
        return (
            f"a {self.model!r} network without its last {self.layers} layer(s), declared public: "
            f"{self.source} (SHA-256 {self.sha256})"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with ``"kind"``."""
        return super().to_dict() | {
            "options": {k: _thawed(v) for k, v in dict(self.options).items()}
        }

    def _cut(self, shape: tuple[int, ...]) -> tuple[nn.Sequential, list[str]]:
        """The layers that are kept, and the names of the weights of those that are not."""
        whole = make_model(self.model, shape, 2, **dict(self.options))
        if not isinstance(whole, nn.Sequential):
            validation.fail("model", "an nn.Sequential, which can be cut", type(whole).__name__)
        weighted = [i for i, part in enumerate(whole) if any(True for _ in part.parameters())]
        if self.layers >= len(weighted):
            below = f"below the {len(weighted)} layers with weights of {self.model!r}"
            validation.fail("layers", below, self.layers)
        kept = nn.Sequential(*list(whole)[: weighted[-self.layers]]).to(torch.float32)
        return kept, [name for name in whole.state_dict() if name not in kept.state_dict()]


class _Frozen(nn.Module):
    """A network whose weights are buffers and which stays in eval mode."""

    def __init__(self, kept: nn.Module) -> None:
        super().__init__()
        for part in kept.modules():
            for name, weight in list(part.named_parameters(recurse=False)):
                delattr(part, name)
                part.register_buffer(name, weight.detach())
        self.kept = kept
        self.train(False)

    def train(self, mode: bool = True) -> _Frozen:
        """Eval mode, whatever ``mode`` is."""
        super().train(False)
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Its features."""
        return self.kept(inputs)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, list | tuple) else value
