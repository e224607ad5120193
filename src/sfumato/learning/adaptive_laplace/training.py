"""From a data set to a run's folder: relevance, noisy records, a model of them.

    data = load_dataset("digits")
    trained = train_adaptive_laplace(AdaptiveLaplaceRecipe(epsilon=50.0), data, out="runs/noisy")
    trained.accuracy, trained.record.guarantee

Three releases, charged together before any row is read: relevance (once, over all records), noisy
inputs and noisy labels (once for each record). What is told of the records is kept in the curator's
folder, so that other models can be learnt from it for nothing (:func:`learn_again`); it was paid
for, and may be shown.

A run that was cut off is not gone on with: it begins anew, in another folder, and is charged anew.

Reference: Phan, Wu, Hu and Dou, arXiv:1709.05750, corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.accounting import account
from sfumato.core import validation
from sfumato.core.events import Event, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.data import Dataset
from sfumato.learning.adaptive_laplace.learning import Told, learn, untrained
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.adaptive_laplace.recording import public_facts
from sfumato.learning.erm.charging import Charge
from sfumato.learning.features import transform
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_arrays
from sfumato.learning.relevance.known import KnownModel, checked_model
from sfumato.learning.relevance.private import check_inputs
from sfumato.learning.relevance.shares import feature_shares
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import LedgerError

__all__ = ["METHOD", "AdaptiveLaplaceTrained", "learn_again", "planned", "train_adaptive_laplace"]

METHOD = "adaptive-laplace"
"""Of the record."""

_TOLD = "told.safetensors"


@final
@dataclass(frozen=True)
class AdaptiveLaplaceTrained:
    """What came out.

    Attributes:
        model: from inputs in [0, 1], channels first, to scores of classes.
        record: public.
        accuracy: on the test set; None where there is none. To be told only if it is public.
        accuracy_is_public: whether it may.
        shares: of each input, by relevance; public.
        folder: of the run.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    accuracy_is_public: bool
    shares: NDArray[np.float64]
    folder: RunFolder


def planned(
    recipe: AdaptiveLaplaceRecipe, data: Dataset, known: KnownModel | None = None
) -> tuple[Event, Guarantee]:
    """What a run would release and promise, from public facts alone.

    Raises:
        ValueError: for parameters that cannot be.
    """
    _check(recipe, data)
    shape, classes = input_shape(data.shape), len(data.classes)
    untrained(recipe, shape, classes)  # or says what is wrong with the network
    size = check_inputs(recipe.told_shape(shape))
    _check_takes(recipe.source.known(size) if known is None else known, size)
    event = recipe.event(classes)
    found = None if known is None else checked_model(known).event
    if found is None:
        return event, recipe.guarantee
    if recipe.relevance() is None:
        validation.fail("relevance_share", "above 0 with a network of relevance", 0.0)
    whole = compose(found, event)
    return whole, account(whole, recipe.delta)


def train_adaptive_laplace(
    recipe: AdaptiveLaplaceRecipe,
    data: Dataset,
    *,
    out: str | Path,
    known: KnownModel | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> AdaptiveLaplaceTrained:
    """Tells every record once, with noise by relevance, and learns from that.

    Args:
        recipe: how.
        data: on what; its rows are private, their number is public.
        out: the run's folder, new or empty.
        known: the network that relevance is computed with; None for the recipe's public one.
        ledger: charged before any row is read.
        dataset: whose budget: of the recipe's unit, for replacements.
        analyst: in whose name.
        device: where the network learns.
        observer: who is told how far it is.
        request: what was asked for, kept in the curator's folder.
        coins: where noise comes from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any row is read.
        LedgerError: if the budget protects somebody else.
        BudgetExceeded: if it does not pay; nothing is spent.
    """
    event, guarantee = planned(recipe, data, known)
    shape, classes = input_shape(data.shape), len(data.classes)
    source = recipe.source.known(recipe.told_shape(shape)) if known is None else known
    torch.zeros(1, device=device)  # or says why not, before anything is paid
    folder = RunFolder(out)
    folder.begin({"adaptive_laplace": recipe.to_dict()} | dict(request or {}))
    charge = Charge(ledger, dataset, analyst, METHOD)
    try:
        charge.make(_due(recipe, event, classes, source), 0.0, recipe.to_dict())
    except (LedgerError, ValueError):  # nothing was charged, and no row was read
        folder.abandon()
        raise
    record = Record(METHOD, {"recipe": recipe.to_dict()}, event, guarantee)
    record.software = versions("numpy", "torch")
    record.touch(coins)
    record.facts |= charge.facts
    seen = observer or Shown()
    told, shares = _told(recipe, data, source, coins, seen)
    folder.write_curator_tensors(_TOLD, _tensors(told))
    model = learn(recipe, shape, told, device, _telling(seen, "learning"))
    accuracy = _accuracy(model, data)
    record.facts |= public_facts(recipe, data, source, shares, accuracy)
    if not data.test_is_public:
        folder.write_curator("results.json", {"accuracy": accuracy})
    charge.finish(record.to_dict())
    folder.write_model(model.state_dict())
    folder.write_record(record.to_dict())
    return AdaptiveLaplaceTrained(
        model, record, accuracy, data.test_is_public, shares, folder
    )  # fmt: skip


def learn_again(
    folder: RunFolder | str | Path, recipe: AdaptiveLaplaceRecipe, device: str = "cpu"
) -> nn.Module:
    """Another model of what a finished run told of its records: costs nothing.

    Args:
        folder: of the run.
        recipe: of which only model, options and training are used; what was told, and so the
            squares of pixels, is as in the run.
        device: where the network learns.

    Raises:
        ValueError: if there is no such run.
    """
    run = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    record = Record.from_dict(run.record())
    found = run.read_curator_tensors(_TOLD)
    if record.method != METHOD or found is None:
        validation.fail("folder", f"that of a run of {METHOD}", str(run.path))
    told = Told(**{name: value.numpy() for name, value in found.items()})
    recipe = replace(recipe, pool=record.parameters["recipe"]["pool"])
    return learn(recipe, input_shape(tuple(record.facts["data"]["shape"])), told, device)


def _check(recipe: AdaptiveLaplaceRecipe, data: Dataset) -> None:
    if data.target_bounds is not None or len(data.classes) < 2:
        validation.fail("data", "of two classes or more", data.name)
    if data.owners is not None:
        raise ValueError(
            f"owners must be left out for {METHOD}, which tells each row once: train with dp-sgd "
            "or pate, which protect owners of several rows, or keep one row of each"
        )
    check_arrays(data)


def _check_takes(known: KnownModel, size: tuple[int, ...]) -> None:
    """Raises unless a network takes such inputs: before anything is charged, on made-up ones."""
    try:
        with torch.no_grad():
            known.module(torch.zeros(1, *size, dtype=torch.float32))
    except RuntimeError as error:
        raise ValueError(
            f"known must be a network for inputs of shape {size}, got one that does not take "
            f"them: {error}"
        ) from None


def _due(recipe: AdaptiveLaplaceRecipe, event: Event, classes: int, known: KnownModel) -> Event:
    """What is to be charged: all of it, but for a training that was charged before."""
    return recipe.event(classes) if known.charged else event


def _telling(observer: Observer, what: str) -> Any:
    return lambda done, total: observer.preparing(what, done, total)


def _told(
    recipe: AdaptiveLaplaceRecipe,
    data: Dataset,
    known: KnownModel,
    coins: Coins,
    observer: Observer,
) -> tuple[Told, NDArray[np.float64]]:
    """The three releases; nothing else reads private rows."""
    classes = len(data.classes)
    inputs = inputs_of(data.train.inputs, data.bounds)
    inputs = recipe.pooling.build(input_shape(data.shape))(inputs)
    shares = _shares(recipe, known, inputs, coins, observer)
    noisy = recipe.noisy_inputs(classes, shares)
    labels = recipe.noisy_labels(classes)
    rows = noisy.perturb(
        inputs.flatten(1).numpy(), coins=coins, told=_telling(observer, "noisy inputs")
    )
    reports = labels.perturb(labels_of(data.train.labels, classes).numpy(), coins=coins)
    told = Told(rows, noisy.scales, labels.unbiased(reports), labels.likelihood(reports))
    return told, shares


def _shares(
    recipe: AdaptiveLaplaceRecipe,
    known: KnownModel,
    inputs: Tensor,
    coins: Coins,
    observer: Observer,
) -> NDArray[np.float64]:
    """By relevance; all 1 where none is released."""
    way = recipe.relevance()
    if way is None:
        return np.ones(int(np.prod(inputs.shape[1:])))
    told = _telling(observer, "relevance")
    return feature_shares(way.release(known, inputs, coins=coins, told=told).total, recipe.floor)


def _tensors(told: Told) -> dict[str, Tensor]:
    names = ("inputs", "scales", "unbiased", "likelihood")
    return {name: torch.from_numpy(np.ascontiguousarray(getattr(told, name))) for name in names}


def _accuracy(model: nn.Module, data: Dataset) -> float | None:
    inputs, labels = data.test
    if not len(labels):
        return None
    found = transform(model, inputs_of(inputs, data.bounds)).argmax(dim=1)
    return float((found == labels_of(labels, len(data.classes))).double().mean())
