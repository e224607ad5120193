"""Training without privacy: what a private model would have been.

    plain = train_plain(recipe, load_dataset("mnist"), out="runs/plain")
    plain.record.guarantee  # epsilon infinite

For attacks and reports that compare a private model with its twin: the same network from the same
initial weights, on the same features of the same rows, trained by mini-batches without clipping
and without noise. Clip norm, noise, lots, length, learning rate and averages of the recipe are for
training under noise; a :class:`~sfumato.learning.ensembles.Schedule` takes their place.

What is promised
- Nothing. The event is :class:`~sfumato.core.events.NotPrivateEvent`, the guarantee's epsilon is
  infinite, no ledger pays for it, and the record says ``"private": false`` with a warning.
- The model, the record and the folder are for the curator: only the owner may open them. Accuracy
  and the learning curve are read from private data through a model that hides nothing, so that
  they are in ``curator/results.json`` alone, even where the test set is public.
- Features that are fitted on private rows (a PCA) are fitted with their noise, as in a private run,
  so that the two runs differ in their training alone.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.accounting import account
from sfumato.core import validation
from sfumato.core.events import NotPrivateEvent
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.data import Dataset
from sfumato.learning.dp_sgd.progress import Facts
from sfumato.learning.ensembles import Schedule
from sfumato.learning.ensembles.batches import derived_seed, steps_per_epoch
from sfumato.learning.recipes.augments import augment_by_name
from sfumato.learning.recipes.evaluating import accuracy_of
from sfumato.learning.recipes.inputs import input_shape, labels_of
from sfumato.learning.recipes.loading import initial_model
from sfumato.learning.recipes.observing import History, Observer, Point, Shown
from sfumato.learning.recipes.preparing import Prepared, check_sizes
from sfumato.learning.recipes.rates import make_optimizer
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.training import Trained
from sfumato.learning.runs.folder import RunFolder

__all__ = ["plain_schedule", "train_plain"]

_RATES = {"sgd": 0.05, "adam": 0.001}
_USED = "features, model, model_options, optimizer, weight_decay, augment, seed"


def plain_schedule(
    recipe: Recipe,
    *,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
) -> Schedule:
    """Epochs of stochastic gradient descent that fit small networks; more of them overfit.

    Args:
        recipe: of which the optimizer and the weight decay are taken.
        epochs: passes over the rows; 20 by default.
        batch_size: rows of one step; 128 by default.
        learning_rate: at its highest, from which it falls to 0; by default 0.05 for SGD (with
            momentum 0.9) and 0.001 for Adam.
    """
    return Schedule(
        epochs=20 if epochs is None else epochs,
        batch_size=128 if batch_size is None else batch_size,
        rate=_RATES[recipe.optimizer] if learning_rate is None else learning_rate,
        weight_decay=recipe.weight_decay,
        optimizer=recipe.optimizer,
    )


def train_plain(
    recipe: Recipe,
    data: Dataset,
    *,
    out: str | Path | None = None,
    schedule: Schedule | None = None,
    public_size: int | None = None,
    device: str = "cpu",
    evaluations: int = 20,
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> Trained:
    """Trains a model **without privacy**, on all rows of ``data.train``.

    The folder is laid out as a private run's, for its owner alone: :func:`~.loading.load_run` and
    attacks read it. A run that fails or is interrupted leaves no folder; there is nothing to
    resume.

    Args:
        recipe: model, features, optimizer and seed are taken from it; with the same seed a private
            run begins from the same weights.
        data: on what.
        out: the run's folder, new or empty; None keeps nothing.
        schedule: epochs, batches and learning rate; :func:`plain_schedule` by default.
        public_size: the declared number of units; by default the data set's.
        device: such as "cuda".
        evaluations: how many points the learning curve has; 0 tests the final model only.
        observer: who is told; bars on a terminal by default.
        request: what was asked for, kept in the curator's folder.
        coins: of the noise of private features; seeded in tests only.

    Returns:
        The run, whose ``accuracy_is_public`` is False whatever the test set is.

    Raises:
        ValueError: for a recipe with canaries, data without rows, or a folder that is not new.
    """
    if recipe.canaries is not None:
        raise ValueError(
            "canaries audit a promise, and a run without privacy makes none: leave them out"
        )
    size = check_sizes(recipe, data, public_size)
    if len(data.train.labels) == 0:
        raise ValueError("there must be rows to train on, got none")
    if recipe.seed is None:
        recipe = replace(recipe, seed=secrets.randbits(32))
    # No number of a private run may be taken for a promise of this one.
    recipe = replace(recipe, epsilon=None, noise_multiplier=None, epochs=None, steps=None)
    schedule = plain_schedule(recipe) if schedule is None else schedule
    folder = None if out is None else RunFolder(out, public=False)
    run = _PlainRun(recipe, schedule, data, device, observer or Shown(), folder, coins)
    asked = validation.at_least("evaluations", evaluations, 0)
    if folder is not None:
        settings = {"recipe": recipe.to_dict(), "schedule": schedule.to_dict()}
        folder.begin(settings | dict(request or {}))
    with _abandoning(folder):
        run.fit(asked)
        return run.finish(size)


@contextlib.contextmanager
def _abandoning(folder: RunFolder | None) -> Generator[None]:
    """Leaves no folder behind where the run did not come to its end: nothing was charged."""
    try:
        yield
    except BaseException:
        if folder is not None:
            folder.abandon()
        raise


@final
class _PlainRun:
    """One run, while it lasts."""

    def __init__(
        self,
        recipe: Recipe,
        schedule: Schedule,
        data: Dataset,
        device: str,
        observer: Observer,
        folder: RunFolder | None,
        coins: Coins,
    ) -> None:
        self.recipe, self.schedule, self.data = recipe, schedule, data
        self.device, self.observer, self.folder = device, observer, folder
        shape = input_shape(data.shape)
        self.prepared = Prepared(recipe.features, shape, device, folder, observer, coins)
        self.head = initial_model(recipe, self.prepared.shape, len(data.classes)).to(device)
        self.history = History(observer.steps(), kept=folder is not None)
        self.per_epoch = steps_per_epoch(len(data.train.labels), schedule.batch_size)
        self.steps = schedule.epochs * self.per_epoch
        self.points: list[Point] = []
        self.own_accuracy = math.nan

    def fit(self, evaluations: int) -> None:
        """All epochs, with the learning curve."""
        inputs, labels = self.data.train
        rows = self.prepared.fitted(inputs, self.data.bounds)
        wanted = labels_of(labels, len(self.data.classes)).to(rows.device)
        chosen = {-(-self.steps * i // evaluations) for i in range(1, evaluations + 1)}
        tested = self._tested()
        try:
            with self._coins_put_back():
                for step, loss in enumerate(self._losses(rows, wanted), start=1):
                    if self.history.wanted:
                        self.history.update(Facts(step, self.steps, float(loss), math.inf))
                    if tested is not None and (step in chosen or step == self.steps):
                        point = Point(step, math.inf, accuracy_of(self.head, *tested))
                        self.points.append(point)
                        self.observer.evaluated(point)
        finally:
            self.history.close()
        self.head.zero_grad()  # the last batch's gradient is nobody's business
        self.own_accuracy = accuracy_of(self.head, rows, wanted)

    def _tested(self) -> tuple[Tensor, Tensor] | None:
        """What the model is tested on, if there is anything."""
        inputs, labels = self.data.test
        if not len(labels):
            return None
        rows = self.prepared.applied(inputs, self.data.bounds)
        return rows, labels_of(labels, len(self.data.classes)).to(rows.device)

    def _losses(self, rows: Tensor, labels: Tensor) -> Iterator[Tensor]:
        """The loss of each step, once it is taken."""
        schedule, recipe = self.schedule, self.recipe
        optimizer = make_optimizer(
            schedule.optimizer, self.head.parameters(), schedule.rate, schedule.momentum,
            schedule.weight_decay,
        )  # fmt: skip
        augment = None if recipe.augment is None else augment_by_name(recipe.augment)
        self.head.train()
        for step, chosen in enumerate(self._batches(len(labels))):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate_at(step, self.steps)
            batch = rows[chosen] if augment is None else augment(rows[chosen])
            loss = F.cross_entropy(self.head(batch), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.detach()

    def _batches(self, count: int) -> Iterator[Tensor]:
        """Numbers of rows, all of them once an epoch, in batches of one size or one less."""
        assert self.recipe.seed is not None
        generator = torch.Generator().manual_seed(derived_seed(self.recipe.seed, 1))
        for _ in range(self.schedule.epochs):
            order = torch.randperm(count, generator=generator).to(self.device)
            yield from order.tensor_split(self.per_epoch)

    @contextlib.contextmanager
    def _coins_put_back(self) -> Generator[None]:
        """Torch's own generator seeded, for augmentation and dropout, and as it was afterwards."""
        assert self.recipe.seed is not None
        devices = [self.device] if self.device.startswith("cuda") else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(derived_seed(self.recipe.seed, 2))
            yield

    def finish(self, size: int) -> Trained:
        """The files, each for the owner alone."""
        model = nn.Sequential(self.prepared.module, self.head).eval()
        record = self._record(size)
        accuracy = self.points[-1].accuracy if self.points else None
        results = {
            "accuracy": accuracy,
            "accuracy_on_own": self.own_accuracy,
            "curve": [{"step": p.step, "accuracy": p.accuracy} for p in self.points],
        }
        for name, value in results.items():
            record.tell_curator(name, value)
        if self.folder is not None:
            history = self.history.to_dict()
            told = {"step": history["step"], "loss": history["loss"]}
            self.folder.write_curator("results.json", results | {"training": told})
            self.folder.write_model(model.state_dict())
            self.folder.write_record(record.to_dict())
        return Trained(model, record, accuracy, False, tuple(self.points), self.folder)

    def _record(self, size: int) -> Record:
        """What was done, and that it promises nothing; no result."""
        recipe, data = self.recipe, self.data
        event = NotPrivateEvent(recipe.neighbours, recipe.unit)
        known: dict[str, Any] = {
            "name": data.name, "classes": list(data.classes), "shape": list(data.shape),
            "bounds": list(data.bounds), "public_size": size, "citation": data.citation,
        }  # fmt: skip
        facts = {
            "data": known | ({} if data.rows is None else {"rows": data.rows}),
            "public_features": self.prepared.features.provenance,
            "tuning": recipe.origin,
            "test_set": "results stay with the curator, whatever the test set is",
        }
        parameters = {
            "recipe": recipe.to_dict(),
            "taken_from_the_recipe": _USED,
            "schedule": self.schedule.to_dict(),
        }
        guarantee = account(event, delta=0.0)
        return Record("plain", parameters, event, guarantee, False, facts, versions("torch"))
