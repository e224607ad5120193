"""From a data set to a run's folder: features, one charged fit, a record.

    data = load_dataset("labsup")
    trained = train_erm(ErmRecipe(epsilon=1.0), data, out="runs/erm")
    trained.accuracy, trained.record.guarantee

A fit takes seconds, so that one that was cut off is not gone on with: it begins anew, in another
folder, and is charged anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset, Features, task_facts, task_names
from sfumato.learning.erm.base import PrivateLinear
from sfumato.learning.erm.cells import Column, Table
from sfumato.learning.erm.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.run_models import LinearScores
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
        model: from inputs in [0, 1], channels first, to scores.
        record: public.
        accuracy: on the test set; None where there is none. To be told only if it is public.
        accuracy_is_public: whether it may.
        folder: of the run.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    accuracy_is_public: bool
    folder: RunFolder


def planned(recipe: ErmRecipe, data: Dataset, declared: Features | None = None) -> Way:
    """What a run would be, from public facts alone."""
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
    """Learns a linear classifier privately.

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
    _check(recipe, data, ledger is not None)
    planned(recipe, data, declared)
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
    model = _module(prepared, made, len(data.classes))
    accuracy = _accuracy(made, prepared, data)
    record = _completed(made.record_, recipe, data, accuracy)
    if not data.test_is_public:
        folder.write_curator("results.json", {"accuracy": accuracy})
    folder.write_model(model.state_dict())
    folder.write_record(record.to_dict())
    return ErmTrained(model, record, accuracy, data.test_is_public, folder)


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
        "epsilon": recipe.epsilon, "delta": recipe.delta, "way": recipe.way, "norm": recipe.norm,
        "bounds": declared_bounds(recipe, data, declared), "regularisation": recipe.regularisation,
        "neighbours": recipe.neighbours.value, "unit": recipe.unit,
        "public_size": None if replaced else data.public_size,
        "classes": tuple(range(len(data.classes))),
    }  # fmt: skip
    if recipe.model == "svc":
        return PrivateLinearSVC(width=recipe.width, **common)
    return PrivateLogisticRegression(**common)


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
    return labels_of(labels, len(data.classes)).numpy()


def _module(prepared: Prepared, made: PrivateLinear, classes: int) -> nn.Module:
    scores = LinearScores(made.scaling_, classes)
    codes = made._codes()  # type: ignore[attr-defined]  # of this package's own classifiers
    scores.weight.copy_(torch.from_numpy(made.weights_ @ codes.T))
    return nn.Sequential(prepared.module.cpu(), scores).eval()


def _accuracy(made: PrivateLinear, prepared: Prepared, data: Dataset) -> float | None:
    if not len(data.test.labels):
        return None
    found = made.predict(_rows(prepared, data.test.inputs, data))  # type: ignore[attr-defined]
    return float(np.mean(found == _labels(data.test.labels, data)))


def _completed(record: Record, recipe: ErmRecipe, data: Dataset, accuracy: float | None) -> Record:
    """The fit's record, with the recipe and what is public about data and results."""
    record.parameters |= {"recipe": recipe.to_dict()}
    rows = {} if data.rows is None else {"rows": data.rows}
    public = data.test_is_public
    record.facts |= {
        "data": {
            "name": data.name,
            "classes": list(data.classes),
            "shape": list(data.shape),
            "bounds": list(data.bounds),
            "public_size": record.parameters["plan"]["records"],
            "citation": data.citation,
        }
        | rows,
        "public_features": recipe.features.provenance,
        "tuning": recipe.origin,
        "test_set": ("none" if accuracy is None else "public") if public else _NOT_PUBLIC,
    }
    if public and accuracy is not None:
        record.facts["accuracy"] = accuracy
    return record
