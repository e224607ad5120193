"""What private training needs to know besides ``transformers.TrainingArguments``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sfumato.core import validation

__all__ = ["PrivacyArguments"]


@dataclass
class PrivacyArguments:
    """The private side of a run; plain values, so that ``HfArgumentParser`` can read it, too.

    Steps come from ``TrainingArguments`` (``max_steps``, or ``num_train_epochs`` in units of
    ``public_size / lot_size`` steps); give epsilon, or the noise multiplier.
    """

    epsilon: float | None = field(default=None, metadata={"help": "The guarantee to meet."})
    delta: float | None = field(default=None, metadata={"help": "At which epsilon is stated."})
    public_size: int | None = field(
        default=None, metadata={"help": "The declared number of rows, or of owners."}
    )
    lot_size: float | None = field(
        default=None, metadata={"help": "How many of them a step takes on average."}
    )
    noise_multiplier: float | None = field(
        default=None, metadata={"help": "Noise over the clip norm, instead of epsilon."}
    )
    clip: float | None = field(
        default=None, metadata={"help": "The norm that each unit's gradient is clipped to (1)."}
    )
    unit: str | None = field(
        default=None, metadata={"help": "Who is protected: 'record', or what the owners are."}
    )
    neighbours: str | None = field(
        default=None, metadata={"help": "'add-remove' unless the ledger says otherwise."}
    )
    rows_per_owner: int = field(default=1, metadata={"help": "The most rows of an owner in a lot."})
    max_length: int | None = field(
        default=None, metadata={"help": "The declared length of rows, for data sets of lists."}
    )
    pad_to_max_length: bool = field(
        default=True, metadata={"help": "Fill every row up, so that lengths do not show."}
    )
    tokens_per_row: int | None = field(
        default=None,
        metadata={"help": "Divide a row's summed token loss by this, not by its own count."},
    )
    eval_data: str = field(
        default="private", metadata={"help": "'public' if eval_dataset is: metrics are then free."}
    )
    ledger: str | None = field(default=None, metadata={"help": "The ledger to charge."})
    dataset: str = field(default="", metadata={"help": "The name of the budget in it."})
    analyst: str = field(default="", metadata={"help": "In whose name."})
    curator_dir: str | None = field(
        default=None,
        metadata={"help": "For losses and checkpoints; <output_dir>-curator by default."},
    )
    compile: bool = field(default=False, metadata={"help": "Compile the private step as a whole."})

    def __post_init__(self) -> None:
        validation.count("rows_per_owner", self.rows_per_owner)
        if self.eval_data not in ("private", "public"):
            validation.fail("eval_data", "'private' or 'public'", self.eval_data)
        for name in ("max_length", "tokens_per_row"):
            if getattr(self, name) is not None:
                validation.count(name, getattr(self, name))
        if self.epsilon is not None and self.noise_multiplier is not None:
            raise ValueError(
                "epsilon and noise_multiplier are both given, and the number of steps is "
                "TrainingArguments': give one of them, the other follows"
            )

    @property
    def evaluates_in_public(self) -> bool:
        """Whether what is measured on the evaluation data may be acted upon."""
        return self.eval_data == "public"

    def of_the_plan(self) -> dict[str, Any]:
        """What a training plan is made from, besides its length."""
        names = "epsilon delta public_size lot_size noise_multiplier clip unit neighbours"
        return {name: getattr(self, name) for name in names.split()}
