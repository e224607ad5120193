"""What a run says of itself in public: facts for its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.data import Dataset
from sfumato.learning.label_dp.pretrained import Pretrained, pretraining_facts
from sfumato.learning.label_dp.randomising import Reports
from sfumato.learning.label_dp.recipe import LabelRecipe

__all__ = ["public_facts"]

_INPUTS = "public: the guarantee is about labels alone, and says nothing of inputs"
_WAVELETS = "wavelets fixed by formula, and principal components of the public inputs"
_PRETRAINED = {"learnt_from": "the public inputs alone, before any label was read"}
_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


def public_facts(
    recipe: LabelRecipe,
    data: Dataset,
    stages: Sequence[Reports],
    accuracy: float | None,
    pretrained: Pretrained | None = None,
) -> dict[str, Any]:
    """Nothing of it is read off private labels.

    Args:
        recipe: how.
        data: of which only what is declared is told, and how many inputs there are.
        stages: the reports.
        accuracy: on public rows, None where there are none.
        pretrained: the body that networks started from, if any.
    """
    facts: dict[str, Any] = {
        "data": {
            "name": data.name,
            "classes": list(data.classes),
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": data.public_size,
            "citation": data.citation,
        }
        | ({} if data.rows is None else {"rows": data.rows}),
        "inputs_are": _INPUTS,
        "labels_of_each_stage": [len(stage.rows) + stage.lost for stage in stages],
        "labels_lost": sum(stage.lost for stage in stages),
        "public_features": "none" if recipe.features == "none" else _WAVELETS,
        "tuning": recipe.origin,
        "test_set": _test_set(data, accuracy),
    }
    if pretrained is not None:
        known = {name: pretrained.facts[name] for name in pretraining_facts(recipe, data)}
        facts["pretraining"] = known | _PRETRAINED | {"seed": pretrained.seed}
    return facts if accuracy is None else facts | {"accuracy": accuracy}


def _test_set(data: Dataset, accuracy: float | None) -> str:
    if not data.test_is_public:
        return _NOT_PUBLIC
    return "none" if accuracy is None else "public"
