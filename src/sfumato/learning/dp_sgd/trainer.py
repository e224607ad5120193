"""DP-SGD for anybody's PyTorch loop.

    trainer = DPSGD(model, optimizer, data, public_size=60_000, lot_size=2048, clip=1.0,
                    epochs=30, epsilon=3, delta=1e-5)
    for x, y in trainer:
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    trainer.guarantee

Algorithm 1 of Abadi et al., arXiv:1607.00133, exactly: Poisson lots over a declared number of
records, each example's gradient clipped, Gaussian noise added once to the lot's sum, the sum
divided by the *expected* lot size. The model is neither wrapped nor renamed.

Guarantee: what is released (the sequence of weights) is the plan's event, whatever the data. The
sampler, the clip norms, the noise and the accountant all come from one
:class:`~sfumato.learning.dp_sgd.plan.TrainingPlan`. Before the first private row is read the loop
is rehearsed on made-up rows (see :mod:`~sfumato.learning.dp_sgd.rehearsal`) and the ledger is
charged. Losses, norms and lot sizes are shown to the operator alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, final

import torch
from numpy.typing import ArrayLike
from torch import nn

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.learning.dp_sgd import records
from sfumato.learning.dp_sgd.arguments import (
    check_names,
    checked_parameters,
    make_plan,
    open_ledger,
    relation_of,
    units,
)
from sfumato.learning.dp_sgd.augmenting import Augmentation
from sfumato.learning.dp_sgd.averaging import WeightAverage
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.learning.dp_sgd.clipping import Clipping
from sfumato.learning.dp_sgd.correlated.strategies import Correlation
from sfumato.learning.dp_sgd.distributed import Ranks, agreement, find_ranks
from sfumato.learning.dp_sgd.distributed.shards import find_shards
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.looping import Loop
from sfumato.learning.dp_sgd.lots import Lots
from sfumato.learning.dp_sgd.noise import NoiseSource, default_noise
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.progress import Progress
from sfumato.learning.dp_sgd.recording import Recorder
from sfumato.learning.dp_sgd.resuming import Resuming
from sfumato.learning.dp_sgd.schedules import NoiseSchedule
from sfumato.learning.dp_sgd.stepping import NoisyStep
from sfumato.learning.dp_sgd.watching import Watch
from sfumato.learning.secret_coins import ModelCoins
from sfumato.ledger import Ledger

__all__ = ["DPSGD"]


@final
class DPSGD(Loop):
    """Private training in the user's own loop: an iterator over batches, and ``backward``.

    Give two of ``epsilon``, ``noise_multiplier`` and ``steps`` (or ``epochs``); the third follows.
    One loop is the whole run, all epochs of it. Its first turns are a rehearsal on made-up rows
    (:attr:`rehearsing`): keep schedules, counters and logs of your own out of them.

    Args:
        model: any module. Its trainable parameters are the ones trained.
        optimizer: any torch optimizer over them.
        data: tensors, arrays, or a map-style dataset.
        public_size: the declared number of records (or owners), which need not be exact: under
            add/remove the true number is private.
        lot_size: the expected number of units in a lot.
        delta: at which epsilon is stated.
        epsilon: the guarantee to meet.
        noise_multiplier: standard deviation of the noise, over the clip norm.
        steps: the number of lots.
        epochs: the same in units of ``public_size / lot_size`` lots.
        clip: the clip norm, 1 by default, or a :class:`Clipping`.
        lots: how lots are drawn, instead of ``lot_size`` and ``public_size``.
        schedule: how noise is spread over the run; the same at every step by default.
        correlation: how the noise of different steps is correlated; independent by default.
        neighbours: the relation of the guarantee; by default the ledger's, or add/remove.
        unit: what is sampled and clipped: "record", or who the owners are.
        plan: all of the above at once, instead of them.
        batch_size: the most rows in memory at a time; by default a whole lot.
        owners: for each row whose it is; then owners are sampled and clipped, not rows.
        rows_per_owner: the most rows of one owner in a lot.
        augment: a random change of a batch's inputs (its first element, or all of it if it is a
            tensor or a dictionary), of each row independently of others.
        augmentations: how many differently augmented copies are averaged before clipping; they
            count towards ``batch_size``.
        ema_decay: keep a moving average of the weights: see :meth:`averaged`.
        scheduler: a learning-rate scheduler, stepped once a lot.
        loss_scale: a constant factor against underflow in float16.
        ledger: charge this ledger's ``dataset`` before the run, in the name of ``analyst``.
        checkpoints: a folder to save to every ``checkpoint_every`` steps, and to resume from.
        small_checkpoints: files of 15 MiB at most, the weights' average in bfloat16.
        noise: where noise comes from: cryptographic coins by default.
        coins: where sampling comes from; seeded ones in tests only.
        workers: processes that prepare batches of a dataset.
        collate: how a dataset's items become a batch; :class:`PadTo` where they have several
            lengths.
        example: a few public, plausible rows for the rehearsal, where made-up ones will not do;
            they also declare what a dataset's items look like.
        progress: show a bar (by default on a terminal), or who is to be told of each step.
        ranks: the processes of the run: by default those of ``torch.distributed`` if it is
            initialised; ``Alone()`` for a trainer that is to keep to itself among others.

    Example:
        >>> import torch
        >>> from torch.nn import functional as F
        >>> x, y = torch.randn(200, 5), torch.zeros(200, dtype=torch.long)
        >>> model = torch.nn.Linear(5, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        >>> trainer = DPSGD(model, optimizer, (x, y), public_size=200, lot_size=50, steps=4,
        ...                 epsilon=8, delta=1e-4)
        >>> for inputs, labels in trainer:
        ...     trainer.backward(F.cross_entropy(model(inputs), labels, reduction="none"))
        >>> trainer.guarantee.epsilon <= 8, trainer.steps_taken
        (True, 4)
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Any,
        *,
        public_size: int | None = None,
        lot_size: float | None = None,
        delta: float | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        clip: float | Clipping | None = None,
        lots: Lots | None = None,
        schedule: NoiseSchedule | None = None,
        correlation: Correlation | None = None,
        neighbours: Neighbours | str | None = None,
        unit: str | None = None,
        plan: TrainingPlan | None = None,
        batch_size: int | None = None,
        owners: ArrayLike | None = None,
        rows_per_owner: int = 1,
        augment: Callable[[Any], Any] | None = None,
        augmentations: int = 1,
        ema_decay: float | None = None,
        scheduler: Any = None,
        loss_scale: float = 1.0,
        ledger: Ledger | str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        checkpoints: str | Path | None = None,
        checkpoint_every: int = 100,
        small_checkpoints: bool = False,
        noise: NoiseSource | None = None,
        coins: Coins = SYSTEM,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        example: Any = None,
        progress: bool | Progress | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        agreement.refuse_wrapped(model)
        check_names(ledger, dataset, ema_decay)
        self._ranks = find_ranks() if ranks is None else ranks
        asked: dict[str, Any] = {
            "public_size": public_size, "lot_size": lot_size, "lots": lots, "clip": clip,
            "delta": delta, "epsilon": epsilon, "noise_multiplier": noise_multiplier,
            "steps": steps, "epochs": epochs, "neighbours": neighbours, "unit": unit,
            "schedule": schedule, "correlation": correlation,
            "default_unit": "record" if owners is None else "owner",
        }  # fmt: skip
        agreement.require_same(self._ranks, plan=(plan, asked))
        made = self._ranks.by_leader(
            lambda: make_plan(plan, relation=relation_of(ledger, dataset), **asked)
        )
        told = self._ranks.leading(lambda: {} if made is None else made.to_dict())
        self._plan = made or TrainingPlan.from_dict(told)
        self._shards = find_shards(model, self._ranks)
        self._parameters = checked_parameters(model, optimizer, scheduler)
        agreement.refuse_deferred(data, self._ranks)
        self._source = Source(data, workers=workers, collate=collate, example=example)
        self._owners = units(len(self._source), owners, rows_per_owner, self.plan)
        self.plan.sampler(len(self._owners), coins)  # or says why there is none
        self._augmentation = Augmentation(augment, augmentations)
        self._copies = self._owners.rows_per_unit * self._augmentation.copies
        self._most_rows = None if batch_size is None else validation.count("batch_size", batch_size)
        own_coins = agreement.coins_of_rank(coins, self._ranks)
        self._coins = coins
        self._model_coins = ModelCoins(own_coins)
        self._noise = noise or default_noise(own_coins, self._parameters.values())
        self._recorder = Recorder(model, Tape(self._parameters))
        self._watch = Watch(model, self._parameters, self._shards)
        self._average = None if ema_decay is None else WeightAverage(model, ema_decay)
        self._step = NoisyStep(
            self.plan, self._parameters, optimizer, scheduler, self._noise, loss_scale,
            self._ranks, self._shards,
        )  # fmt: skip
        agreement.require_same(
            self._ranks, number_of_rows=(len(self._source), len(self._owners)),
            rows_per_owner=self._copies, batch_size=self._most_rows, workers=self._source.workers,
            kind_of_data=self._source.is_dataset, loss_scale=loss_scale, ema_decay=ema_decay,
            model=agreement.layout_facts(self._parameters),
            kind_of_coins=(coins.private, self._noise.private, self._noise.name),
            ledger=(dataset, analyst),
            checkpoints=(checkpoints is None, checkpoint_every, small_checkpoints),
        )  # fmt: skip
        agreement.require_own_noise(self._ranks, self._noise, self._parameters.values())
        self._charge = Charge(open_ledger(ledger) if self._ranks.leads else None, dataset, analyst)
        self._ranks.leading(lambda: self._charge.check(self.plan))
        holders = {
            "model": model, "optimizer": optimizer, "scheduler": scheduler,
            "average": self._average, "step": self._step,
        }  # fmt: skip
        private = coins.private and self._noise.private
        self._resuming = Resuming(
            checkpoints, checkpoint_every, self.plan, holders, private, small_checkpoints,
            self._ranks,
        )  # fmt: skip
        super().__init__(progress)

    # --- what it promises -------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """Of the whole plan: charged as a whole, so promised as a whole."""
        return self.plan.guarantee

    @property
    def noise_multiplier(self) -> float:
        """Of everything that one step releases."""
        return self.plan.noise_multiplier

    @property
    def record(self) -> Record:
        """The public record: what ran, and what it promises. Nothing read from private data."""
        return records.make(
            self.plan, self._step, self._charge, self._average, self._resuming, self._model_coins
        )

    def __repr__(self) -> str:
        return (
            f"DPSGD({self.steps_taken} of {self.plan.steps} steps, noise multiplier "
            f"{self.noise_multiplier:.4g}, {self.guarantee})"
        )

    # --- besides ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def averaged(self) -> Generator[nn.Module]:
        """The model with its averaged weights, for the time of the block (``ema_decay``)."""
        if self._average is None:
            raise ValueError("no average is kept: make the trainer with ema_decay, such as 0.999")
        self._watch.check()
        try:
            self._in_parts()
            with self._average.applied():
                yield self.model
                self._in_parts()
        finally:  # buffers and modes must be as they were
            self._in_parts()
            self._watch.accept_weights()

    def save(self) -> None:
        """Writes a checkpoint of the step just taken; on all ranks at once.

        To be called in :meth:`fit`'s ``after``, or after ``backward`` in one's own loop. Whoever
        leaves the loop then loses no step, but for lots that ``workers`` had fetched ahead, and for
        the rest of an epoch of shuffled lots: these count as taken.
        """
        applied = self._average is not None and self._average.is_applied
        if not self._looping or self._just_taken is None or applied:
            raise TrainingError(
                "save() comes after a step, before the next batch, outside of averaged(): in "
                "fit's after=, or after the backward that completes a lot"
            )
        self._resuming.save(self._just_taken)

    def _in_parts(self) -> None:
        """Before weights change: whole copies of sharded ones would be out of date."""
        if self._shards is not None:
            self._shards.reshard()

    def resume(self) -> DPSGD:
        """Goes on from the newest checkpoint, with fresh coins.

        Steps that the killed process may have taken after it count as taken: their weights may have
        been seen. So the run ends with fewer steps in its weights than planned, never with more.
        """
        if self._looping or self.steps_taken:
            raise TrainingError("resume() comes before the loop, on a trainer that took no step")
        self._in_parts()
        self._steps_taken = self._resuming.resume(self._charge)
        self._watch.accept()
        return self
