"""Trained models, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.ensembles.stacking import Weights, logits_of, untrained

__all__ = ["Ensemble", "load_ensemble"]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models of one architecture, each with its own weights.

    Attributes:
        make: an untrained model.
        weights: of all models; the first axis counts them.
        included: which model was trained on which rows. The curator's.
        prepare: what the models were fed with, from inputs as they came.
    """

    make: Callable[[], nn.Module]
    weights: Weights
    included: NDArray[np.bool_]
    prepare: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.included)

    def module(self, number: int) -> nn.Module:
        """One of the models, by itself, in evaluation mode; inputs are prepared already."""
        if not 0 <= number < len(self):
            validation.fail("number", f"a model between 0 and {len(self) - 1}", number)
        model = untrained(self.make)
        model.load_state_dict({name: weight[number] for name, weight in self.weights.items()})
        return model.eval().to(self.device)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self.weights.values())).device

    def logits(self, inputs: NDArray[Any] | Tensor, batch: int = 512) -> NDArray[np.float32]:
        """All models' answers to the same inputs: (models, n, classes)."""
        skeleton = untrained(self.make).eval().to("meta")
        each = [{k: w[number] for k, w in self.weights.items()} for number in range(len(self))]
        parts: list[Tensor] = []
        with torch.no_grad():
            for part in torch.as_tensor(inputs).split(batch):
                rows = part.to(self.device)
                rows = rows.float() if self.prepare is None else self.prepare(rows)
                said = torch.stack([logits_of(skeleton, own, rows) for own in each])
                parts.append(said.float().cpu())
        return torch.cat(parts, dim=1).numpy()

    def probabilities(self, inputs: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """All models' probabilities for the same inputs: (models, n, classes), in float64."""
        return torch.from_numpy(self.logits(inputs)).double().softmax(dim=2).numpy()

    def accuracies(self, inputs: NDArray[Any] | Tensor, labels: NDArray[Any]) -> NDArray[Any]:
        """Each model's share of right answers."""
        found = self.logits(inputs).argmax(axis=2)
        return (found == np.asarray(labels)).mean(axis=1)


def load_ensemble(
    folder: str | Path,
    make: Callable[[], nn.Module],
    included: NDArray[np.bool_],
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> Ensemble:
    """The models that :func:`train_ensemble` left in a folder; nothing is unpickled.

    Raises:
        ValueError: if some of them are not there.
    """
    parts = [load_file(path) for path in sorted(Path(folder).glob("models-*.safetensors"))]
    names = list(parts[0]) if parts else []
    weights = {name: torch.cat([part[name] for part in parts]) for name in names}
    found = len(weights[names[0]]) if names else 0
    if found != len(included):
        validation.fail("folder", f"one with {len(included)} trained models", found)
    return Ensemble(make, weights, included, prepare)
