"""What a run says of itself, through two doors: the public record, and the curator's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.core.records import Record
from sfumato.data import Dataset
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.recipes.evaluating import Evaluation
from sfumato.learning.recipes.preparing import Prepared
from sfumato.learning.recipes.recipe import Recipe

__all__ = ["curator_results", "public_record"]


def public_record(
    trainer: DPSGD, recipe: Recipe, data: Dataset, prepared: Prepared, evaluation: Evaluation
) -> Record:
    """The engine's record, with the recipe and what is public about data and results."""
    record = trainer.record
    record.parameters = {**record.parameters, "recipe": _told(recipe)}
    record.facts |= {
        "data": {
            "name": data.name,
            "classes": list(data.classes),
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": trainer.plan.lots.population,
            "citation": data.citation,
        }
        | ({} if data.rows is None else {"rows": data.rows}),
        "public_features": prepared.features.provenance,
        "tuning": recipe.origin,
        "test_set": _test_set(data, evaluation),
    }
    if recipe.start is not None:
        record.facts["public_start"] = recipe.start.provenance
    if evaluation.possible and data.test_is_public:
        record.facts["accuracy"] = evaluation.points[-1].accuracy
        record.facts["curve"] = [point.to_dict() for point in evaluation.points]
    return record


def _told(recipe: Recipe) -> dict[str, Any]:
    """The recipe; of public weights the name of their file, not where it is on this machine."""
    told = recipe.to_dict()
    if recipe.start is not None:
        told["start"] |= {"path": Path(recipe.start.path).name}
    return told


def _test_set(data: Dataset, evaluation: Evaluation) -> str:
    if not data.test_is_public:  # whether it has any row is its own secret
        return "none that is public: results on other rows stay with the curator"
    return "public" if evaluation.possible else "none"


def curator_results(evaluation: Evaluation, history: dict[str, Any]) -> dict[str, Any]:
    """What was read from private data without being charged."""
    return {"curve": [point.to_dict() for point in evaluation.points], "training": history}
