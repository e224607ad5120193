"""From a data set to a run's folder: one charge, R noisy rounds, a record.

    data = load_dataset("digits")
    recipe = FunctionalRecipe(epsilon=4.0, features=MeanPool(2))
    trained = train_functional(recipe, data, out="runs/functional")
    trained.accuracy, trained.record.guarantee

Each round is one release of the recipe's neighbours and unit, whose sensitivity is argued in
:mod:`~sfumato.learning.functional.clipping` and whose noise is in
:mod:`~sfumato.learning.functional.plan`; the ledger pays for all of them before a row is read.
Everything else that leaves is made of releases, public beforehand, or measured on test rows.

A run takes seconds or minutes, so that one that was cut off is not gone on with: it begins anew, in
another folder, and is charged anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.data import Dataset
from sfumato.learning.erm.charging import Charge
from sfumato.learning.features import MeanPool, Plain
from sfumato.learning.functional.networks import Weights, as_module
from sfumato.learning.functional.plan import FunctionalPlan
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.release import Stepper, noisy_sums
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import Prepared, check_arrays
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError

__all__ = ["METHOD", "FunctionalTrained", "fitted_weights", "planned", "train_functional"]

METHOD = "functional"
"""The method of such runs, on record."""

_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"
_NOT_BITWISE = "; features in floating point, taken to be a function of each row alone"
_BATCH = 4096


@final
@dataclass(frozen=True)
class FunctionalTrained:
    """What came out.

    Attributes:
        model: from inputs in [0, 1], channels first, to scores of classes; features included.
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


def planned(recipe: FunctionalRecipe, data: Dataset, *, charged: bool = False) -> FunctionalPlan:
    """What a run would be, from public facts alone.

    Args:
        recipe: how.
        data: on what.
        charged: whether a ledger is to pay for it.

    Raises:
        ValueError: for data that it is not for, or whose size was not declared.
    """
    _check(recipe, data, charged)
    classes = len(data.classes)  # or says that labels are numbers
    if classes < 2:
        validation.fail("classes", "two or more", data.classes)
    shape = recipe.features.out_shape(input_shape(data.shape))
    return FunctionalPlan(recipe, shape, classes, _size(recipe, data))


def train_functional(
    recipe: FunctionalRecipe,
    data: Dataset,
    *,
    out: str | Path,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> FunctionalTrained:
    """Trains a small network by noisy quadratic expansions of its loss.

    Args:
        recipe: how.
        data: on what.
        out: the run's folder, new or empty.
        ledger: charged before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: where features are computed; rounds are computed on the CPU.
        observer: who is told how far it is.
        request: what was asked for, kept in the curator's folder.
        coins: where samples and noise come from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any row is read.
        BudgetExceeded: if the ledger does not pay for it; nothing is spent.
    """
    plan = planned(recipe, data, charged=ledger is not None)
    shape, watching = input_shape(data.shape), observer or Shown()
    prepared = Prepared(recipe.features, shape, device, None, watching, coins)
    folder = RunFolder(out)
    folder.begin({METHOD: recipe.to_dict()} | dict(request or {}))
    charge = Charge(ledger, dataset, analyst, METHOD)
    try:
        charge.make(plan.event, recipe.delta, {METHOD: recipe.to_dict()})
    except (LedgerError, ValueError):  # nothing was charged, and no weight was learnt
        folder.abandon()
        raise
    rows = prepared.fitted(data.train.inputs, data.bounds).flatten(1).cpu()
    labels = labels_of(data.train.labels, plan.classes)
    weights = fitted_weights(plan, rows, labels, coins=coins)
    model = nn.Sequential(prepared.module.cpu(), as_module(plan.topology, weights)).eval()
    accuracy = _accuracy(model, data, plan.classes)
    record = _recorded(plan, data, accuracy, charge)
    record.touch(coins)
    charge.finish(record.to_dict())
    if not data.test_is_public:
        folder.write_curator("results.json", {"accuracy": accuracy})
    folder.write_model(model.state_dict())
    folder.write_record(record.to_dict())
    return FunctionalTrained(model, record, accuracy, data.test_is_public, folder)


def fitted_weights(
    plan: FunctionalPlan, inputs: Tensor, labels: Tensor, *, coins: Coins = SYSTEM
) -> Weights:
    """R rounds from the public first weights: what they release is what ``plan.event`` says.

    Args:
        plan: of the run.
        inputs: (n, features) private rows.
        labels: (n,) their classes, whole numbers from 0.
        coins: where samples and noise come from; seeded in tests only.
    """
    weights, stepper = plan.topology.initial(plan.recipe.seed), Stepper(plan)
    for _ in range(plan.rounds):
        slopes, curvatures = noisy_sums(plan, weights, inputs, labels, coins)
        steps = plan.topology.split(stepper.step_of(slopes, curvatures))
        weights = [layer + step for layer, step in zip(weights, steps, strict=True)]
    return weights


def _check(recipe: FunctionalRecipe, data: Dataset, charged: bool) -> None:
    if data.owners is not None:
        raise ValueError(
            "owners must be left out for the functional network, which protects rows: train with "
            "dp-sgd or pate, which protect owners of several rows, or keep one row of each"
        )
    if charged and data.rows is not None and recipe.neighbours is Neighbours.ADD_REMOVE:
        raise ValueError(
            "rows must be left out with a ledger, unless neighbours is replace-one: adding or "
            "removing one record of the whole moves another into the first rows"
        )
    check_arrays(data)


def _size(recipe: FunctionalRecipe, data: Dataset) -> int:
    """The public number of records."""
    if recipe.neighbours is Neighbours.REPLACE_ONE:
        return len(data.train.labels)
    if data.public_size is None:
        raise ValueError(
            "public_size must be declared with neighbours='add-remove', under which the number of "
            "rows is private: records = 5000 in the declaration, roughly"
        )
    return data.public_size


@torch.no_grad()
def _accuracy(model: nn.Module, data: Dataset, classes: int) -> float | None:
    """On the test set; None where it has no rows."""
    if not len(data.test.labels):
        return None
    rows = inputs_of(data.test.inputs, data.bounds)
    found = torch.cat([model(part).argmax(dim=1) for part in rows.split(_BATCH)])
    return float(np.mean(found.numpy() == labels_of(data.test.labels, classes).numpy()))


def _recorded(
    plan: FunctionalPlan, data: Dataset, accuracy: float | None, charge: Charge
) -> Record:
    recipe, public = plan.recipe, data.test_is_public
    facts = plan.facts
    if not isinstance(recipe.features, Plain | MeanPool):
        facts["arithmetic"] += _NOT_BITWISE
    described: dict[str, Any] = {
        "name": data.name,
        "classes": list(data.classes),
        "shape": list(data.shape),
        "bounds": list(data.bounds),
        "public_size": plan.records,
        "citation": data.citation,
    } | ({} if data.rows is None else {"rows": data.rows})
    tested = "none" if accuracy is None else "public"
    record = Record(
        METHOD,
        {"recipe": recipe.to_dict(), "plan": facts},
        plan.event,
        plan.guarantee,
        facts={
            "parameters": plan.topology.parameters,
            "data": described,
            "public_features": recipe.features.provenance,
            "tuning": recipe.origin,
            "test_set": tested if public else _NOT_PUBLIC,
        }
        | charge.facts,
        software=versions("numpy", "torch"),
    )
    if public and accuracy is not None:
        record.facts["accuracy"] = accuracy
    return record
