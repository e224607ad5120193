"""What a private ``Trainer`` writes, and what it refuses to: see :mod:`~.keeping`."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from sfumato.core.records import Record
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.trainer import DPSGD
from sfumato.learning.huggingface.keeping import CuratorFolder, drop_older, write_record

__all__ = ["STATE", "Publishing"]

STATE = "trainer_state.json"

# What comes after it among a class's bases is a ``Trainer``, of one version or another.
_Base: Any = Any if TYPE_CHECKING else object


class Publishing(_Base):
    """The part of a ``Trainer`` that writes.

    Attributes:
        curator: where what is not to be published goes.
        dpsgd: the run, once there is one.
    """

    curator: CuratorFolder
    dpsgd: DPSGD | None

    @property
    @abstractmethod
    def record(self) -> Record:
        """The public record of the run."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """An ordinary folder of weights, configuration and tokenizer, and the public record."""
        folder = Path(output_dir or self.args.output_dir)
        self.model.save_pretrained(folder)
        words = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if words is not None:
            words.save_pretrained(folder)
        if self.dpsgd is not None:
            write_record(folder, self.record)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Weights after so many steps; what a run goes on from is in the curator's folder."""
        out = Path(self.args.output_dir)
        self.save_model(str(out / f"checkpoint-{self.state.global_step}"))
        best = out / f"checkpoint-{self.state.best_global_step}"
        if self.state.best_global_step and best.exists():
            self.state.best_model_checkpoint = str(best)
        self.save_state()
        drop_older(out, self.args.save_total_limit, self.state.best_model_checkpoint)

    def save_state(self) -> None:
        """The log, with losses read from private data: to the curator's folder."""
        names = "global_step max_steps epoch best_metric best_global_step log_history"
        self.curator.write(STATE, {name: getattr(self.state, name) for name in names.split()})

    def save_metrics(self, split: str, metrics: dict[str, float], combined: bool = True) -> None:
        """To the curator's folder, as metrics on private data are the curator's."""
        self.curator.write(f"{split}_results.json", metrics)
        if combined:
            known = self.curator.read("all_results.json") or {}
            self.curator.write("all_results.json", known | metrics)

    # --- refused ----------------------------------------------------------------------------------

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Refused: a step's gradient is formed and noised by the engine."""
        raise TrainingError("steps are taken by train(): a step of its own would not be charged")

    def hyperparameter_search(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: every trial is a release."""
        raise TrainingError(
            "a search over settings on private scores is an uncharged release: every trial must be "
            "charged. Make a trainer for each, with a ledger"
        )

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: what is published is looked at first."""
        raise TrainingError(
            "output_dir may hold more than is to be published: call save_model(folder), look at "
            "it, then upload that folder"
        )

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the library's card prints training losses."""
        raise TrainingError(
            "the library's card prints losses read from private data: publish record.json, or make "
            "a card from it"
        )
