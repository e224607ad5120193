"""A body pre-trained on public inputs, in a file: made once, and lent to runs on the same inputs.

The file is safetensors. Its metadata say what the body was trained on and how: a digest of the
inputs in whatever order, the network and the settings. Whoever lends one for other inputs or
settings is refused. The seed may be another one, and is told in the record.

The digest is against mistakes, not malice: that no label went into the weights is known only of a
file that one's own runs have made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.durable import write_whole
from sfumato.learning.label_dp.contrastive import CHOICES
from sfumato.learning.label_dp.ordering import unordered_digest
from sfumato.learning.label_dp.recipe import LabelRecipe

__all__ = ["Pretrained", "pretraining_facts"]

_KEY = "pretrained"


def pretraining_facts(recipe: LabelRecipe, data: Dataset) -> dict[str, Any]:
    """What decides a body but for its seed; of the data only inputs are read."""
    return {
        "inputs": unordered_digest(data.train.inputs),
        "bounds": [float(bound) for bound in data.bounds],
        "network": recipe.network,
        "options": dict(recipe.options),
        "pretraining": recipe.pretraining,
        "epochs": recipe.pretraining_epochs,
        "batch": recipe.batch,
        "mirrored": recipe.augment == "crop-flip",
        **CHOICES,
    }


@final
class Pretrained:
    """Weights of a body, and what they are.

    Attributes:
        weights: on the CPU.
        facts: see :func:`pretraining_facts`.
        seed: of first weights, orders and views.
    """

    def __init__(self, weights: Mapping[str, Tensor], facts: Mapping[str, Any], seed: int) -> None:
        self.weights, self.facts, self.seed = dict(weights), dict(facts), seed

    @classmethod
    def read(cls, path: Path) -> Pretrained:
        """From a file.

        Raises:
            ValueError: if it holds none.
        """
        try:
            with safe_open(path, framework="pt") as file:
                said = json.loads((file.metadata() or {})[_KEY])
                weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return cls(weights, said["facts"], int(said["seed"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            validation.fail("pretrained", "the pretrained.safetensors of a run", str(path))

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        said = json.dumps({"facts": self.facts, "seed": self.seed})
        kept = {name: value.contiguous() for name, value in self.weights.items()}
        write_whole(path, save(kept, {_KEY: said}))

    def check_finite(self) -> None:
        """Raises if there are weights that are no numbers: nothing could be learnt from there.

        Raises:
            ValueError: naming one.
        """
        for name, value in self.weights.items():
            if not bool(torch.isfinite(value).all()):
                validation.fail(
                    "pretrained", "of finite weights (did pre-training diverge? lower its batch or "
                    "its epochs)", name,
                )  # fmt: skip

    def check(self, facts: Mapping[str, Any], body: nn.Module) -> None:
        """Raises unless it is of these facts, and fits.

        Raises:
            ValueError: naming what differs.
        """
        plain = json.loads(json.dumps(dict(facts)))
        other = [name for name in plain if self.facts.get(name) != plain[name]]
        if other:
            said = ", ".join(f"{name} {self.facts.get(name)!r}" for name in other)
            validation.fail(
                "pretrained", "a body of the same inputs and settings (or leave it out)", said
            )
        self.check_finite()
        wanted = {name: value.shape for name, value in body.state_dict().items()}
        if {name: value.shape for name, value in self.weights.items()} != wanted:
            validation.fail("pretrained", "a body of this network", self.facts["network"])
