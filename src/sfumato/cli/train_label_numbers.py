"""``sfumato train label-dp`` where labels are numbers: its options, its recipe, what is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.cli.output import print_json
from sfumato.cli.train_options import named_values
from sfumato.cli.train_telling import error_rows, print_facts, print_finished
from sfumato.core import validation
from sfumato.core.json_files import read_json

if TYPE_CHECKING:
    from sfumato.data import Dataset
    from sfumato.learning.label_dp import LabelRecipe, LabelTrained, NumberRecipe

__all__ = [
    "NUMBERS", "check_kind", "check_options", "number_recipe", "tell_number_plan", "tell_numbers",
]  # fmt: skip

NUMBERS = ("histogram_share", "points", "prior")
"""Options that are for numbers alone."""

_CLASSES = (
    "stages", "mechanism", "first_share", "temperature", "preset", "targets", "rounds", "mixup",
    "pretraining_epochs", "pretrained",
)  # fmt: skip
_BOTH = ("network", "epochs", "batch", "seed")


def check_options(numbers: bool, said: Mapping[str, Any]) -> None:
    """Raises for an option that is not for such labels, before anything is read.

    Raises:
        ValueError: with the remedy.
    """
    where = (
        "where labels are numbers (label_bounds): it is for classes"
        if numbers
        else "where labels are classes: it is for numbers, which are declared by label_bounds"
    )
    for name in _CLASSES if numbers else NUMBERS:
        if said[name] is not None:
            raise ValueError(
                f"--{name.replace('_', '-')} must be left out {where}, got {str(said[name])!r}"
            )


def check_kind(recipe: LabelRecipe | NumberRecipe, numbers: bool) -> None:
    """Raises unless a recipe on record is for such labels.

    Raises:
        ValueError: if it is for others.
    """
    from sfumato.learning.label_dp import NumberRecipe

    if isinstance(recipe, NumberRecipe) != numbers:
        here, there = ("numbers", "classes") if numbers else ("classes", "numbers")
        validation.fail("like", f"a record of labels that are {here}", f"one of {there}")


def number_recipe(data: Dataset, said: Mapping[str, Any]) -> NumberRecipe:
    """The preset with what was said otherwise."""
    from sfumato.learning.label_dp import number_preset
    from sfumato.learning.recipes.recipe import NOT_STATED

    if said["epsilon"] is None:
        raise ValueError("epsilon must be given (--epsilon 3)")
    chosen = (*_BOTH, "histogram_share", "points")
    changes = {name: said[name] for name in chosen if said[name] is not None}
    if said["prior"] is not None:
        prior = _prior(said["prior"])
        changes |= {"prior": prior, "points": changes.get("points", len(prior))}
    if said["network_option"]:
        base = number_preset(data, said["epsilon"], **changes)
        own = named_values("network-option", said["network_option"])
        changes["options"] = base.options | own
    if changes or said["tuned_on"]:
        given = f", with {', '.join(sorted(changes))} given" if changes else ""
        origin = number_preset(data, said["epsilon"]).origin
        changes["origin"] = f"{origin}{given}: {said['tuned_on'] or NOT_STATED}"
    return number_preset(data, said["epsilon"], **changes)


def _prior(path: Path) -> tuple[float, ...]:
    """A public guess, from a file: a JSON list of numbers."""
    try:
        found = read_json(path)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found:
        validation.fail("prior", "a file with a JSON list of probabilities, one a point", str(path))
    return tuple(validation.non_negative("prior", p) for p in found)


def tell_number_plan(recipe: NumberRecipe, data: Dataset, as_json: bool) -> None:
    """What a run would cost, and how it would be done."""
    method = recipe.method
    if as_json:
        facts = {
            "histogram_epsilon": method.histogram_epsilon,
            "report_epsilon": method.report_epsilon, "recipe": recipe.to_dict(),
        }  # fmt: skip
        print_json(recipe.guarantee.to_dict() | facts)
        return
    assert data.target_bounds is not None
    low, high = data.target_bounds
    prior = "a public guess" if recipe.prior else "an even guess"
    if recipe.histogram_share:
        prior = f"a noisy histogram, for {method.histogram_epsilon:.4g} of epsilon"
    network = "" if recipe.network == "none" else f", then {recipe.network}"
    rows = [
        ("guarantee", str(recipe.guarantee)),
        ("inputs", "public: the guarantee says nothing about them"),
        ("labels", f"numbers from {low:g} to {high:g}, as declared"),
        ("bins", f"of {recipe.points} points, for {prior}"),
        ("reports", f"one of each label, epsilon {method.report_epsilon:.4g}"),
        ("learning", f"least squares of unbiased reports{network}"),
        ("hyper-parameters", recipe.origin),
    ]
    print_facts("The run would be", rows)


def tell_numbers(trained: LabelTrained, seconds: float, as_json: bool) -> None:
    """What came out."""
    record, folder, errors = trained.record, trained.folder, trained.errors
    facts = record.facts
    if as_json:
        shown = record.guarantee.to_dict() | {"out": str(folder.path), "private": record.private}
        shown |= {"finished": True, "stages": facts["labels_of_each_stage"]}
        shown |= {"bins": facts["bins"]["count"], "prior": facts["prior"]}
        print_json(shown | ({} if errors is None else errors.to_dict()))
        return
    public = errors is not None
    found = errors.to_dict() if errors is not None else folder.read_curator("results.json")
    (count,) = facts["labels_of_each_stage"]
    rows = [
        *error_rows(found, public),
        ("labels randomised", f"{count:,}, in {facts['bins']['count']} bins"),
        ("bins suit", facts["prior"]),
    ]
    if facts["labels_lost"]:
        rows.append(("labels lost", f"{facts['labels_lost']:,}, told when the run was cut off"))
    print_finished(record, folder, None, public, seconds, rows)
