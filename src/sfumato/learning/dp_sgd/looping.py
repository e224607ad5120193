"""The loop of private training: it rehearses, pays, hands out batches, and takes steps.

What happens, in this order: the loop is rehearsed on made-up rows; the ledger is charged; each lot
is drawn by the leading rank, journalled before anybody knows who is in it, shared out and cut into
physical batches; each batch that is handed out must come back through :meth:`Loop.backward`, once;
a lot that is complete becomes one noisy step. An empty lot is a step like any other.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core.randomness import Coins
from sfumato.core.records import Record
from sfumato.learning.dp_sgd.arguments import check_losses
from sfumato.learning.dp_sgd.augmenting import Augmentation
from sfumato.learning.dp_sgd.averaging import WeightAverage
from sfumato.learning.dp_sgd.batches import Source
from sfumato.learning.dp_sgd.charged_once import ChargedOnce
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.learning.dp_sgd.distributed import Ranks, agreement
from sfumato.learning.dp_sgd.distributed.shards import Shards
from sfumato.learning.dp_sgd.distributed.shares import share_in_parts
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.lookups import Lookups
from sfumato.learning.dp_sgd.other_coins import Watched, rarest, refuse_held, refuse_seeds
from sfumato.learning.dp_sgd.owners import Owners, RowsAreUnits
from sfumato.learning.dp_sgd.padded_rows import padded_companies
from sfumato.learning.dp_sgd.physical import Part, largest_part, may_be_cut, room_for
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.planned_steps import refuse_failing_steps
from sfumato.learning.dp_sgd.progress import Progress, choose_progress
from sfumato.learning.dp_sgd.recording import Expected, Recorder
from sfumato.learning.dp_sgd.rehearsal import noted, rehearse
from sfumato.learning.dp_sgd.remembering import Remembered
from sfumato.learning.dp_sgd.resuming import Resuming
from sfumato.learning.dp_sgd.sparing import failing_rows, taken_from, values_of
from sfumato.learning.dp_sgd.stepping import NoisyStep, as_training_error
from sfumato.learning.dp_sgd.turns import Turns
from sfumato.learning.dp_sgd.watching import Watch
from sfumato.learning.dp_sgd.zeros import none_at_zero
from sfumato.learning.secret_coins import ModelCoins
from sfumato.ledger import LedgerError

__all__ = ["Loop"]


def _nothing(step: int) -> None:
    """Nobody wants to know."""


class Loop(ChargedOnce):
    """The loop; :class:`~sfumato.learning.dp_sgd.trainer.DPSGD` makes what it needs."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    _plan: TrainingPlan
    _ranks: Ranks
    _shards: Shards | None
    _source: Source
    _owners: Owners | RowsAreUnits
    _augmentation: Augmentation
    _copies: int
    _most_rows: int | None
    _coins: Coins
    _model_coins: ModelCoins
    _recorder: Recorder
    _watch: Watch
    _average: WeightAverage | None
    _step: NoisyStep
    _charge: Charge
    _resuming: Resuming

    def __init__(self, progress: bool | Progress | None) -> None:
        self._wanted_progress = progress
        self._progress = choose_progress(False)
        self._rehearsed = False
        self._rehearsal: Turns | None = None
        self._watched, self._lookups = Watched(), Lookups()
        self._fits = False  # whether the losses are called here, in fit
        self._part: Part | None = None
        self._is_out = self._looping = False
        self._unseen = False  # whether no code of the user's runs between two batches
        self._after: Callable[[int], object] = _nothing
        self._steps_taken = 0
        self._just_taken: int | None = None  # steps in the weights, from a step to the next batch

    @property
    def plan(self) -> TrainingPlan:
        """Everything about the run that its privacy depends on."""
        return self._plan

    @property
    def steps_taken(self) -> int:
        """How many lots were started; every one counts."""
        return self._steps_taken

    @property
    def rehearsing(self) -> bool:
        """Whether the batch handed out is a made-up one, from the check before the run."""
        return self._rehearsal is not None

    @property
    @abstractmethod
    def record(self) -> Record:
        """The public record: what ran, and what it promises."""

    def __iter__(self) -> Generator[Any]:
        """Made-up batches for the rehearsal, then the physical batches of every lot.

        Iterating again after an exception goes on with what is left; a lot that was begun counts.
        """
        if self._looping:
            raise TrainingError(
                "another loop over this trainer is still open: finish it or close() its iterator "
                "first; two loops would take more steps than are charged"
            )
        if self.steps_taken >= self.plan.steps:
            return
        self._looping = True
        try:
            yield from self._loop()
        finally:
            self._model_coins.give_back()
            self._looping = False

    def _loop(self) -> Iterator[Any]:
        aware = contextlib.nullcontext()
        if self._shards is not None:
            aware = self._shards.attached(self._recorder.tape)
        agreement.require_same(
            self._ranks, number_of_steps_taken=self.steps_taken, clip_norm=self._step.sum.bounds
        )  # a loop may be left and entered again
        with self._recorder.attached(), aware:
            yield from self._rehearse()
            try:
                self._begin()
                if self._ranks.leads:
                    self._progress = choose_progress(self._wanted_progress)
                self._step.watched = self._ranks.leading(lambda: self._progress.wanted)
                if self._ranks.count > 1:
                    agreement.require_same(self._ranks, rows=agreement.some_rows(self._source))
                yield from self._run()
            finally:
                self._progress.close()
                self._resuming.end()
        if self.steps_taken >= self.plan.steps:
            self._ranks.leading(lambda: self._charge.finish(self.record.to_dict()))

    def _begin(self) -> None:
        """Before the first lot: takes the folder, writes what to go on from, and pays."""
        self._ranks.leading(lambda: self._resuming.begin(self._charge, self.steps_taken))
        self._resuming.before_first(self.steps_taken)
        self._charge.entry = self._ranks.leading(self._pay)

    def _pay(self) -> int | None:
        try:
            self._charge.make(self.plan, self._resuming.journal)
        except LedgerError:  # nothing was read
            self._resuming.unpaid()
            raise
        return self._charge.entry

    def _rehearse(self) -> Iterator[Any]:
        if self._rehearsed:
            return
        self._watch.clear_gradients()  # left from before: none of the trainer's doing
        agreement.share_weights(self._ranks, self.model, self._shards is not None)
        agreement.require_same(
            self._ranks, optimizer=agreement.optimizer_facts(self._ranks, self.optimizer),
            mode=[module.training for module in self.model.modules()],
            compilation=self._step.compiled is not None,
        )  # fmt: skip
        self._watch.accept()  # weights may have been loaded since the trainer was made
        if self._average is not None and not self._average.updates:
            self._average.restart()  # from the weights that the run begins with, on every rank
        if self._shards is None:
            left = self.plan.steps - self.steps_taken
            refuse_failing_steps(self.optimizer, self._step.scheduler, left)
        several = may_be_cut(
            self.plan.lots, self.plan.neighbours, self._copies, self._most_rows, self._ranks.count
        )
        refuse_held(model=self.model, augment=self._augmentation.augment)
        expected = self.plan.lots.expected_size / self._ranks.count
        crowd = largest_part(expected, self._copies, self._most_rows)
        rows = crowd * self._copies
        self._source.check_collate(several, rows)
        imitate = self._augmentation.checked(self._source.imitation, several, rows)
        companies = [
            company.changed(self._augmentation.held_still)
            for company in self._source.companies(self._copies)
        ]
        companies += padded_companies(imitate, self._copies, self._source.is_public)
        rehearsal = rehearse(
            self._recorder, imitate, self._copies, crowd, self._ranks, companies, several,
            lambda: self._lookups.of, self._catches,
        )  # fmt: skip
        self._rehearsal = Turns(rehearsal, self._recorder, self.optimizer)
        copied = (lambda: None) if self._shards is None else self._shards.reshard
        try:
            with none_at_zero(self._recorder.tape.parameters, copied):
                for batch in self._rehearsal.batches():
                    expected = self._recorder.expected
                    assert expected is not None
                    self._model_coins.fresh(expected.level)
                    following = self._lookups.following(batch, expected.learning)
                    with self._watched, following, rarest(expected.level):
                        yield from self._hand_out(batch)
                if self._step.compiled is not None:
                    self._step.compiled.check(imitate, self._copies, self._step.loss_scale)
            agreement.require_all_well(self._ranks)  # everyone, before anything is spent
            self._rehearsed = True
        finally:
            self._rehearsal = None
        self._watch.accept_kept()

    @property
    def _catches(self) -> bool:
        """Whether what the losses of made-up rows raise is caught, and no harm is done by it."""
        devices = {p.device.type for p in self._recorder.tape.parameters.values()}
        return self._fits and devices == {"cpu"} and self._shards is None and self._ranks.count == 1

    def _run(self) -> Iterator[Any]:
        waiting: deque[Part] = deque()
        self._step.start()  # a lot that was broken off is not part of the next one
        resumed = self.plan.lots.resume_point(self.steps_taken)
        self._steps_taken = min(resumed, self.plan.steps)
        for batch, left_out in self._source.stream(self._parts(waiting), self._model_coins):
            part = self._part = waiting.popleft().without(left_out)
            if part.units:
                self._recorder.expect(len(part.rows), part.units)
                yield from self._hand_out(self._augmentation(batch))
            else:  # at once: what is noted of later lots must not tell that this one was empty
                self._model_coins.give_back()
                self._watch.check()  # nor must an error
                self._take_step(part)

    def _parts(self, waiting: deque[Part]) -> Iterator[np.ndarray]:
        """The rows of every physical batch to come; ``waiting`` holds what they are parts of."""
        sampler = self.plan.sampler(len(self._owners), self._coins, self.steps_taken)

        def drawn(step: int) -> Any:
            self._resuming.note_started(step)  # before anyone knows who is in it
            return self._owners.rows_of(next(sampler), self._coins)

        for step in range(self.steps_taken, self.plan.steps):
            self._steps_taken = step + 1
            rows, weights = self._ranks.leading(lambda step=step: drawn(step))
            for part in share_in_parts(
                rows, weights, step=step, copies=self._augmentation.copies,
                most_rows=self._most_rows, rank=self._ranks.rank, count=self._ranks.count,
            ):  # fmt: skip
                waiting.append(part)
                yield part.rows

    def _telling(self) -> contextlib.AbstractContextManager[None]:
        """In a rehearsal of replicas, what goes wrong on one rank is told to the others."""
        if not self.rehearsing or self._shards is not None:
            return contextlib.nullcontext()
        return agreement.telling(self._ranks)

    def _hand_out(self, batch: Any) -> Iterator[Any]:
        self._is_out, self._just_taken = True, None
        yield batch
        if self._is_out:
            raise TrainingError(
                "the last batch got no backward: call trainer.backward(losses) for each batch, or "
                "stop the loop; a batch cannot be skipped"
            )

    def _take_back(self) -> Expected:
        """What the batch that is out should bring."""
        expected = self._recorder.take() if self._is_out else None
        if expected is None:
            raise TrainingError(
                "there is no batch to take a gradient of: call backward once for each batch that "
                "the trainer hands out, inside its loop"
            )
        self._watch.check()
        self._watch.check_modes()
        refuse_seeds(self._model_coins.seeded_since())
        return expected

    def backward(self, losses: Tensor) -> None:
        """Takes the losses of the batch handed out last: one for each row, not averaged.

        Clips each unit's gradient and adds it to the lot's sum. When the lot is complete, adds the
        noise and steps the optimizer.
        """
        if self._rehearsal is not None:
            self._watched.rest()
            with self._telling():
                expected = self._take_back()
                refuse_seeds(self._model_coins.replaced_since())
                check_losses(losses, expected.rows)
                self._rehearsal.hand_in(losses)
            self._model_coins.give_back()
            self._is_out = False
            return
        expected = self._take_back()
        check_losses(losses, expected.rows)
        part = self._part
        assert part is not None
        with as_training_error():
            self._step.add(self._recorder.tape, losses, part.weights, part.present)
        self._complete(part)

    def fit(
        self, loss: Callable[..., Tensor], *, compile: bool = False,
        after: Callable[[int], object] = _nothing,
    ) -> Self:  # fmt: skip
        """The whole loop: ``loss(model, *batch)`` gives one number for each row.

        Args:
            loss: per-example losses.
            compile: trace forward, backward and clipping into one graph, for ``torch.compile``.
            after: called after each step with the number of steps taken, to test or to save.
        """
        self._after, self._unseen, self._fits = after, after is _nothing, True
        if compile and self._shards is not None:
            raise TrainingError(
                "a model that is sharded by fully_shard cannot be compiled into one step: train it "
                "with compile=False, or replicate it"
            )
        if compile:
            room = room_for(self.plan.lots, self._copies, self._most_rows, self._ranks.count)
            self._step.compile(self.model, loss, self._recorder.tape, room)
        if not self._rehearsed:
            refuse_held(loss=loss)
        try:
            with contextlib.closing(iter(self)) as batches:  # also if ``after`` raises
                for batch in batches:
                    self._learn_from(batch, loss)
        finally:
            # ``after`` may hold this trainer, and rows would outlive the run.
            self._unseen, self._after, self._fits = False, _nothing, False
        return self

    def _learn_from(self, batch: Any, loss: Callable[..., Tensor]) -> None:
        remembered = Remembered(self.model, loss)
        if not self._step.compiled or self._rehearsal is not None:
            remembered.note()
        if self._rehearsal is not None:
            expected = self._recorder.expected
            assert expected is not None
            try:
                with noted(True), self._telling(), self._watched.calls():
                    losses = loss(self.model, *values_of(batch))
                remembered.check()
            except (TrainingError, torch.OutOfMemoryError):
                raise
            except Exception:
                if not expected.may_raise:
                    raise
                return self._pass_over(self._rehearsal)
            if expected.may_raise and getattr(losses, "shape", None) != (expected.rows,):
                return self._pass_over(self._rehearsal)  # as those of private rows, left out
            return self.backward(losses)
        try:
            losses = self._losses_of(batch, loss)
        except Exception as error:  # whatever a private row makes the user's code do
            losses = self._losses_of(self._spared(batch, loss, error), loss)
        if losses is not None:
            remembered.check()
            return self.backward(losses)
        assert self._part is not None
        return self._complete(self._part)

    def _pass_over(self, rehearsal: Turns) -> None:
        """The made-up batch that is out has no losses, as it may."""
        self._watched.rest()
        rehearsal.pass_over()
        self._model_coins.give_back()
        self._is_out = False

    def _losses_of(self, batch: Any, loss: Callable[..., Tensor]) -> Tensor | None:
        """Of a private batch; None if it is in the lot's sum already."""
        part = self._part
        assert part is not None
        if self._step.compiled:
            self._take_back()
            self._step.add_compiled(values_of(batch), part)
            return None
        losses = loss(self.model, *values_of(batch))
        check_losses(losses, len(part.rows))
        return losses

    def _spared(self, batch: Any, loss: Callable[..., Tensor], error: Exception) -> Any:
        """The batch that is out without the rows that fail, which count for nothing from now on."""
        part, copies = self._part, self._copies
        assert part is not None
        if self._shards is not None or isinstance(error, torch.OutOfMemoryError):
            raise error
        self._recorder.take()  # nothing is recorded while rows are tried

        def chosen(rows: np.ndarray) -> Any:
            if self._source.can_be_read_again:  # a row may have changed the shape of its batch
                return self._augmentation(self._source.fetch(part.rows[rows]))
            return taken_from(batch, rows)

        failing = failing_rows(
            self.model, loss, self._made_up(copies), lambda row: chosen(np.full(copies, row)),
            len(part.rows), copies,
        )  # fmt: skip
        if failing is None:
            raise error
        self._part = part.without(failing)
        self._recorder.expect(len(part.rows), part.units)
        sound = np.flatnonzero(~failing)
        if not len(sound):
            return self._made_up(len(part.rows))
        return chosen(np.where(failing, sound[0], np.arange(len(part.rows))))

    def _made_up(self, rows: int) -> Any:
        return self._augmentation.held_still(self._source.imitation(rows))

    def _complete(self, part: Part) -> None:
        """The part that was out is in the lot's sum, and the lot perhaps complete."""
        if not self._unseen:
            self._model_coins.give_back()  # what follows draws from the user's own
        if part.last:
            self._take_step(part)
        self._is_out = False  # not after an error: the loop cannot go on without this batch

    def _take_step(self, part: Part) -> None:
        self._step.apply(part.step)
        if self._average is not None:
            self._average.update()
        self._watch.accept_weights()
        self._just_taken = part.step + 1
        self._resuming.after(part.step + 1)
        self._step.report(self._progress, part.step)
        self._tell_after(part.step + 1)

    def _tell_after(self, steps: int) -> None:
        """What goes wrong in a user's ``after`` on one rank ends the loop on all of them."""
        if self._after is _nothing or self._ranks.count == 1:
            self._after(steps)
            return
        with agreement.telling(self._ranks, f"in after, at step {steps}"):
            self._after(steps)
        agreement.require_all_well(self._ranks)
