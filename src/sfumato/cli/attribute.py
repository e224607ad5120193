"""``sfumato attack attribute``: a missing feature of a person, guessed with the model's help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Model, Run, Seed, Test, Trust
from sfumato.cli.options import AsJson
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.attacks.attribute_success import AttributeResult, Successes
    from sfumato.attacks.attributes import Attribute

__all__ = ["attribute"]

_RESULT = "attribute.json"


def attribute(
    column: Annotated[int, typer.Option(help="The missing feature's place, from 0.")],
    run: Run = None,
    model: Model = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    trust: Trust = False,
    values: Annotated[
        str | None,
        typer.Option(help="What it may be, scaled to between 0 and 1, such as 0,1."),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="For any number between 0 and 1: how near a guess must be to be right."),
    ] = None,
    rows: Annotated[int, typer.Option(help="Members that are tried, and as many others.")] = 2000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Guesses a feature of people whose other features and label are known.

    Success alone is no leak: a guess without the model (from how common each value is in the test
    set) stands beside it, and so does success with people who were not trained on.

    Examples:
    sfumato attack attribute --run runs/labsup --column 1 --values 0,1

    sfumato attack attribute --run runs/labsup --column 0 --tolerance 0.1
    """
    asked = _attribute(column, values, tolerance)
    with working("guessing"):
        what = attacked(run, model, data, declared, test, trust)
        if len(what.data.shape) != 1 or not 0 <= column < what.data.shape[0]:
            raise ValueError(
                f"column must be one of a table's, and the inputs are of shape {what.data.shape}, "
                f"got {column}"
            )
        found = _attack(what, asked, rows, seed)
    result = found.to_dict() | {"column": column}
    kept = what.keep(_RESULT, result)
    notes = [str(found), CURATOR] + ([] if kept is None else [f"Kept in {kept}"])
    show(Group(_table(column, found), *below(*notes)), result, as_json, {})


def _attribute(column: int, values: str | None, tolerance: float | None) -> Attribute:
    from sfumato.attacks.attributes import Attribute

    if (values is None) == (tolerance is None):
        raise ValueError("either --values, such as 0,1, or --tolerance must be given")
    if tolerance is not None:
        return Attribute.continuous(column, 0.0, 1.0, tolerance=tolerance)
    assert values is not None
    try:
        listed = [float(value) for value in values.split(",")]
    except ValueError:
        raise ValueError(f"values must be numbers separated by commas, got {values!r}") from None
    return Attribute.categorical(column, listed)


def _attack(what: Attacked, asked: Attribute, rows: int, seed: int) -> AttributeResult:
    from sfumato.attacks.attributes import attribute_attack
    from sfumato.attacks.targets import View

    target = what.target.showing(View.SCORES)
    population = asked.truth(what.inputs(what.data.test.inputs))
    return attribute_attack(
        target, what.candidates(rows, seed), asked, prior=_prior(asked, population)
    )


def _prior(asked: Attribute, population: NDArray[Any]) -> NDArray[Any]:
    """How common each value is among people who were not trained on; none is impossible."""
    import numpy as np

    nearest = np.abs(population[:, None] - np.array(asked.values)).argmin(axis=1)
    counts = np.bincount(nearest, minlength=len(asked.values)) + 1.0
    return counts / counts.sum()


def _table(column: int, found: AttributeResult) -> Any:
    table = plain_table(f"Feature {column}, guessed")
    table.add_column("of", no_wrap=True)
    for name in ("people", "right with the model", "right without it"):
        table.add_column(name, no_wrap=True, justify="right")
    for name, group in (("members", found.members), ("others", found.others)):
        table.add_row(name, *_shares(group))
    return table


def _shares(group: Successes) -> list[str]:
    return [f"{group.people:,}", f"{group.success:.1%}", f"{group.imputation:.1%}"]
