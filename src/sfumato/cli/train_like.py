"""``sfumato train dp-sgd|pate --like record.json``: another run by a recorded recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sfumato.core import validation
from sfumato.core.functions import names_function
from sfumato.core.json_files import as_written, read_json

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration
    from sfumato.learning.pate.recipe import PateRecipe
    from sfumato.learning.recipes import Recipe

_Recipe = TypeVar("_Recipe")

__all__ = ["Like", "PateLike", "read_like", "read_pate_like", "recorded"]

_BESIDE = {
    "analyst", "as_json", "canary_kind", "checkpoint_every", "compile", "data", "dataset",
    "declared", "device", "dry_run", "evaluations", "ledger", "like", "minutes", "out", "progress",
    "small_checkpoints", "test",
}  # fmt: skip
_BESIDE_PATE = {
    "analyst", "as_json", "data", "dataset", "declared", "device", "dry_run", "half", "ledger",
    "like", "out", "progress", "teacher_labels", "teacher_votes", "test", "unlabelled",
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
        _check_name(data, self.data)
        asked = self.recipe.unit, self.recipe.rows_per_owner
        if declared is not None and asked != (declared.unit, declared.rows_per_owner):
            raise ValueError(
                f"like must be a record with the unit that is declared ({declared.unit}, at most "
                f"{declared.rows_per_owner} rows each), got {asked[0]}, {asked[1]}"
            )


@dataclass(frozen=True)
class PateLike:
    """What a record says of how a student was taught.

    Attributes:
        recipe: its recipe.
        rows: how many of the first rows were taken; None for all.
        data: the name of the data set.
    """

    recipe: PateRecipe
    rows: int | None
    data: str

    def check(self, data: Dataset, declared: Declaration | None) -> None:
        """Raises unless the record is about this data, its unit and its classes.

        Raises:
            ValueError: for data of another name, or declared otherwise.
        """
        from sfumato.learning.pate.recipe import OWN

        _check_name(data, self.data)
        unit = self.recipe.plan.unit
        if declared is not None and self.recipe.kind != OWN and unit != declared.unit:
            raise ValueError(
                f"like must be a record with the unit that is declared ({declared.unit}), got "
                f"{unit}"
            )
        if len(data.classes) != self.recipe.student.classes:
            validation.fail(
                "like", f"a record of {len(data.classes)} classes", self.recipe.student.classes
            )


def _check_name(data: Dataset, known: str) -> None:
    if data.name != known:
        raise ValueError(
            f"like must be a record about {data.name!r}, got one about {known!r}: its sizes and "
            "unit are those of its own data"
        )


def read_pate_like(path: Path, said: Mapping[str, Any]) -> PateLike:
    """The recipe on record of a run of PATE; arguments as :func:`read_like`.

    Raises:
        ValueError: for something else than a record of pate, or more options.
    """
    from sfumato.learning.pate.recipe import PateRecipe

    _refuse_more(said, _BESIDE_PATE)
    recipe, facts = recorded(path, "pate", PateRecipe.from_dict)
    return PateLike(recipe, facts.get("rows"), facts["name"])


def read_like(path: Path, said: Mapping[str, Any]) -> Like:
    """The recipe on record.

    Args:
        path: of a record, or of a run's folder.
        said: what else was given; whatever would change the recipe is refused.

    Raises:
        ValueError: for something else than a record of dp-sgd, or more options.
    """
    from sfumato.learning.recipes.recipe import Recipe

    _refuse_more(said, _BESIDE | {"model"})  # which is looked at below
    recipe, facts = recorded(path, "dp-sgd", Recipe.from_dict)
    size, rows, name = facts["public_size"], facts.get("rows"), facts["name"]
    if said.get("model") not in (None, recipe.model):
        raise ValueError("--model must be left out with --like, which takes a recipe as it is")
    if names_function(recipe.model) and said.get("model") is None:
        raise ValueError(
            f"the model on record is the function {recipe.model!r}, and importing it runs its "
            f"code: give --model {recipe.model} as well if you trust it"
        )
    return Like(recipe, size, rows, name)


def _refuse_more(said: Mapping[str, Any], beside: set[str]) -> None:
    """Raises for options that would change the recipe."""
    more = [name for name, value in said.items() if value is not None and name not in beside]
    if more:
        option = "--" + more[0].replace("_", "-")
        raise ValueError(f"{option} must be left out with --like, which takes a recipe as it is")


def recorded(
    path: Path, method: str, read: Callable[[Mapping[str, Any]], _Recipe]
) -> tuple[_Recipe, dict[str, Any]]:
    """The recipe in a record of this method, as ``read`` makes it, and what is said of the data.

    Args:
        path: of a record, or of a run's folder.
        method: the method on record.
        read: from JSON to a recipe.

    Raises:
        ValueError: for anything else.
    """
    file = path / "record.json" if path.is_dir() else path
    try:
        record = read_json(file)
        known, recipe = record["method"], record["parameters"].get("recipe")
        facts = {"name": None, "public_size": None} | record["facts"]["data"]
    except OSError as error:
        validation.fail("like", f"a record.json that can be read ({error.strerror})", str(path))
    except (KeyError, TypeError, AttributeError):
        validation.fail("like", f"the record.json of a run of {method}", str(path))
    with as_written(file):
        made = read(recipe) if known == method else None
    if made is None:
        validation.fail("like", f"the record of a run of {method}", f"one of {known}")
    return made, facts
