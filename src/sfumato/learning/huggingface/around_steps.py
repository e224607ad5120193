"""What ``Trainer`` does around its steps, once a lot: callbacks, logs, evaluation and saving.

Losses and other facts of steps are read from private rows: they are told to the operator, and
written to the curator's folder alone (see :mod:`~sfumato.learning.huggingface.keeping`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from transformers.trainer_callback import ExportableState, TrainerState
from transformers.trainer_utils import TrainOutput, speed_metrics

from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.progress import Facts
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.huggingface.publishing import STATE, Publishing
from sfumato.learning.huggingface.refusals import word

__all__ = ["AroundSteps", "Stopped", "Told"]


class Stopped(Exception):  # noqa: N818
    """A callback asked for the end of the run."""


class Told:
    """What the operator is told of steps, kept until it is logged."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.losses: list[float] = []
        self.last: Facts | None = None

    def update(self, step: Facts) -> None:
        """A step was taken."""
        self.last = step
        if step.loss is not None and not math.isnan(step.loss):
            self.losses.append(step.loss)

    def close(self) -> None:
        """Nothing."""


class AroundSteps(Publishing):
    """The part of a ``Trainer`` that follows its steps."""

    _told: Told
    _ignored: list[str] | None

    @property
    @abstractmethod
    def plan(self) -> TrainingPlan:
        """Everything about the run that its privacy depends on."""

    @property
    def _epochs_per_step(self) -> float:
        return self.plan.lots.expected_size / self.plan.lots.population

    def _begin(self, dpsgd: DPSGD) -> None:
        kept: list[Any] = [*self.callback_handler.callbacks, self.control]
        told = self.curator.read(STATE) if dpsgd.steps_taken else None
        stateful: list[Any] = [each for each in kept if isinstance(each, ExportableState)]
        self.state = TrainerState(stateful_callbacks=stateful)
        self.state.train_batch_size = self.args.per_device_train_batch_size
        self.state.compute_steps(self.args, self.plan.steps)
        epochs = math.ceil(self.plan.steps * self._epochs_per_step)
        self.state.init_training_references(self, self.plan.steps, epochs, None)
        self.state.log_history = (told or {}).get("log_history", [])
        self._count(dpsgd.steps_taken)
        self._all_losses: list[float] = []
        handler = self.callback_handler
        handler.model, handler.optimizer = self.model, self.optimizer
        handler.lr_scheduler, handler.train_dataloader = self.lr_scheduler, None

    def _count(self, steps: int) -> None:
        self.state.global_step = steps
        self.state.epoch = steps * self._epochs_per_step

    def _say(self, event: str) -> Any:
        return getattr(self.callback_handler, event)(self.args, self.state, self.control)

    def _after(self, steps: int) -> None:
        """A step was taken: callbacks, log, evaluation and saving, as ``Trainer`` does it."""
        before = math.floor((steps - 1) * self._epochs_per_step + 1e-9)
        self._count(steps)
        self.control = self._say("on_optimizer_step")
        self.control = self._say("on_step_end")
        self._log_evaluate_save()
        last = steps == self.plan.steps
        if last or math.floor(self.state.epoch + 1e-9) > before:
            self.control = self._say("on_epoch_end")
            self._log_evaluate_save()
            if not last:
                self.control = self._say("on_epoch_begin")
        if self.control.should_training_stop and not last:
            raise Stopped
        if not last:
            self.control = self._say("on_step_begin")

    def _log_evaluate_save(self) -> None:
        if self.control.should_log:
            self._log_steps()
        if self.control.should_evaluate:
            metrics = self._evaluated()
            better = self._determine_best_metric(metrics=metrics, trial=None)
            if word(self.args.save_strategy) == "best":
                self.control.should_save = better
        if self.control.should_save:
            self._save_checkpoint(self.model, None)
            self.control = self._say("on_save")

    def _log_steps(self) -> None:
        """To the operator, and to the curator's folder; never to ``output_dir``."""
        told, facts = self._told.losses, self._told.last
        logs: dict[str, float] = {"learning_rate": self._get_learning_rate()}
        if told:
            logs["loss"] = float(np.mean(told))
        if facts is not None:
            logs |= {
                name: value
                for name in ("epsilon", "clipped", "signal_to_noise")
                if (value := getattr(facts, name)) is not None
            }
        self._all_losses += told
        self._told.losses = []
        self.log(logs)

    def _evaluated(self) -> dict[str, float]:
        modes = [module.training for module in self.model.modules()]
        metrics = self.evaluate(ignore_keys=self._ignored)
        for module, training in zip(self.model.modules(), modes, strict=True):
            module.training = training
        return metrics

    def _finish(self, began: float, steps: int) -> TrainOutput:
        seen = self._all_losses + self._told.losses
        metrics = speed_metrics("train", began, num_steps=steps)
        loss = float(np.mean(seen)) if seen else math.nan
        metrics |= {"train_loss": loss} if seen else {}
        metrics["epsilon"] = self.guarantee.epsilon
        self.log(metrics)
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            self._load_best_model()
        self.control = self._say("on_train_end")
        self.save_state()
        return TrainOutput(self.state.global_step, loss, metrics)
