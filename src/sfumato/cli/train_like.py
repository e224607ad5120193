"""``sfumato train dp-sgd --like record.json``: another run by a recorded recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core import validation

if TYPE_CHECKING:
    from sfumato.learning.recipes import Recipe

__all__ = ["Like", "read_like"]

_BESIDE = {
    "analyst", "as_json", "canary_kind", "checkpoint_every", "compile", "data", "dataset",
    "declared", "device", "dry_run", "evaluations", "ledger", "like", "out", "progress", "test",
}  # fmt: skip


@dataclass(frozen=True)
class Like:
    """What a record says of how a model was trained.

    Attributes:
        recipe: its recipe, seed of the initial weights included.
        public_size: the declared number of units.
        rows: how many of the first rows were taken; None for all.
    """

    recipe: Recipe
    public_size: int
    rows: int | None


def read_like(path: Path, said: Mapping[str, Any]) -> Like:
    """The recipe on record.

    Args:
        path: of a record, or of a run's folder.
        said: what else was given; whatever would change the recipe is refused.

    Raises:
        ValueError: for something else than a record of dp-sgd, or more options.
    """
    from sfumato.learning.recipes.recipe import Recipe

    more = [name for name, value in said.items() if value is not None and name not in _BESIDE]
    if more:
        option = "--" + more[0].replace("_", "-")
        raise ValueError(f"{option} must be left out with --like, which takes a recipe as it is")
    file = path / "record.json" if path.is_dir() else path
    try:
        record = json.loads(file.read_text())
        facts = record["facts"]["data"]
        recipe = Recipe.from_dict(record["parameters"]["recipe"])
        method = record["method"]
        size, rows = facts["public_size"], facts.get("rows")
    except (KeyError, TypeError, json.JSONDecodeError):
        validation.fail("like", "the record.json of a run", str(path))
    if method != "dp-sgd":
        validation.fail("like", "the record of a run of dp-sgd", f"one of {method}")
    return Like(recipe, size, rows)
