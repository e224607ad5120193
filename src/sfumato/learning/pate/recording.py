"""What a run says of itself in public: facts for its record."""

from __future__ import annotations

from typing import Any

from sfumato.data import Dataset
from sfumato.learning.pate.public_inputs import PublicInputs
from sfumato.learning.pate.recipe import OWN, PateRecipe

__all__ = ["public_facts"]

_BY_OWNER = "here: each one's rows go to one teacher, by a keyed hash of whose they are"
_BY_RECORD = "here: each record goes to one teacher, by a keyed hash of itself"
_PROMISED = (
    "whoever brought the teachers: that one more or less changes one of them only was not checked"
)
_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


def public_facts(
    recipe: PateRecipe, data: Dataset, public: PublicInputs, accuracy: float | None
) -> dict[str, Any]:
    """Nothing of it is read off private rows.

    Args:
        recipe: how.
        data: of which only what is declared is told.
        public: the public inputs.
        accuracy: on public rows, None where there are none.
    """
    own = recipe.kind == OWN
    rows = {} if data.rows is None else {"rows": data.rows}
    facts: dict[str, Any] = {
        "data": {
            "name": data.name,
            "classes": list(data.classes),
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": None if own else data.public_size,  # of rows that were read
            "citation": data.citation,
        }
        | rows,
        "teachers": recipe.teachers,
        "parts_made_disjoint_by": _who_made_parts(recipe, data),
        "public_inputs": len(public.inputs),
        "public_inputs_are": public.origin,
        "tuning": recipe.origin,
        "test_set": _test_set(data, accuracy),
    }
    return facts if accuracy is None else facts | {"accuracy": accuracy}


def _who_made_parts(recipe: PateRecipe, data: Dataset) -> str:
    if recipe.kind == OWN:
        return _PROMISED
    return _BY_RECORD if data.owners is None else _BY_OWNER


def _test_set(data: Dataset, accuracy: float | None) -> str:
    if not data.test_is_public:  # whether it has any row is its own secret
        return _NOT_PUBLIC
    return "none" if accuracy is None else "public"
