"""What a card says of a run that is one private fit of a linear model, from the record alone."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.reports.documents import Block, Cell, Paragraph
from sfumato.reports.facts import Fact, NotOnRecord, Sources, amount_text, number_text
from sfumato.reports.promises import RECORD
from sfumato.reports.rows import Rows, in_words

__all__ = [
    "add_bounds", "erm_rows", "error_cell", "errors", "is_erm", "result_heading", "tells_numbers",
]  # fmt: skip

_PLAN, _RECIPE, _FACTS = (
    f"{RECORD}#/parameters/plan", f"{RECORD}#/parameters/recipe", f"{RECORD}#/facts",
)  # fmt: skip
_METHOD, _BOUNDS = f"{RECORD}#/method", f"{_FACTS}/data/target_bounds"
_ERROR, _OF_THE_MIDDLE = "root_mean_squared_error", "error_of_the_middle"
_MODELS = {
    "logistic": "logistic regression, of classes",
    "svc": "a linear support vector machine, of classes",
    "regression": "linear regression, of a number",
    "ridge": "ridge regression, of a number",
}
_WAYS = {
    "objective": "noise in the objective, then its minimiser",
    "output": "noise on the weights",
    "functional": "noise on the coefficients of a quadratic objective",
    "sgd": "noise on the last weights of stochastic descent",
    "input": "noise on every row",
}


def is_erm(sources: Sources) -> bool:
    """Whether it is such a run."""
    return sources.has(_METHOD) and sources.raw(_METHOD) == "erm"


def tells_numbers(sources: Sources) -> bool:
    """Whether its labels are numbers: then there is no accuracy, but an error."""
    return sources.has(_BOUNDS)


def add_bounds(rows: Rows) -> None:
    """Between what a number is."""
    rows.add("the number is between, as declared", _BOUNDS, _bounds_text)


def erm_rows(rows: Rows) -> None:
    """What a reader may ask of a linear model."""
    rows.add("model", f"{_RECIPE}/model", in_words(_MODELS))
    if tells_numbers(rows.sources):
        add_bounds(rows)
    rows.add("what is noised", f"{_PLAN}/way", in_words(_WAYS))
    rows.add("sensitivity", f"{_PLAN}/sensitivity", number_text)
    rows.add("noise", f"{_PLAN}/noise")
    rows.add("scale of the noise", f"{_PLAN}/noise_scale", number_text)
    rows.add("penalty, alpha", f"{_RECIPE}/alpha", number_text)
    rows.add("weights", f"{_FACTS}/parameters")
    rows.add("public data and features", f"{_FACTS}/public_features")


def errors(sources: Sources, test: Fact) -> list[Block]:
    """How far its numbers are from those of a public test set.

    Raises:
        NotOnRecord: if it is not on record.
    """
    off, middle = (
        sources.fact(f"{_FACTS}/{name}", amount_text) for name in (_ERROR, _OF_THE_MIDDLE)
    )
    share = f"{_FACTS}/r_squared"
    explained: Cell = (
        (" R squared is ", sources.fact(share, number_text), ".") if sources.has(share) else ()
    )
    size = f"{_FACTS}/mean_absolute_error"
    absolute: Cell = (
        (" The mean absolute error is ", sources.fact(size, amount_text), ".")
        if sources.has(size)
        else ()
    )
    text: Cell = (
        "Off by ", off, " on its test set (", test, "): the root of the mean squared error, in the "
        "units of what it tells.", *explained, *absolute, " Always saying the middle between ",
        sources.fact(_BOUNDS, _bounds_text), ", as declared, is off by ", middle,
        ", and takes no data.",
    )  # fmt: skip
    return [Paragraph(text)]


def error_cell(sources: Sources, *files: str) -> Cell:
    """The error in a table, from the first of these files' places that has it."""
    for place in files:
        try:
            return "off by ", sources.fact(f"{place}/{_ERROR}", amount_text)
        except NotOnRecord:
            continue
    return "not on record"


def result_heading(runs: Sequence[Sources]) -> str:
    """Of a column of results: accuracies, errors, or both."""
    numbers = [tells_numbers(run) for run in runs]
    if not any(numbers):
        return "accuracy on its test set"
    return "error on its test set" if all(numbers) else "accuracy or error on its test set"


def _bounds_text(bounds: Sequence[float]) -> str:
    low, high = bounds
    return f"{low:,.10g} and {high:,.10g}"
