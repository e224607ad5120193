"""Resuming: what a killed run takes up again, and what it counts as taken.

A checkpoint holds the number of steps, weights and the optimizer's state; never a noise key or a
sampler's state. A journal says, before each lot is read, that it may have been, and where a ledger
pays, the ledger has agreed before (:mod:`sfumato.learning.journal`). On resuming, every step in the
journal counts as taken, also those after the checkpoint, whose weights are lost: they were charged
and may have been seen. Fresh coins are drawn for the rest.

The first checkpoint, of step 0, is written before the charge: a folder that takes no checkpoint
costs nothing, and a run can be taken up wherever it was cut off. A process killed between that
checkpoint and the charge has read nothing; gone on with, it is charged then. The charge is found
by the run's name, so it is made once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.learning.dp_sgd.checkpoints import (
    Checkpoint,
    Checkpoints,
    flatten_state,
    load_weights,
    restore_state,
)
from sfumato.learning.dp_sgd.clipping import Adaptive
from sfumato.learning.dp_sgd.distributed.agreement import checksums, require_same
from sfumato.learning.dp_sgd.distributed.ranks import Alone, Ranks
from sfumato.learning.dp_sgd.distributed.shards import kind_of, local
from sfumato.learning.dp_sgd.distributed.state import (
    gathered_tensors,
    placed_state,
    told_checkpoint,
)
from sfumato.learning.dp_sgd.optimizer_state import check_groups, check_weights
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.journal import RunJournal

__all__ = ["Resuming"]


_HOLDERS = ("model", "optimizer", "scheduler", "average")


class Resuming:
    """Saves a run every so many steps, and takes it up again."""

    def __init__(
        self,
        folder: str | Path | None,
        every: int,
        plan: TrainingPlan,
        holders: dict[str, Any],
        private: bool,
        small: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Alone()
        self._wanted = folder is not None
        self._private, self._small = private, small
        self._lost = 0
        self._every = validation.count("checkpoint_every", every)
        self._plan, self._holders = plan, holders
        if folder is not None:
            self._state()  # or says now, before anything is spent, what cannot be stored
        self._store: Checkpoints | None = None
        if folder is not None:  # on the leader alone; whatever it raises reaches everyone
            self._store = self._ranks.by_leader(
                lambda: Checkpoints(folder, plan.digest, small=small)
            )
        self._resumed = self._saved = self._new = False
        self._charge: Charge | None = None

    def begin(self, charge: Charge, steps_taken: int) -> None:
        """Before a loop's first lot: takes the folder, or refuses to run over another's run.

        Args:
            charge: the run's, made or to be made.
            steps_taken: by this trainer, or by the one that it went on from.
        """
        self._charge = charge
        store = self._store
        if store is None:
            return
        store.acquire()
        if not self._resumed and (store.started or store.load() is not None):
            raise ValueError(
                "the checkpoint folder holds a run that began already: call resume() before the "
                "loop to go on with it, or give another folder"
            )
        if store.started > steps_taken:
            raise ValueError(
                "another trainer went on with this folder meanwhile: make a new trainer and call "
                "resume()"
            )
        store.charge_to(charge.run, self._plan.steps)
        self._resumed = True

    @property
    def journal(self) -> RunJournal | None:
        """The run's, where it has a folder, which was taken; the leader's."""
        return None if self._store is None else self._store.journal

    def unpaid(self) -> None:
        """A new run was not paid for, and read nothing: its folder is as it was."""
        if self._store is not None and self._new:
            self._store.drop_all()
            self._saved = self._resumed = False

    def end(self) -> None:
        """After a loop: another trainer may take the folder."""
        if self._store is not None:
            self._store.close()

    @property
    def private(self) -> bool:
        """Whether all coins so far were, those before a resumption included."""
        return self._private

    @property
    def lost(self) -> int:
        """How many steps count as taken but are not in the weights: killed before a checkpoint."""
        return self._lost

    def before_first(self, step: int) -> None:
        """Before the charge: a checkpoint to go on from. All ranks at once."""
        self._new = not self._saved
        if self._new:
            self._save(step)
            self._saved = True

    def note_started(self, step: int) -> None:
        """Before a lot is read; the leader's task."""
        if self._store is not None:
            self._store.note_started(step)

    def after(self, steps: int) -> None:
        """After a step: saves if it is time. All ranks at once."""
        if self._wanted and (steps % self._every == 0 or steps == self._plan.steps):
            self.save(steps)

    def save(self, steps: int) -> None:
        """A checkpoint of the weights after ``steps`` steps; all ranks at once.

        Raises:
            ValueError: if there is nowhere to save to.
        """
        if not self._wanted:
            raise ValueError("there is nowhere to save to: make the trainer with checkpoints=")
        self._save(steps)

    def _save(self, steps: int) -> None:
        if not self._wanted:
            return
        self._require_replicas()
        tensors, facts = self._state()
        store = self._store
        self._ranks.by_leader(lambda: store and store.save(self._checkpoint(steps, tensors, facts)))

    def _require_replicas(self) -> None:
        """Raises if replicas went different ways: a checkpoint would be of one of them."""
        held = dict(self._holders["model"].named_parameters())
        if self._ranks.count > 1 and not any(local(p) is not p for p in held.values()):
            require_same(self._ranks, weights=checksums(held))

    def _checkpoint(self, steps: int, tensors: dict[str, Tensor], facts: Any) -> Checkpoint:
        assert self._charge is not None
        more = {
            "plan": self._plan.to_dict(),
            "charge": self._charge.stored(),
            "private": self._private,
            "lost": self._lost,
            "kinds": self._kinds(),
        }
        return Checkpoint(steps, tensors, more | facts)

    def _kinds(self) -> dict[str, str]:
        """What kind of optimizer and the like the run has."""
        return {n: kind_of(h) for n in _HOLDERS if (h := self._holders[n]) is not None}

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors: dict[str, Tensor] = {}
        facts: dict[str, Any] = {}
        for name in _HOLDERS:
            holder = self._holders[name]
            if holder is not None:
                state = holder.state(self._small) if name == "average" else holder.state_dict()
                flat, facts[name] = flatten_state(state)
                flat = gathered_tensors(self._ranks, flat)
                tensors |= {f"{name}/{key}": value for key, value in flat.items()}
        clipping = self._holders["step"].sum.clipping
        if isinstance(clipping, Adaptive):
            facts["clip"] = clipping.clip
        return tensors, facts

    def resume(self, charge: Charge) -> int:
        """Loads the newest checkpoint; returns how many steps count as taken."""
        if not self._wanted:
            raise ValueError("there is nowhere to resume from: make the trainer with checkpoints=")
        read = self._ranks.by_leader(lambda: self._read(charge))
        self._resumed = True
        found, steps = read or (None, 0)
        steps = self._ranks.leading(lambda: steps)
        found = told_checkpoint(self._ranks, found)
        if found is None:
            return steps
        try:
            self._restore(found)
        except BaseException:
            self.end()
            raise
        stored = found.facts["charge"]["entry"]
        charge.entry = self._ranks.leading(lambda: stored if charge.entry is None else charge.entry)
        self._lost = found.facts["lost"] + steps - found.step
        self._private = self._private and bool(found.facts["private"])
        self._saved = True
        return steps

    def _read(self, charge: Charge) -> tuple[Checkpoint | None, int]:
        assert self._store is not None
        self._store.acquire()
        try:
            return self._take_up(self._store, charge)
        except BaseException:
            self._store.close()
            raise

    def _take_up(self, store: Checkpoints, charge: Charge) -> tuple[Checkpoint | None, int]:
        found = store.load()
        if found is None:
            if not store.started:
                return None, 0
            raise ValueError(
                f"the run was cut off after {store.started} steps, before its first "
                "checkpoint: begin a new run in another folder (the steps stay charged)"
            )
        if found.facts["kinds"] != self._kinds():
            raise ValueError(
                f"the run has {_listed(found.facts['kinds'])}, the trainer "
                f"{_listed(self._kinds())}: make the trainer as it was when the run began"
            )
        self._check_fits(found)  # or the turn below would shut out the folder it was copied from
        started = max(found.step, store.started)
        steps = min(self._plan.lots.resume_point(started), self._plan.steps)
        if steps < self._plan.steps:
            store.charge_to(charge.run, self._plan.steps)
            charge.resume(found.facts["charge"], self._plan, store.journal)
        else:  # nothing is left to run: only its weights are wanted
            store.close()
        return found, steps

    def _check_fits(self, found: Checkpoint) -> None:
        """Raises for weights of another model, or an optimizer's of other groups."""
        check_weights(self._holders["model"], _stored(found, "model"))
        optimizer = self._holders["optimizer"]
        if optimizer is not None and hasattr(optimizer, "param_groups"):
            check_groups(optimizer, _stored(found, "optimizer"))

    @torch.no_grad()
    def _restore(self, found: Checkpoint) -> None:
        for name, holder in self._holders.items():
            if name not in _HOLDERS or holder is None:
                continue
            state = placed_state(name, _stored(found, name), holder)
            if name == "model":
                load_weights(holder, state)
            else:
                (holder.load_state if name == "average" else holder.load_state_dict)(state)
        if "clip" in found.facts:
            self._holders["step"].set_clip(found.facts["clip"])


def _stored(found: Checkpoint, name: str) -> Any:
    """What a checkpoint has of one of the holders, on the CPU."""
    prefix = f"{name}/"
    own = {k[len(prefix) :]: t for k, t in found.tensors.items() if k.startswith(prefix)}
    return restore_state(own, found.facts[name])


def _listed(kinds: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())
