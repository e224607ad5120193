"""Recipes that are known to work, chosen by the shape of the inputs.

===========  =============================  =====================================================
name         for                            what
===========  =============================  =====================================================
wavelets     images, height and width       wavelets and principal components of the public
             multiples of 4                 inputs, least squares first, then small networks on
                                            soft labels
resnet18     colour images                  ResNet-18 on hard labels with mixup, as published
contrastive  images, at small epsilon       ResNet-18, pre-trained on the public inputs; least
                                            squares out of fold first, then soft labels
table        rows of numbers                a small network on soft labels
===========  =============================  =====================================================

Where labels are numbers, :func:`number_preset`: bins for a noisy histogram, then least squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.label_dp.features import coefficients
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.recipes.inputs import input_shape

__all__ = ["label_preset", "label_preset_names", "number_preset"]

_OURS = "chosen on MNIST's public test set"
_PUBLISHED = "as published for CIFAR-10 (arXiv:2102.06062, and its authors' code)"
_STEPS = 300
_FEW = "chosen beforehand, on no data"
_NUMBERS = "chosen on the census of 2000, which is public"
_VIEWS = (
    "numbers chosen beforehand, after settings published for CIFAR-10; the form of the first prior "
    "after a comparison on 30,000 of its labels"
)
# By the least epsilon they are for: share of the first stage, temperature, mixup of the stages.
_AS_PUBLISHED = (
    (6.0, 0.6, 0.5, (4.0, 4.0)),
    (3.0, 0.6, 0.5, (8.0, 4.0)),
    (1.5, 0.7, 0.5, (8.0, 8.0)),
    (0.0, 0.8, 0.6, (16.0, 8.0)),
)


def label_preset_names() -> tuple[str, ...]:
    """All of them."""
    return tuple(sorted(_PRESETS))


def label_preset(
    data: Dataset, epsilon: float, stages: int = 2, name: str | None = None, **changes: Any
) -> LabelRecipe:
    """A recipe for this data.

    Args:
        data: of which only the shape and the number of inputs are looked at.
        epsilon: the guarantee.
        stages: 1 or 2.
        name: of the preset; by default by the shape of the inputs.
        changes: other fields of the recipe.

    Raises:
        ValueError: for an unknown name, or a number of stages that it has no shares for.
    """
    chosen = _default(data.shape) if name is None else name
    if chosen not in _PRESETS:
        validation.fail("preset", f"one of {', '.join(label_preset_names())}", chosen)
    if stages not in (1, 2):
        validation.fail("stages", "1 or 2; for more, give the recipe's shares", stages)
    epsilon = validation.positive("epsilon", epsilon)
    found: dict[str, Any] = {
        "epsilon": epsilon,
        **_PRESETS[chosen](data, epsilon, stages),
        **changes,
    }
    return LabelRecipe(**found)


def number_preset(data: Dataset, epsilon: float, **changes: Any) -> NumberRecipe:
    """A recipe for labels that are numbers.

    A tenth of epsilon is for a noisy histogram of the labels, unless a public ``prior`` is given.

    Args:
        data: of which only the shape and the number of inputs are looked at.
        epsilon: the guarantee.
        changes: other fields of the recipe; ``network="mlp"`` for a network besides least squares.

    Raises:
        ValueError: for numbers that cannot be.
    """
    rows, batch = len(data.train.labels), 256
    found: dict[str, Any] = {"epsilon": epsilon, "batch": batch, "origin": _NUMBERS}
    if changes.get("prior"):
        found["histogram_share"] = 0.0
    if changes.get("network") == "mlp":
        found["options"] = {"hidden": 32, "layers": 1, "dropout": 0.0}
    found["epochs"] = _enough(10.0, rows, changes.get("batch", batch))
    return NumberRecipe(**(found | changes))


def _default(shape: tuple[int, ...]) -> str:
    if len(shape) != 3:
        return "table"
    if shape[2] == 3:
        return "resnet18"
    return "wavelets" if shape[0] % 4 == shape[1] % 4 == 0 else "table"


def _wavelets(data: Dataset, epsilon: float, stages: int) -> dict[str, Any]:
    rows = len(data.train.labels)
    batch = 512 if rows > 10_000 else 64
    return {
        "shares": (1.0,) if stages == 1 else (0.6, 0.4), "mixup": (1.0,) * stages,
        "targets": "soft", "rounds": 2, "start": "least-squares", "features": "wavelets",
        "components": min(400, rows // 2, coefficients(input_shape(data.shape))), "network": "mlp",
        "options": {"hidden": 384, "dropout": 0.2}, "epochs": _enough(6.0, rows, batch),
        "batch": batch, "origin": _OURS,
    }  # fmt: skip


def _enough(epochs: float, rows: int, batch: int) -> float:
    """So many, and as many as make some hundred steps of few rows, whose number is public."""
    return float(max(epochs, min(100.0, math.ceil(_STEPS * batch / max(rows, 1)))))


def _resnet18(data: Dataset, epsilon: float, stages: int) -> dict[str, Any]:
    share, temperature, mixup = next(row[1:] for row in _AS_PUBLISHED if epsilon >= row[0])
    return {
        "shares": (1.0,) if stages == 1 else (share, 1 - share), "mixup": mixup[:stages],
        "temperature": temperature, "targets": "hard", "network": "resnet18", "epochs": 200.0,
        "batch": 512, "optimizer": "sgd", "rate": 0.4, "weight_decay": 5e-4,
        "augment": "crop-flip", "origin": _PUBLISHED,
    }  # fmt: skip


def _contrastive(data: Dataset, epsilon: float, stages: int) -> dict[str, Any]:
    """The rate of fine-tuning is SimCLR's 0.05 for 256 rows, in proportion."""
    rows = len(data.train.labels)
    batch = 512 if rows > 10_000 else 128
    return {
        "shares": (1.0,) if stages == 1 else (0.6, 0.4), "mixup": (0.5,) * stages,
        "targets": "soft", "rounds": 1, "start": "least-squares", "folds": 5,
        "pretraining": "contrastive", "pretraining_epochs": 150.0,
        "network": "resnet18", "epochs": _enough(30.0, rows, batch), "batch": batch,
        "optimizer": "sgd", "rate": 0.05 * batch / 256, "weight_decay": 5e-4,
        "augment": "crop-flip" if data.shape[-1] == 3 else "shift", "origin": _VIEWS,
    }  # fmt: skip


def _table(data: Dataset, epsilon: float, stages: int) -> dict[str, Any]:
    return {
        "shares": (1.0,) if stages == 1 else (0.6, 0.4), "mixup": (0.0,) * stages,
        "targets": "soft", "rounds": 1, "start": "least-squares", "network": "mlp",
        "options": {"hidden": 32, "layers": 1, "dropout": 0.0}, "batch": 256,
        "epochs": _enough(10.0, len(data.train.labels), 256),
        "weight_decay": 0.01, "origin": _FEW,
    }  # fmt: skip


_PRESETS: dict[str, Callable[[Dataset, float, int], dict[str, Any]]] = {
    "wavelets": _wavelets, "resnet18": _resnet18, "contrastive": _contrastive, "table": _table,
}  # fmt: skip
