"""From a data set to a run's folder: features, one charged fit, a record.

    data = load_dataset("labsup")
    trained = train_erm(ErmRecipe(epsilon=1.0), data, out="runs/erm")
    trained.accuracy, trained.record.guarantee

    wages = load_dataset("wages.csv", read_declaration("wages.toml"))  # which has label_bounds
    trained = train_erm(ErmRecipe("regression", epsilon=1.0), wages, out="runs/wages")
    trained.errors, trained.record.guarantee

One fit is one release, of the recipe's neighbours and unit; its sensitivity is argued where the
way is implemented, for rows of length 1 at most and numbers between -1 and 1. Here each row is
scaled to that length, and each label moved into its declared bounds and these to -1 and 1, by
public facts and by itself. Everything else that leaves is public beforehand, or measured on test
rows.

A fit takes seconds, so that one that was cut off is not gone on with: it begins anew, in another
folder, and is charged anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset, Features, task_facts, task_names
from sfumato.learning.erm.base import PrivateLinear
from sfumato.learning.erm.cells import Column, Table
from sfumato.learning.erm.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.erm.recipe import CLASSIFIERS, REGRESSIONS, ErmRecipe
from sfumato.learning.erm.regression import PrivateLinearRegression, PrivateRidge
from sfumato.learning.erm.run_models import LinearNumbers, LinearScores
from sfumato.learning.erm.tasks import Way
from sfumato.learning.features import Plain
from sfumato.learning.recipes.inputs import input_shape, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import Prepared
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError

__all__ = ["ErmTrained", "declared_bounds", "planned", "train_erm"]

_FEATURES = 8.0  # features that are normalised within an example are within this, as declared
_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


@final
@dataclass(frozen=True)
class ErmTrained:
    """What came out.

    Attributes:
        model: from inputs in [0, 1], channels first, to scores of classes, or to numbers.
        record: public.
        accuracy: on the test set; None where there is none, and where labels are numbers. To be
            told only if it is public.
        accuracy_is_public: whether it may, or the errors.
        folder: of the run.
        errors: the same of numbers.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    accuracy_is_public: bool
    folder: RunFolder
    errors: NumberErrors | None = None


def planned(
    recipe: ErmRecipe, data: Dataset, declared: Features | None = None, *, charged: bool = False
) -> Way:
    """What a run would be, from public facts alone; whatever the run refuses is refused here.

    Args:
        recipe: how.
        data: on what.
        declared: the columns of a table of one's own.
        charged: whether a ledger is to pay for it.
    """
    _check(recipe, data, charged)
    _check_model(recipe, data)
    shape = recipe.features.out_shape(input_shape(data.shape))
    return _estimator(recipe, data, declared).plan(int(np.prod(shape)), _size(recipe, data))


def train_erm(
    recipe: ErmRecipe,
    data: Dataset,
    *,
    out: str | Path,
    declared: Features | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> ErmTrained:
    """Learns a linear model of classes or of numbers privately.

    Args:
        recipe: how.
        data: on what.
        out: the run's folder, new or empty.
        declared: the columns of a table of one's own, for which of them are mostly 0.
        ledger: charged before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: where features are computed.
        observer: who is told how far it is.
        request: what was asked for, kept in the curator's folder.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any row is read.
        BudgetExceeded: if the ledger does not pay for it.
    """
    planned(recipe, data, declared, charged=ledger is not None)
    folder = RunFolder(out)
    folder.begin({"erm": recipe.to_dict()} | dict(request or {}))
    made = _estimator(recipe, data, declared)
    made.set_params(ledger=ledger, dataset=dataset, analyst=analyst, coins=coins)
    shape = input_shape(data.shape)
    prepared = Prepared(recipe.features, shape, device, None, observer or Shown(), coins)
    try:
        made.fit(*_unread(prepared, data))
    except LedgerError:  # nothing was charged, and no weight was learnt
        folder.abandon()
        raise
    model = _module(prepared, made, data)
    accuracy, errors = _measured(made, prepared, data)
    results = _results(accuracy, errors, data)
    record = _completed(made.record_, recipe, data, results)
    if not data.test_is_public:
        folder.write_curator("results.json", results)
    folder.write_model(model.state_dict())
    folder.write_record(record.to_dict())
    return ErmTrained(model, record, accuracy, data.test_is_public, folder, errors)


def _numbers(data: Dataset) -> bool:
    return data.target_bounds is not None


def _check_model(recipe: ErmRecipe, data: Dataset) -> None:
    """Raises unless the model is for such labels."""
    if _numbers(data) and not recipe.of_numbers:
        wanted = f"{' or '.join(map(repr, REGRESSIONS))} where labels are numbers (label_bounds)"
        validation.fail("model", wanted, recipe.model)
    if recipe.of_numbers and not _numbers(data):
        raise ValueError(
            f"model must be {' or '.join(map(repr, CLASSIFIERS))} where labels are classes, got "
            f"{recipe.model!r}: declare label_bounds instead of classes for a label that is a "
            "number"
        )


def _check(recipe: ErmRecipe, data: Dataset, charged: bool) -> None:
    if data.owners is not None:
        raise ValueError(
            "owners must be left out for erm, which protects rows: train with dp-sgd or pate, "
            "which protect owners of several rows, or keep one row of each"
        )
    if charged and data.rows is not None and recipe.neighbours is Neighbours.ADD_REMOVE:
        raise ValueError(
            "rows must be left out with a ledger, unless neighbours is replace-one: adding or "
            "removing one record of the whole moves another into the first rows"
        )


def _size(recipe: ErmRecipe, data: Dataset) -> int | None:
    """The number of rows where it is public."""
    return len(data.train.labels) if recipe.neighbours is Neighbours.REPLACE_ONE else None


def _estimator(recipe: ErmRecipe, data: Dataset, declared: Features | None) -> PrivateLinear:
    replaced = recipe.neighbours is Neighbours.REPLACE_ONE  # the rows may be counted
    common: dict[str, Any] = {
        "epsilon": recipe.epsilon, "delta": recipe.delta, "way": recipe.way,
        "norm": _norm(recipe, data, declared), "bounds": declared_bounds(recipe, data, declared),
        "neighbours": recipe.neighbours.value, "unit": recipe.unit,
        "public_size": None if replaced else data.public_size,
    }  # fmt: skip
    if data.target_bounds is not None:
        numbers = {
            "target_bounds": data.target_bounds,
            "threshold": 1.0 if recipe.threshold is None else recipe.threshold,
        }
        if recipe.model == "ridge":
            return PrivateRidge(alpha=recipe.alpha or 1.0, **numbers, **common)
        return PrivateLinearRegression(regularisation=recipe.regularisation, **numbers, **common)
    classes = {"classes": tuple(range(len(data.classes))), "regularisation": recipe.regularisation}
    if recipe.model == "svc":
        return PrivateLinearSVC(width=recipe.width, **classes, **common)
    return PrivateLogisticRegression(**classes, **common)


def _norm(recipe: ErmRecipe, data: Dataset, declared: Features | None) -> float | None:
    """Of numbers, the length of the longest row that the declared columns can make.

    Once columns are between -1 and 1, a number takes at most 1 of a row's squared length, and so
    does a category, in whose places there is one 1 at most; the intercept takes 1. To count places
    instead, as one must where columns are not known, would make rows shorter than they need be,
    and noise greater beside them. Rows are shortened to what is promised whatever this says.
    """
    plain = isinstance(recipe.features, Plain) and len(data.shape) == 1
    if recipe.norm is not None or declared is None or not plain:
        return recipe.norm
    return math.sqrt(len(declared.columns) + 1)


def declared_bounds(recipe: ErmRecipe, data: Dataset, declared: Features | None) -> Any:
    """Of inputs between 0 and 1: from -1 where most are 0, in categories and in pictures."""
    if not isinstance(recipe.features, Plain):
        return -_FEATURES, _FEATURES
    if len(data.shape) == 3:
        return -1.0, 1.0
    if declared is None and data.name in task_names():
        declared = task_facts(data.name).declared
    if declared is None:
        return 0.0, 1.0
    lower: list[float] = []
    for column in declared.columns:
        places = len(column.categories or (0,))
        lower += [0.0 if column.categories is None else -1.0] * places
    return lower, [1.0] * len(lower)


def _unread(prepared: Prepared, data: Dataset) -> tuple[Table, Column]:
    """Rows and labels whose features are computed once the fit is charged."""
    inputs, labels = data.train
    shape = len(inputs), int(np.prod(prepared.shape))
    rows = Table(shape, lambda: _rows(prepared, inputs, data))
    return rows, Column(len(labels), lambda: _labels(labels, data))


def _rows(prepared: Prepared, inputs: NDArray, data: Dataset) -> NDArray[np.float64]:
    return prepared.applied(inputs, data.bounds).flatten(1).cpu().numpy().astype(np.float64)


def _labels(labels: NDArray, data: Dataset) -> NDArray:
    if data.target_bounds is not None:
        return np.asarray(labels)  # the estimator moves them into their bounds
    return labels_of(labels, len(data.classes)).numpy()


def _module(prepared: Prepared, made: PrivateLinear, data: Dataset) -> nn.Module:
    if data.target_bounds is not None:
        told = LinearNumbers(made.scaling_, data.target_bounds)
        told.linear.weight.copy_(torch.from_numpy(made.weights_))
    else:
        told = LinearScores(made.scaling_, len(data.classes))
        codes = made._codes()  # type: ignore[attr-defined]  # of this package's own classifiers
        told.weight.copy_(torch.from_numpy(made.weights_ @ codes.T))
    return nn.Sequential(prepared.module.cpu(), told).eval()


def _measured(
    made: PrivateLinear, prepared: Prepared, data: Dataset
) -> tuple[float | None, NumberErrors | None]:
    """On the test set: accuracy of classes, or errors of numbers; neither where it has no rows."""
    if not len(data.test.labels):
        return None, None
    found = made.predict(_rows(prepared, data.test.inputs, data))  # type: ignore[attr-defined]
    labels = _labels(data.test.labels, data)
    if data.target_bounds is not None:
        return None, NumberErrors.of(found, labels, data.target_bounds)
    return float(np.mean(found == labels)), None


def _results(accuracy: float | None, errors: NumberErrors | None, data: Dataset) -> dict[str, Any]:
    """As files hold it; of numbers there is no accuracy, not even an empty one."""
    if data.target_bounds is None:
        return {"accuracy": accuracy}
    return {} if errors is None else errors.to_dict()


def _completed(record: Record, recipe: ErmRecipe, data: Dataset, results: dict[str, Any]) -> Record:
    """The fit's record, with the recipe and what is public about data and results."""
    bounds, public, tested = data.target_bounds, data.test_is_public, bool(len(data.test.labels))
    labels: dict[str, Any] = (
        {"classes": list(data.classes)}
        if bounds is None
        else {"classes": [], "target_bounds": list(bounds)}
    )
    record.parameters |= {"recipe": recipe.to_dict()}
    rows = {} if data.rows is None else {"rows": data.rows}
    record.facts |= {
        "data": {
            "name": data.name,
            **labels,
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": record.parameters["plan"]["records"],
            "citation": data.citation,
        }
        | rows,
        "public_features": recipe.features.provenance,
        "tuning": recipe.origin,
        "test_set": ("public" if tested else "none") if public else _NOT_PUBLIC,
    }
    if public and tested:
        record.facts |= results
    return record
