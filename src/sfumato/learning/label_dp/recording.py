"""What a run says of itself in public: facts for its record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.data import Dataset
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.label_dp.bins import BinnedResponse
from sfumato.learning.label_dp.pretrained import Pretrained, pretraining_facts
from sfumato.learning.label_dp.randomising import Reports
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.mechanisms.randomized_response import RandomizedResponse

__all__ = ["bin_facts", "pretraining_record", "public_facts", "result_facts"]

_INPUTS = "public: the guarantee is about labels alone, and says nothing of inputs"
_WAVELETS = "wavelets fixed by formula, and principal components of the public inputs"
_PRETRAINED = {"learnt_from": "the public inputs alone, before any label was read"}
_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


def public_facts(
    data: Dataset, stages: Sequence[Reports], features: str, origin: str
) -> dict[str, Any]:
    """Nothing of it is read off private labels.

    Args:
        data: of which only what is declared is told, and how many inputs there are.
        stages: the reports.
        features: the recipe's.
        origin: where the hyper-parameters come from.
    """
    bounds = data.target_bounds
    labels: dict[str, Any] = (
        {"classes": list(data.classes)}
        if bounds is None
        else {"classes": [], "target_bounds": list(bounds)}
    )
    return {
        "data": {
            "name": data.name,
            **labels,
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": data.public_size,
            "citation": data.citation,
        }
        | ({} if data.rows is None else {"rows": data.rows}),
        "inputs_are": _INPUTS,
        "labels_of_each_stage": [len(stage.rows) + stage.lost for stage in stages],
        "labels_lost": sum(stage.lost for stage in stages),
        "public_features": "none" if features == "none" else _WAVELETS,
        "tuning": origin,
    }


def pretraining_record(
    recipe: LabelRecipe, data: Dataset, pretrained: Pretrained | None
) -> dict[str, Any]:
    """What is told of a body that networks started from, if any."""
    if pretrained is None:
        return {}
    known = {name: pretrained.facts[name] for name in pretraining_facts(recipe, data)}
    return {"pretraining": known | _PRETRAINED | {"seed": pretrained.seed}}


def bin_facts(bins: BinnedResponse, bounds: tuple[float, float]) -> dict[str, Any]:
    """The bins of a run, which were released, in the labels' own units.

    Args:
        bins: in halves of the range, from its middle.
        bounds: declared.
    """
    low, high = bounds
    middle, half = low / 2 + high / 2, (high - low) / 2
    count = len(bins.values)
    keep = RandomizedResponse(bins.epsilon, count).keep if count > 1 else 1.0
    told = {
        name: [middle + half * value for value in getattr(bins, name)]
        for name in ("edges", "means")
    }
    return {"count": count, "keep": keep, **told}


def result_facts(
    data: Dataset, found: float | NumberErrors | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """For the record, and for the curator: an accuracy, or errors of numbers.

    Args:
        data: whose test set may be public.
        found: on it; None without one.
    """
    results: dict[str, Any] = {}
    if found is not None:
        results = found.to_dict() if isinstance(found, NumberErrors) else {"accuracy": found}
    if not data.test_is_public:
        return {"test_set": _NOT_PUBLIC}, results
    return {"test_set": "none" if found is None else "public"} | results, {}
