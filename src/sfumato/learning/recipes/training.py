"""Training by a recipe: from a data set to a run folder.

    trained = train(recipe, load_dataset("mnist"), out="runs/mnist")
    trained.record.guarantee, trained.accuracy

What happens, in this order: the plan is made and the model built; the folder is begun; the loop is
rehearsed on made-up rows; the ledger is charged, for private features and steps together; features
are fitted and computed; lots are drawn. So a refusal of any kind has read nothing. A run that was
killed goes on with ``resume=True``: features that were released are read back, never fitted twice
unless the first fit died unseen with its process.

Formal guarantees
- Everything in the folder but ``curator/`` follows from ``recipe.event(public_size)`` and public
  facts. Accuracy on a test set that was not declared public stays in ``curator/``.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core.html import CURATOR, facts_table
from sfumato.core.json_files import as_written
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset
from sfumato.learning.clock import Clock, OutOfTime
from sfumato.learning.dp_sgd.deferred import Deferred
from sfumato.learning.dp_sgd.distributed import find_ranks
from sfumato.learning.dp_sgd.noise import NoiseSource
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.recipes.augments import augment_by_name
from sfumato.learning.recipes.canaries import (
    CanaryKind,
    CanaryScores,
    Planted,
    WithCanaries,
    canary_losses,
)
from sfumato.learning.recipes.evaluating import Evaluation, minus_losses
from sfumato.learning.recipes.inputs import input_shape, labels_of
from sfumato.learning.recipes.loading import described, initial_model
from sfumato.learning.recipes.observing import History, Observer, Point, Shown
from sfumato.learning.recipes.preparing import Prepared, check_sizes, refuse_first_rows
from sfumato.learning.recipes.rates import make_optimizer, make_scheduler
from sfumato.learning.recipes.recipe import Recipe
from sfumato.learning.recipes.recording import curator_results, public_record
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger

__all__ = ["CANARIES", "Trained", "check_recipe", "train"]

CANARIES = "canaries.json"
"""Where the curator finds the canaries' scores."""

_PLANTED = "planted.json"


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        model: from inputs in [0, 1], channels first, to logits; features included.
        record: the public record.
        accuracy: of the final model on the test set, between 0 and 1; None without one. May be
            told only if ``accuracy_is_public``.
        points: the learning curve, on the same terms.
        folder: where it all is; None if it was not kept.
        canaries: what an audit needs, for the curator; None if none were planted.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    accuracy_is_public: bool
    points: tuple[Point, ...]
    folder: RunFolder | None
    canaries: CanaryScores | None = None

    def _repr_html_(self) -> str:
        record, rows = self.record, list[tuple[str, object]]()
        rows.append(("guarantee", str(record.guarantee)))
        private = self.accuracy is not None and not self.accuracy_is_public
        if self.accuracy is not None:
            where = "not public" if private else "public test set"
            rows.append(("accuracy", f"{self.accuracy:.2%} ({where})"))
        if self.canaries is not None:
            count = len(self.canaries.included)
            rows.append(("canaries", f"{count:,}; their coins and scores are the curator's"))
            # How many rows of the data are canaries depends on how many there are.
            private = private or self.canaries.kind is not CanaryKind.GRADIENT
        rows.append(("folder", "not kept" if self.folder is None else str(self.folder.path)))
        return facts_table(
            f"Trained: {described(record)}", rows, stamp=record.warning,
            note=CURATOR if private else "",
        )  # fmt: skip


def train(
    recipe: Recipe,
    data: Dataset,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    public_size: int | None = None,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    evaluations: int = 20,
    checkpoint_every: int | None = None,
    compile: bool = False,
    minutes: float | None = None,
    small_checkpoints: bool = False,
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    noise: NoiseSource | None = None,
    coins: Coins = SYSTEM,
    included: NDArray[np.bool_] | None = None,
) -> Trained:
    """Trains a model privately.

    Args:
        recipe: how.
        data: on what.
        out: the run's folder, new or empty; None keeps nothing.
        resume: go on with the run in ``out``.
        public_size: the declared number of units; by default the data set's.
        ledger: charge this one before any row is read.
        dataset: whose budget.
        analyst: in whose name.
        device: such as "cuda".
        evaluations: how many points the learning curve has; 0 tests the final model only.
        checkpoint_every: steps between checkpoints; by default a twentieth of the run.
        compile: trace the step for ``torch.compile``.
        minutes: stop after so many, with a checkpoint of that very step; resumed, it goes on.
        small_checkpoints: files of 15 MiB at most, averages in half precision.
        observer: who is told; bars on a terminal by default.
        request: what was asked for, kept in the curator's folder for whoever resumes.
        noise: where the steps' noise comes from: cryptographic coins by default.
        coins: where everything else that is drawn comes from; seeded in tests only.
        included: which gradient canaries are in, where an audit tosses the coins; by default
            tossed here.

    Raises:
        OutOfTime: if the minutes were over before the run was.
    """
    clock = Clock(minutes)
    if find_ranks().count > 1:
        raise ValueError(
            "a recipe is trained in one process: leave out torchrun, or train with DPSGD in a loop "
            "of your own"
        )
    if minutes is not None and out is None:
        raise ValueError("minutes needs a folder to go on from: give out")
    folder = None if out is None else RunFolder(out)
    if resume:
        recipe = _recipe_of(folder)
    elif recipe.seed is None:
        recipe = replace(recipe, seed=secrets.randbits(32))
    size = check_sizes(recipe, data, public_size)
    if ledger is not None:
        refuse_first_rows(recipe, data)
    plan = recipe.plan(size)
    run = _Run(recipe, plan, data, device, observer or Shown(), folder, coins)
    if folder is not None and not resume:
        folder.begin({"recipe": recipe.to_dict()} | dict(request or {}))
    with _abandoning(folder, resume) as begun:
        run.plant(included, resume)
        trainer = run.trainer(
            ledger=ledger, dataset=dataset, analyst=analyst, noise=noise,
            checkpoints=None if folder is None else folder.checkpoints,
            checkpoint_every=max(1, plan.steps // 20)
            if checkpoint_every is None
            else checkpoint_every,
            small_checkpoints=small_checkpoints,
        )  # fmt: skip
        begun.append(trainer)
        if resume:
            run.resume(trainer)
        return run.finish(trainer, evaluations, compile, clock)


def check_recipe(recipe: Recipe, data: Dataset, public_size: int, device: str = "cpu") -> None:
    """Says what :func:`train` would refuse of a recipe before its charge; reads no row.

    Raises:
        ValueError: for a model, an optimizer or options that there are not, or do not fit.
        TrainingError: for a model that cannot be treated example by example.
    """
    seeded = replace(recipe, seed=0 if recipe.seed is None else recipe.seed)
    plan = seeded.plan(public_size)
    _Run(seeded, plan, data, device, Shown(False), None, SYSTEM).trainer()


@contextlib.contextmanager
def _abandoning(folder: RunFolder | None, resume: bool) -> Generator[list[DPSGD]]:
    """Leaves no folder behind where an error came before the charge and the first lot."""
    trainers: list[DPSGD] = []
    try:
        yield trainers
    except BaseException:
        untouched = all(t.steps_taken == 0 and "ledger" not in t.record.facts for t in trainers)
        if folder is not None and untouched and not resume:
            folder.abandon()
        raise


def _recipe_of(folder: RunFolder | None) -> Recipe:
    if folder is None:
        raise ValueError("resume must name the run's folder: give out")
    if folder.finished:
        raise ValueError(f"the run in {folder.path} came to its end: there is nothing to resume")
    with as_written(folder.request_file):
        return Recipe.from_dict(folder.request()["recipe"])


class _Run:
    """One run, while it lasts."""

    def __init__(
        self,
        recipe: Recipe,
        plan: TrainingPlan,
        data: Dataset,
        device: str,
        observer: Observer,
        folder: RunFolder | None,
        coins: Coins,
    ) -> None:
        self.recipe, self.plan, self.data, self.folder = recipe, plan, data, folder
        self.observer, self.coins = observer, coins
        self.history = History(observer.steps(), kept=folder is not None)
        shape = input_shape(data.shape)
        self.prepared = Prepared(recipe.features, shape, device, folder, observer, coins)
        self.head = initial_model(recipe, self.prepared.shape, len(data.classes)).to(device)
        self.device = device
        self.planted: Planted | None = None

    def plant(self, included: NDArray[np.bool_] | None, resumed: bool) -> None:
        """Takes up or tosses the canaries' coins, if there are any."""
        canaries = self.recipe.canaries
        if canaries is None:
            return
        if resumed and self.folder is not None and not self._killed_before_planting():
            with as_written(self.folder.curator / _PLANTED):
                self.planted = Planted.from_dict(self.folder.read_curator(_PLANTED))
        else:
            total, classes = len(self.data.train.labels), len(self.data.classes)
            self.planted = Planted.draw(
                canaries, total, classes, self.coins, included, self.recipe.neighbours,
                self.plan.lots.population,
            )  # fmt: skip
            if self.folder is not None:
                self.folder.write_curator(_PLANTED, self.planted.to_dict())
        if self.planted.is_gradient:
            clip = getattr(self.recipe.clip, "clip", 1.0)
            self.head = WithCanaries(self.head, canaries.count, clip).to(self.device)

    def _killed_before_planting(self) -> bool:
        """Whether the run that is gone on with had tossed no coin yet, and so charged nothing.

        Raises:
            ValueError: if the coins are gone and steps were begun with them.
        """
        assert self.folder is not None
        if (self.folder.curator / _PLANTED).exists():
            return False
        begun = self.folder.checkpoints
        if begun.is_dir() and any(begun.iterdir()):
            raise ValueError(
                f"the canaries' coins ({_PLANTED}) are not in {self.folder.curator} any more, and "
                "other ones would not be those the run began with: restore curator/ from a copy"
            )
        return True

    def trainer(self, **more: Any) -> DPSGD:
        """The engine, with everything that the recipe says."""
        recipe, lots = self.recipe, self.plan.lots
        optimizer = make_optimizer(
            recipe.optimizer, self._parameters(), recipe.rate.start, recipe.momentum,
            recipe.weight_decay,
        )  # fmt: skip
        per_epoch = lots.population / lots.expected_size
        augment = None if recipe.augment is None else augment_by_name(recipe.augment)
        return DPSGD(
            self.head, optimizer, self._rows(), plan=self.plan, batch_size=recipe.batch_size,
            owners=self.data.owners, rows_per_owner=recipe.rows_per_owner,
            augment=augment, augmentations=recipe.augmentations, ema_decay=recipe.ema_decay,
            scheduler=make_scheduler(optimizer, recipe.rate, self.plan.steps, per_epoch),
            coins=self.coins, progress=self.history, **more,
        )  # fmt: skip

    def _parameters(self) -> Iterable[Tensor] | list[dict[str, Any]]:
        """Of the model, in groups where some begin with public weights."""
        if self.recipe.start is None:
            return self.head.parameters()
        wrapped = "inner." if isinstance(self.head, WithCanaries) else ""
        named = ((name.removeprefix(wrapped), p) for name, p in self.head.named_parameters())
        return self.recipe.start.groups(named, self.recipe.rate.start, self.recipe.head_rate)

    def _rows(self) -> Deferred:
        inputs, labels = self.data.train
        planted, classes = self.planted, len(self.data.classes)
        kept = slice(None) if planted is None else planted.kept(len(labels))
        like = (
            torch.empty(0, *self.prepared.shape, device=self.device),
            *(torch.empty(0, dtype=torch.int64, device=self.device),) * (2 if self._marked else 1),
        )

        def make() -> tuple[Tensor, ...]:
            made = self.prepared.fitted(inputs[kept], self.data.bounds)
            wanted = labels_of(labels, classes)
            if planted is None:
                return made, wanted.to(self.device)
            wanted = planted.relabelled(wanted, classes)[kept].to(self.device)
            return planted.extended(made, wanted) if planted.is_gradient else (made, wanted)

        count = len(labels) if planted is None else planted.total(len(labels))
        return Deferred(make, like, count)

    @property
    def _marked(self) -> bool:
        """Whether rows have a mark that tells canaries from others."""
        return self.planted is not None and self.planted.is_gradient

    def resume(self, trainer: DPSGD) -> None:
        """Takes up features, weights and the count of steps."""
        self.prepared.restore()
        trainer.resume()
        in_weights = trainer.steps_taken - trainer.record.facts["steps_lost"]
        if self.plan.before is not None and in_weights and not self.prepared.restored:
            raise ValueError(
                "the features that the run began with are not in its folder any more, and to "
                "release others is not paid for: restore curator/ from a copy"
            )

    def finish(self, trainer: DPSGD, evaluations: int, compiled: bool, clock: Clock) -> Trained:
        """The loop, then the files."""
        evaluation = Evaluation(self.data, self.prepared, trainer, self.folder, self.observer)
        evaluation.plan(evaluations)
        losses = in_precision(canary_losses if self._marked else _losses, self.recipe.precision)

        def after(step: int) -> None:
            evaluation.after(step)
            if clock.over and step < self.plan.steps:
                trainer.save()
                raise OutOfTime(f"stopped after {step:,} of {self.plan.steps:,} steps")

        trainer.fit(losses, compile=compiled, after=after)
        accuracy = evaluation.final()  # before whole(), which puts the averaged weights in place
        pushed = self.head.scores if isinstance(self.head, WithCanaries) else None
        model = self.whole(trainer)
        canaries = self._scored(pushed)
        record = public_record(trainer, self.recipe, self.data, self.prepared, evaluation)
        if self.folder is not None:
            self.folder.write_curator(
                "results.json", curator_results(evaluation, self.history.to_dict())
            )
            self.folder.write_model(model.state_dict())
            self.folder.write_record(record.to_dict())
        return Trained(
            model, record, accuracy, self.data.test_is_public, tuple(evaluation.points),
            self.folder, canaries,
        )  # fmt: skip

    def _scored(self, pushed: NDArray[np.float64] | None) -> CanaryScores | None:
        """The canaries' scores, kept for the curator."""
        if self.planted is None:
            return None
        scores = self._minus_losses(self.planted) if pushed is None else pushed
        found = CanaryScores(self.planted.canaries.kind, self.planted.included, scores)
        if self.folder is not None:
            self.folder.write_curator(CANARIES, found.to_dict())
        return found

    def _minus_losses(self, planted: Planted) -> NDArray[np.float64]:
        inputs, labels = self.data.train
        classes = len(self.data.classes)
        features = self.prepared.applied(inputs[planted.rows], self.data.bounds)
        wanted = planted.relabelled(labels_of(labels, classes), classes)[planted.rows]
        return minus_losses(self.head, features, wanted.to(features.device))

    def whole(self, trainer: DPSGD) -> nn.Module:
        """Features and model as one module, with the averaged weights if there are any."""
        if self.recipe.ema_decay is not None:
            with trainer.averaged():
                weights = {n: w.detach().clone() for n, w in self.head.state_dict().items()}
            self.head.load_state_dict(weights)
        head = self.head.inner if isinstance(self.head, WithCanaries) else self.head
        return nn.Sequential(self.prepared.module, head).eval()


def in_precision(losses: Callable[..., Tensor], precision: str) -> Callable[..., Tensor]:
    """Losses whose model computes in bfloat16 where its recipe says so; they stay in float32."""
    if precision == "full":
        return losses

    def half(model: Any, inputs: Tensor, *more: Any) -> Tensor:
        with torch.autocast(inputs.device.type, torch.bfloat16):
            return losses(model, inputs, *more)

    return half


def _losses(model: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), labels, reduction="none")
