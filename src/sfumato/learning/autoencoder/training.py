"""From a data set to a run's folder: an auto-encoder, a classifier of its codes, a record.

    data = load_dataset("mnist")
    trained = train_autoencoder(AutoEncoderRecipe(epsilon=2.0), data, out="runs/codes")
    trained.errors.mean_squared, trained.accuracy, trained.record.guarantee

Guarantee: for one row added, removed or replaced, as the recipe says, and both its input and its
label. Everything that leaves is made of the plan's releases (see
:mod:`~sfumato.learning.autoencoder.planning`), public beforehand, or measured on test rows. One
charge pays for all of it, before the first row is read.

A run of the functional way takes seconds and one of descent minutes, so that one that was cut off
is not gone on with: it begins anew, in another folder, and is charged anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.data import Dataset
from sfumato.learning.autoencoder import learning
from sfumato.learning.autoencoder.charging import run_charge
from sfumato.learning.autoencoder.measuring import (
    ReconstructionErrors,
    reconstructed,
    reconstruction_picture,
)
from sfumato.learning.autoencoder.network import AutoEncoder
from sfumato.learning.autoencoder.planning import RunPlan, planned
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.durable import write_whole
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_arrays
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError

__all__ = ["METHOD", "PICTURE", "AutoEncoderTrained", "plan_of", "train_autoencoder"]

METHOD = "autoencoder"
"""The method of such runs, in their records."""
PICTURE = "reconstructions.png"
"""The first test rows and their reconstructions; in the curator's folder unless they are public."""

_COLOURS, _DRAWN = (1, 3, 4), 10  # channels that can be shown; rows that are
_NOT_PUBLIC = "none that is public: results on other rows stay with the curator"


@final
@dataclass(frozen=True)
class AutoEncoderTrained:
    """What came out.

    Attributes:
        model: from inputs in [0, 1], channels first, to reconstructions; ``model.codes`` and
            ``model.scores`` tell codes and classes.
        record: public.
        errors: of reconstruction on the test set; None where it has no rows.
        accuracy: of the classifier there; None where there is none.
        results_are_public: whether the two may be told.
        folder: of the run.
    """

    model: AutoEncoder
    record: Record
    errors: ReconstructionErrors | None
    accuracy: float | None
    results_are_public: bool
    folder: RunFolder


def plan_of(recipe: AutoEncoderRecipe, data: Dataset, *, charged: bool = False) -> RunPlan:
    """What a run would release and cost, from public facts alone.

    Args:
        recipe: how.
        data: on what.
        charged: whether a ledger is to pay for it.

    Raises:
        ValueError: for what cannot be, such as a size that nobody declared.
    """
    _check(recipe, data, charged)
    classes = None if data.target_bounds is not None else len(data.classes)
    return planned(recipe, int(np.prod(data.shape)), _size(recipe, data), classes)


def train_autoencoder(
    recipe: AutoEncoderRecipe,
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
) -> AutoEncoderTrained:
    """Learns codes and a classifier of them privately.

    Args:
        recipe: how.
        data: on what; inputs and labels are private.
        out: the run's folder, new or empty.
        ledger: charged before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: where descent computes.
        observer: who is told how far it is.
        request: what was asked for, kept in the curator's folder.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any row is read.
        BudgetExceeded: if the ledger does not pay for it.
    """
    plan = plan_of(recipe, data, charged=ledger is not None)
    torch.zeros(1, device=device)  # or says why not, before anything is paid
    folder = RunFolder(out)
    folder.begin({METHOD: recipe.to_dict()} | dict(request or {}))
    charge = run_charge(ledger, dataset, analyst)
    try:
        charge.make(plan.event, recipe.delta, {METHOD: recipe.way, "head": recipe.head})
    except (LedgerError, ValueError):  # nothing was charged, and no row was read
        folder.abandon()
        raise
    model = _learnt(recipe, plan, data, coins, device, observer or Shown())
    errors, accuracy = _tested(model, data)
    record = _recorded(recipe, plan, data, charge.facts)
    record.touch(coins)
    results = _results(errors, accuracy)
    if data.test_is_public:
        record.facts |= results
    else:
        folder.write_curator("results.json", results)
    charge.finish(record.to_dict())
    folder.write_model(model.state_dict())
    folder.write_record(record.to_dict())
    _draw(model, data, folder)
    return AutoEncoderTrained(model, record, errors, accuracy, data.test_is_public, folder)


def _check(recipe: AutoEncoderRecipe, data: Dataset, charged: bool) -> None:
    if data.owners is not None:
        raise ValueError(
            "owners must be left out for an auto-encoder, which protects rows: train with dp-sgd "
            "or pate, which protect owners of several rows, or keep one row of each"
        )
    if charged and data.rows is not None and recipe.neighbours is Neighbours.ADD_REMOVE:
        raise ValueError(
            "rows must be left out with a ledger, unless neighbours is replace-one: adding or "
            "removing one record of the whole moves another into the first rows"
        )
    check_arrays(data)


def _size(recipe: AutoEncoderRecipe, data: Dataset) -> int:
    """The number of rows, as it may be said in public."""
    if recipe.neighbours is Neighbours.REPLACE_ONE:
        return len(data.train.labels)
    if data.public_size is None:
        raise ValueError(
            "public_size must be declared with neighbours='add-remove', under which the number of "
            "rows is private: public_size=5000, roughly, or records = 5000 in the declaration"
        )
    return data.public_size


def _learnt(
    recipe: AutoEncoderRecipe,
    plan: RunPlan,
    data: Dataset,
    coins: Coins,
    device: str,
    observer: Observer,
) -> AutoEncoder:
    rows = inputs_of(data.train.inputs, data.bounds).flatten(1)
    if recipe.way == "dp-sgd":
        model = learning.learn_by_descent(recipe, plan, rows, coins, device, observer.steps())
        codes = learning.codes_of(model, rows)
    else:
        values = rows.numpy().astype(np.float64)
        model, codes = learning.learn_layers(recipe, plan, values, coins)
    model = model.cpu()
    if plan.head is not None:
        labels = labels_of(data.train.labels, plan.head.classes).numpy()
        model.head = learning.learn_head(plan.head, codes, labels, coins)
    return model.eval()


def _tested(model: AutoEncoder, data: Dataset) -> tuple[ReconstructionErrors | None, float | None]:
    """On test rows."""
    if not len(data.test.labels):
        return None, None
    inputs = inputs_of(data.test.inputs, data.bounds)
    found = reconstructed(model, inputs)
    errors = ReconstructionErrors.of(found, inputs)
    return errors, _accuracy(model, inputs, data)


def _draw(model: AutoEncoder, data: Dataset, folder: RunFolder) -> None:
    """A picture of the first test rows, where they are pictures; a run does not fail for it."""
    if len(data.shape) != 3 or data.shape[2] not in _COLOURS or not len(data.test.labels):
        return
    place = folder.path if data.test_is_public else folder.curator
    with contextlib.suppress(Exception):  # the run is finished, and paid for
        inputs = inputs_of(data.test.inputs[:_DRAWN], data.bounds)
        picture = reconstruction_picture(inputs, reconstructed(model, inputs), columns=_DRAWN)
        write_whole(place / PICTURE, picture, public=data.test_is_public)


@torch.no_grad()
def _accuracy(model: AutoEncoder, inputs: Tensor, data: Dataset) -> float | None:
    if model.head is None:
        return None
    labels = labels_of(data.test.labels, len(data.classes))
    return float((model.scores(inputs).argmax(dim=1) == labels).double().mean())


def _results(errors: ReconstructionErrors | None, accuracy: float | None) -> dict[str, float]:
    found = {} if errors is None else errors.to_dict()
    return found if accuracy is None else found | {"accuracy": accuracy}


def _recorded(
    recipe: AutoEncoderRecipe, plan: RunPlan, data: Dataset, charged: Mapping[str, Any]
) -> Record:
    """The public record, before results."""
    public, tested = data.test_is_public, bool(len(data.test.labels))
    labels: dict[str, Any] = (
        {"classes": list(data.classes)}
        if data.target_bounds is None
        else {"classes": [], "target_bounds": list(data.target_bounds)}
    )
    known: dict[str, Any] = {
        "name": data.name,
        **labels,
        "shape": list(data.shape),
        "bounds": list(data.bounds),
        "public_size": plan.records,
        "citation": data.citation,
    }
    if data.rows is not None:
        known["rows"] = data.rows
    facts: dict[str, Any] = {
        "data": known,
        "tuning": recipe.origin,
        "test_set": ("public" if tested else "none") if public else _NOT_PUBLIC,
        **charged,
    }
    parameters = {"recipe": recipe.to_dict(), "plan": plan.facts(recipe.widths[-1])}
    record = Record(METHOD, parameters, plan.event, plan.guarantee, facts=facts)
    record.software = versions("numpy", "scipy", "torch")
    return record
