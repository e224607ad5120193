"""Training an ensemble, some models at a time, resumable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.ensembles.batches import derived_seed, epoch_rows, steps_per_epoch
from sfumato.learning.ensembles.engines import make_engine
from sfumato.learning.ensembles.ensemble import Ensemble
from sfumato.learning.ensembles.optimizers import make_optimizer
from sfumato.learning.ensembles.schedule import Schedule
from sfumato.learning.ensembles.spreading import claim_together, group_size, train_spread
from sfumato.learning.ensembles.stacking import Weights, fresh_weights, untrained
from sfumato.learning.ensembles.store import Store
from sfumato.learning.ensembles.subsets import padded_rows

__all__ = ["train_ensemble"]

Told = Callable[[int, int], object]
"""Told how many epochs are done, of how many."""


def train_ensemble(
    make: Callable[[], nn.Module],
    inputs: Tensor | NDArray[Any],
    labels: Tensor | NDArray[Any],
    subsets: NDArray[np.bool_],
    schedule: Schedule | None = None,
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    augment: Callable[[Tensor], Tensor] | None = None,
    device: str | torch.device = "cpu",
    half: bool = False,
    together: int | None = None,
    engine: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Told | None = None,
    ranks: Ranks | None = None,
) -> Ensemble:
    """Trains as many models as ``subsets`` has rows, each on its own part of the data.

    Args:
        make: a new model, without buffers, from a batch of inputs to logits.
        inputs: one example a row, of any type; moved to the device as they are.
        labels: their classes.
        subsets: (models, examples): which model is trained on which; see :mod:`.subsets`.
        schedule: how.
        prepare: from a batch of inputs to what a model is fed with, such as scaled floats.
        augment: random changes of a prepared batch, anew for each model and step.
        device: such as "cuda".
        half: compute in bfloat16 where that is accurate enough.
        together: how many models at once; all of them by default. Fewer need less memory.
        engine: "stacked" or "recorded"; by default what suits the device.
        seed: of initial weights, orders and augmentation; nothing here is private noise.
        folder: keeps finished models, and epochs as often as that takes little time. A run that was
            cut off goes on from there when it is called again with the same arguments.
        progress: told of every finished epoch, on several ranks of this one's.
        ranks: share the models out among the ranks of ``torch.distributed`` (``find_ranks()``),
            which must all see ``folder``; every rank returns all models.

    Raises:
        ValueError: for shapes that do not fit, models with buffers, or a folder that holds another
            ensemble.
    """
    schedule = Schedule() if schedule is None else schedule
    rows, wanted = torch.as_tensor(inputs), torch.as_tensor(labels, dtype=torch.int64)
    chosen = np.asarray(subsets, dtype=bool)
    if not len(rows) == len(wanted) == chosen.shape[-1]:
        sizes = len(rows), len(wanted), chosen.shape
        validation.fail("subsets", "a column for each of the inputs and labels", sizes)
    size = validation.count("together", group_size(len(chosen), together, ranks))
    store = Store(None if folder is None else Path(folder))
    claim_together(store, lambda: store.claim(schedule, chosen, seed, size), ranks)
    data = _Data(rows.to(device), wanted.to(device), prepare, augment)
    groups = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    epochs = schedule.epochs * len(groups)

    def train(number: int, group: NDArray[np.bool_]) -> Weights:
        told = _shifted(progress, number * schedule.epochs, epochs)
        run = _Group(make, group, schedule, data, half, engine, derived_seed(seed, number))
        return run.train(store, number, told)

    trained = train_spread(groups, train, store, ranks, device)
    weights = {name: torch.cat([part[name] for part in trained]) for name in trained[0]}
    return Ensemble(make, weights, chosen, prepare)


def _shifted(progress: Told | None, done: int, total: int) -> Callable[[int], None]:
    def told(epochs: int) -> None:
        if progress is not None:
            progress(done + epochs, total)

    return told


@final
class _Data:
    """The examples on their device, and what a model sees of them."""

    def __init__(
        self,
        inputs: Tensor,
        labels: Tensor,
        prepare: Callable[[Tensor], Tensor] | None,
        augment: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.inputs, self.labels, self.prepare, self.augment = inputs, labels, prepare, augment

    def batch(self, rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs, labels and marks of rows that count, (models, batch, ...).

        In the place of a row that is missing (-1) stands one of the model's own (models, 1), which
        does not count: no model computes with a row that is not its own.
        """
        known = torch.where(rows < 0, own, rows).flatten()
        taken = self.inputs[known]
        taken = taken.float() if self.prepare is None else self.prepare(taken)
        taken = taken if self.augment is None else self.augment(taken)
        shape = taken.shape[1:]
        counted = (rows >= 0).to(taken.dtype)
        return taken.view(*rows.shape, *shape), self.labels[known].view(rows.shape), counted


@final
class _Group:
    """Models that are trained at the same time."""

    def __init__(
        self,
        make: Callable[[], nn.Module],
        subsets: NDArray[np.bool_],
        schedule: Schedule,
        data: _Data,
        half: bool,
        engine: str | None,
        seed: int,
    ) -> None:
        self.schedule, self.data, self.seed = schedule, data, seed
        self.device = data.inputs.device
        fresh = fresh_weights(make, len(subsets), seed)
        self.weights = {name: weight.to(self.device) for name, weight in fresh.items()}
        self.optimizer = make_optimizer(schedule, self.weights)
        self.rows = torch.from_numpy(padded_rows(subsets)).to(self.device)
        skeleton = untrained(make).to("meta").train()
        self.engine = make_engine(engine, skeleton, self.weights, self.optimizer, half)

    def train(self, store: Store, number: int, told: Callable[[int], None]) -> Weights:
        """All epochs that are not done yet."""
        finished = store.finished(number)
        if finished is not None:
            told(self.schedule.epochs)
            return {name: weight.to(self.device) for name, weight in finished.items()}
        begun = store.begun(number, self._tensors())
        for epoch in range(begun, self.schedule.epochs):
            with _coins_put_back(self.device, self.seed, epoch):
                self._epoch(epoch)
            if epoch + 1 < self.schedule.epochs:
                store.keep(number, epoch + 1, self._tensors())
            told(epoch + 1)
        store.finish(number, self.weights)
        return self.weights

    def _epoch(self, epoch: int) -> None:
        size = self.schedule.batch_size
        generator = torch.Generator().manual_seed(derived_seed(self.seed, epoch, 1))
        per_epoch = steps_per_epoch(self.rows.shape[1], size)
        total = per_epoch * self.schedule.epochs
        for step, rows in enumerate(epoch_rows(self.rows, size, generator)):
            rate = self.schedule.rate_at(epoch * per_epoch + step, total)
            self.engine.step(*self.data.batch(rows, self.rows[:, :1]), rate)

    def _tensors(self) -> dict[str, Tensor]:
        state = {f"state.{name}": value for name, value in self.optimizer.state.items()}
        return {f"weight.{name}": value for name, value in self.weights.items()} | state


@contextlib.contextmanager
def _coins_put_back(device: torch.device, seed: int, epoch: int) -> Iterator[None]:
    """Torch's own generator seeded for one epoch, so that a resumed run repeats it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(derived_seed(seed, epoch, 2))
        yield
