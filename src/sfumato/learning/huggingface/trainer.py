"""Hugging Face's ``Trainer`` with the private engine in it.

    trainer = sf.PrivateTrainer(
        model=model,
        args=TrainingArguments("out", max_steps=1000, per_device_train_batch_size=32, bf16=True),
        train_dataset=rows,
        privacy=sf.PrivacyArguments(epsilon=3, delta=1e-6, public_size=100_000, lot_size=1024),
    )
    trainer.train()
    trainer.save_model()  # an ordinary folder, and record.json

Guarantee: that of :class:`~sfumato.learning.dp_sgd.trainer.DPSGD`, whose loop it is: the sequence
of weights is the plan's event, whatever the rows. The library's optimizer, schedule, callbacks,
evaluation and saving are kept; its sampler, loss, gradient clipping, checkpoints and logs on disk
are not (see :mod:`~sfumato.learning.huggingface.refusals`). The model is not wrapped.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import TrainOutput

from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.learning.dp_sgd.arguments import make_plan, relation_of
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.noise import NoiseSource
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.huggingface.arguments import PrivacyArguments
from sfumato.learning.huggingface.around_steps import AroundSteps, Stopped, Told
from sfumato.learning.huggingface.collating import prepare
from sfumato.learning.huggingface.heads import base_of, head_of
from sfumato.learning.huggingface.keeping import CuratorFolder
from sfumato.learning.huggingface.losses import row_losses
from sfumato.learning.huggingface.refusals import (
    refuse_arguments,
    refuse_callbacks,
    refuse_columns,
    refuse_overriding,
    word,
)

__all__ = ["PrivateTrainer", "PrivateTrainerMixin"]


class PrivateTrainerMixin(AroundSteps):
    """Goes before a ``Trainer`` class: ``class Mine(PrivateTrainerMixin, Seq2SeqTrainer)``.

    Args:
        *args: as for ``Trainer``.
        privacy: the private side of the run.
        owners: for each row whose it is, or the name of the column that says so; then owners are
            sampled and clipped, not rows.
        losses: ``losses(model, batch)``, one number for each row; by default by the model's head.
        example: a few public rows in the form of ``train_dataset``; made up by default.
        plan: everything about the run that privacy depends on, instead of ``privacy``'s part of it
            and of the number of steps.
        noise: where noise comes from: cryptographic coins by default.
        coins: where sampling comes from; seeded ones in tests only.
        **kwargs: as for ``Trainer``.

    Raises:
        ValueError: for arguments that private training cannot have, with the remedy.
    """

    def __init__(
        self,
        *args: Any,
        privacy: PrivacyArguments | None = None,
        owners: ArrayLike | str | None = None,
        losses: Callable[[nn.Module, dict[str, Tensor]], Tensor] | None = None,
        example: Any = None,
        plan: TrainingPlan | None = None,
        noise: NoiseSource | None = None,
        coins: Coins = SYSTEM,
        **kwargs: Any,
    ) -> None:
        self.privacy = privacy or PrivacyArguments()
        refuse_overriding(type(self), PrivateTrainer, losses is not None)
        given = kwargs.get("args", args[1] if len(args) > 1 else None)
        if given is not None:  # before a repository is made, or a service told
            refuse_arguments(given, self.privacy)
        super().__init__(*args, **kwargs)
        self._refuse()
        self._own_losses, self._example = losses, example
        self._noise, self._coins = noise, coins
        self._owners = _owners(self.train_dataset, owners)
        self._plan = self._make_plan(plan)
        beside = self.privacy.curator_dir or f"{os.path.normpath(self.args.output_dir)}-curator"
        self.curator = CuratorFolder(beside, self.args.output_dir)
        self.dpsgd: DPSGD | None = None
        if losses is None:
            head_of(self.model)  # or says now that its losses are not known

    def _refuse(self) -> None:
        refuse_arguments(self.args, self.privacy)
        refuse_callbacks(self.callback_handler.callbacks, self.privacy)
        if self.compute_loss_func is not None:
            raise ValueError(
                "compute_loss_func gives one number for a batch: give losses=f instead, where "
                "f(model, batch) is one number for each row"
            )
        if self.train_dataset is None:
            raise ValueError("train_dataset must be given: lots are drawn from it")
        refuse_columns(self.eval_dataset)

    def _make_plan(self, plan: TrainingPlan | None) -> TrainingPlan:
        privacy, args = self.privacy, self.args
        by_steps = args.max_steps > 0
        length: dict[str, Any] = {
            "steps": args.max_steps if by_steps else None,
            "epochs": None if by_steps else args.num_train_epochs,
        }
        if plan is not None:
            if by_steps and args.max_steps != plan.steps:
                raise ValueError(
                    f"TrainingArguments(max_steps={args.max_steps}) and the plan's {plan.steps} "
                    "steps differ: leave max_steps out"
                )
            length = dict.fromkeys(length)
        return make_plan(
            plan, lots=None, schedule=None, **privacy.of_the_plan(), **length,
            relation=relation_of(privacy.ledger, privacy.dataset),
            default_unit="record" if self._owners is None else "owner",
        )  # fmt: skip

    # --- what it promises -------------------------------------------------------------------------

    @property
    def plan(self) -> TrainingPlan:
        """Everything about the run that its privacy depends on."""
        return self._plan

    @property
    def guarantee(self) -> Guarantee:
        """Of the whole plan."""
        return self.plan.guarantee

    @property
    def record(self) -> Record:
        """The public record of the run; nothing in it is read from private data."""
        if self.dpsgd is None:
            raise TrainingError("there is no record yet: call train() first")
        record = self.dpsgd.record
        facts = {
            "model": type(base_of(self.model)).__name__,
            "adapter": hasattr(self.model, "peft_config"),
            "evaluation_data": self.privacy.eval_data,
        }
        software = record.software | versions("transformers", "peft")
        return replace(record, facts=record.facts | facts, software=software)

    # --- the run ----------------------------------------------------------------------------------

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """The whole run, charged before the first row is read.

        Args:
            resume_from_checkpoint: True to go on with the run that was cut off. A path is accepted
                if it is of this run's folders; it goes on from its newest checkpoint in any case.
            trial: refused.
            ignore_keys_for_eval: as for ``Trainer``.
        """
        if trial is not None:
            self.hyperparameter_search()
        self._refuse()  # arguments can be changed
        if self.dpsgd is not None and self.dpsgd.steps_taken >= self.plan.steps:
            raise TrainingError(
                "this trainer's run is complete, and its record speaks of one run: to train "
                "further make another trainer, whose cost comes on top"
            )
        self.is_in_train = True
        self._ignored = ignore_keys_for_eval
        try:
            if self.dpsgd is None:
                self.dpsgd = self._make_dpsgd()
            if resume_from_checkpoint:
                self._resume(self.dpsgd, resume_from_checkpoint)
            return self._run(self.dpsgd)
        finally:
            self.is_in_train = False

    def _make_dpsgd(self) -> DPSGD:
        args, privacy, model = self.args, self.privacy, self.model
        model.to(args.device)
        if args.gradient_checkpointing:
            kwargs = {"use_reentrant": False} | dict(args.gradient_checkpointing_kwargs or {})
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
        if hasattr(model, "config") and getattr(model.config, "pad_token_id", None) is None:
            model.config.pad_token_id = getattr(self.processing_class, "pad_token_id", None)
        model.train()
        self.create_optimizer()
        self.create_scheduler(num_training_steps=self.plan.steps)
        rows = self._prepared()
        return DPSGD(
            model, self.optimizer, rows.data, plan=self.plan,
            batch_size=args.per_device_train_batch_size, owners=self._owners,
            rows_per_owner=privacy.rows_per_owner, scheduler=self.lr_scheduler,
            ledger=privacy.ledger, dataset=privacy.dataset, analyst=privacy.analyst,
            checkpoints=self.curator.run if self._checkpointing else None,
            checkpoint_every=self._save_every, noise=self._noise, coins=self._coins,
            workers=args.dataloader_num_workers, collate=rows.collate, example=rows.example,
            progress=self._told,
        )  # fmt: skip

    def _prepared(self) -> Any:
        args, privacy = self.args, self.privacy
        at_once = privacy.compile or not isinstance(self.train_dataset, Mapping)
        here = at_once and not args.dataloader_num_workers
        words = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        pad = getattr(words, "pad_token_id", None)
        pad = (
            getattr(getattr(self.model, "config", None), "pad_token_id", None)
            if pad is None
            else pad
        )
        rows = prepare(
            self.model, self.train_dataset, self.data_collator, length=privacy.max_length,
            pad=pad if isinstance(pad, int) and pad >= 0 else 0, fixed=privacy.pad_to_max_length,
            left=getattr(words, "padding_side", "right") == "left",
            example=self._example, device=args.device if here else None,
        )  # fmt: skip
        self._told = Told(word(args.logging_strategy) != "no")
        return rows

    @property
    def _checkpointing(self) -> bool:
        return word(self.args.save_strategy) != "no" and not self.args.save_only_model

    @property
    def _save_every(self) -> int:
        every = self.args.save_steps
        if word(self.args.save_strategy) == "epoch":
            return max(1, round(1 / self._epochs_per_step))
        return max(1, math.ceil(every * self.plan.steps) if every < 1 else int(every))

    def _losses(self, model: nn.Module, batch: Any) -> Tensor:
        """One number for each row, in the precision that ``TrainingArguments`` ask for."""
        device = self.args.device.type
        with torch.autocast(device, torch.bfloat16, enabled=bool(self.args.bf16)):
            if self._own_losses is not None:
                return self._own_losses(model, batch)
            return row_losses(
                model, batch, length=self.privacy.tokens_per_row,
                label_smoothing=self.args.label_smoothing_factor,
            )  # fmt: skip

    def _resume(self, dpsgd: DPSGD, wanted: str | bool) -> None:
        own = {self.curator.path, self.curator.run, Path(self.args.output_dir)}
        if wanted is not True:
            path = Path(str(wanted)).resolve()
            if not any(path == o.resolve() or path.parent == o.resolve() for o in own):
                raise ValueError(
                    f"resume_from_checkpoint must be True or of this run's folders, got {wanted!r}:"
                    " weights of other runs are loaded with from_pretrained"
                )
        dpsgd.resume()
        left = sorted(Path(self.args.output_dir).glob("checkpoint-*"))
        if left and not dpsgd.steps_taken:
            raise ValueError(
                f"resume_from_checkpoint finds weights in {left[-1]}, but not the run that they "
                f"are of, which is kept in {self.curator.path}: put that folder back beside the "
                "output folder; or leave resume_from_checkpoint out for a new run with a charge of "
                "its own"
            )

    def _run(self, dpsgd: DPSGD) -> TrainOutput:
        began, first = time.time(), dpsgd.steps_taken
        self._begin(dpsgd)
        self.control = self._say("on_train_begin")
        if self.args.eval_on_start:
            self._evaluated()
        self.control = self._say("on_epoch_begin")
        self.control = self._say("on_step_begin")
        with contextlib.suppress(Stopped):
            dpsgd.fit(self._losses, compile=self.privacy.compile, after=self._after)
        return self._finish(began, self.state.global_step - first)


class PrivateTrainer(PrivateTrainerMixin, Trainer):
    """``transformers.Trainer``, privately: see :class:`PrivateTrainerMixin`."""


def _owners(data: Any, owners: ArrayLike | str | None) -> Any:
    if not isinstance(owners, str):
        return owners
    if isinstance(data, Mapping):
        return data[owners]
    return [item.get(owners) for item in (data[i] for i in range(len(data)))]
