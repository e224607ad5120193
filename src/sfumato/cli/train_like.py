"""``sfumato train dp-sgd --like record.json``: another run by a recorded recipe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.core import validation
from sfumato.core.functions import names_function

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
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
        data: the name of the data set.
    """

    recipe: Recipe
    public_size: int
    rows: int | None
    data: str

    def check(self, data: Dataset, declared: Declaration | None) -> None:
        """Raises unless sizes and unit on record are about this data.

        Raises:
            ValueError: for data of another name, or declared otherwise.
        """
        if data.name != self.data:
            raise ValueError(
                f"like must be a record about {data.name!r}, got one about {self.data!r}: its "
                "sizes and unit are those of its own data"
            )
        asked = self.recipe.unit, self.recipe.rows_per_owner
        if declared is not None and asked != (declared.unit, declared.rows_per_owner):
            raise ValueError(
                f"like must be a record with the unit that is declared ({declared.unit}, at most "
                f"{declared.rows_per_owner} rows each), got {asked[0]}, {asked[1]}"
            )


def read_like(path: Path, said: Mapping[str, Any]) -> Like:
    """The recipe on record.

    Args:
        path: of a record, or of a run's folder.
        said: what else was given; whatever would change the recipe is refused.

    Raises:
        ValueError: for something else than a record of dp-sgd, or more options.
    """
    from sfumato.learning.recipes.recipe import Recipe

    beside = _BESIDE | {"model"}  # which is looked at below
    more = [name for name, value in said.items() if value is not None and name not in beside]
    if more:
        option = "--" + more[0].replace("_", "-")
        raise ValueError(f"{option} must be left out with --like, which takes a recipe as it is")
    file = path / "record.json" if path.is_dir() else path
    try:
        record = json.loads(file.read_text())
        facts = record["facts"]["data"]
        recipe = Recipe.from_dict(record["parameters"]["recipe"])
        method = record["method"]
        size, rows, name = facts["public_size"], facts.get("rows"), facts["name"]
    except (KeyError, TypeError, json.JSONDecodeError):
        validation.fail("like", "the record.json of a run", str(path))
    if method != "dp-sgd":
        validation.fail("like", "the record of a run of dp-sgd", f"one of {method}")
    if said.get("model") not in (None, recipe.model):
        raise ValueError("--model must be left out with --like, which takes a recipe as it is")
    if names_function(recipe.model) and said.get("model") is None:
        raise ValueError(
            f"the model on record is the function {recipe.model!r}, and importing it runs its "
            f"code: give --model {recipe.model} as well if you trust it"
        )
    return Like(recipe, size, rows, name)
