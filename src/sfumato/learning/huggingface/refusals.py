"""What ``TrainingArguments`` offer and private training cannot have: said before anything is spent.

Each would break the guarantee (a sampler of its own, a choice by private scores, losses sent
elsewhere), or would be passed over in silence if it were not refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sfumato.learning.huggingface.arguments import PrivacyArguments

__all__ = ["refuse_arguments", "refuse_callbacks", "refuse_columns", "refuse_overriding", "word"]


class _Refusal(NamedTuple):
    """An argument, the values of it that will do, and what to do about others."""

    name: str
    fine: Callable[[Any], bool]
    remedy: str


def _unset(value: Any) -> bool:
    return not value


def word(value: Any) -> str:
    """Of an enumeration's member, or the word itself."""
    return str(getattr(value, "value", value))


def _no_feedback(value: Any) -> bool:
    return word(value) not in ("reduce_lr_on_plateau", "greedy")


def _after_backward(value: Any) -> bool:
    return not any(part in word(value) for part in ("layerwise", "lomo"))


_ALWAYS = (
    _Refusal(
        "gradient_accumulation_steps", lambda v: v == 1,
        "lot_size says how many units a step takes, per_device_train_batch_size how many are in "
        "memory at a time: leave it 1",
    ),
    _Refusal(
        "max_grad_norm", lambda v: v in (0, 1.0),
        "it would shorten the noisy mean gradient, after each unit's was clipped, and is not "
        "applied: leave it at its default, and set PrivacyArguments(clip=...)",
    ),
    _Refusal(
        "train_sampling_strategy", lambda v: word(v) == "random",
        "lots are drawn by a coin for each unit, which is what the guarantee rests on: leave it "
        "'random'",
    ),
    _Refusal("group_by_length", _unset, "lots are random samples: leave it out"),
    _Refusal("dataloader_drop_last", _unset, "lots are random samples: leave it out"),
    _Refusal("data_seed", lambda v: v is None, "whoever knows it knows the lots: leave it out"),
    _Refusal(
        "lr_scheduler_type", _no_feedback,
        "it follows a loss, which on private data is an uncharged release: use a schedule that is "
        "fixed in advance",
    ),
    _Refusal(
        "optim", _after_backward,
        "it updates weights while the backward pass runs, before noise is added: use 'adamw_torch' "
        "or 'sgd'",
    ),
    _Refusal(
        "report_to", _unset,
        "training losses are read from private data and are the operator's alone: use 'none'; a "
        "service that no one else can read may be added as a callback",
    ),
    _Refusal(
        "push_to_hub", _unset,
        "look at what is published first: call save_model(folder), then upload that folder",
    ),
    _Refusal(
        "torch_compile", _unset,
        "it hides the model's functions from per-example gradients: set "
        "PrivacyArguments(compile=True)",
    ),
    _Refusal(
        "fp16", _unset,
        "its loss scale follows overflows of private gradients: use bf16=True, or DPSGD with a "
        "constant loss_scale",
    ),
    _Refusal(
        "use_liger_kernel", _unset,
        "its kernels hide the model's functions and average over the batch: leave it out",
    ),
    _Refusal("neftune_noise_alpha", lambda v: v is None, "it is not offered here: leave it out"),
    _Refusal("debug", _unset, "what it prints and raises depends on private rows: leave it out"),
    _Refusal(
        "auto_find_batch_size", _unset,
        "it begins again when memory runs out, and the first attempt was released: set "
        "per_device_train_batch_size",
    ),
    _Refusal("deepspeed", _unset, "one process trains: leave it out"),
    _Refusal("fsdp", _unset, "one process trains: leave it out"),
    _Refusal("parallelism_config", lambda v: v is None, "one process trains: leave it out"),
    _Refusal("enable_jit_checkpoint", _unset, "checkpoints are sfumato's own: leave it out"),
    _Refusal("world_size", lambda v: v == 1, "one process trains: start one"),
    _Refusal(
        "n_gpu", lambda v: v <= 1,
        "several GPUs would split batches: let one be seen, by CUDA_VISIBLE_DEVICES=0",
    ),
)  # fmt: skip

_UNLESS_PUBLIC = (
    _Refusal("load_best_model_at_end", _unset, "leave it out"),
    _Refusal("save_strategy", lambda v: word(v) != "best", "save by steps or epochs"),
)

_SCORES = (
    "it chooses by scores of the evaluation data, which is an uncharged release if those are "
    "private: declare PrivacyArguments(eval_data='public') if they are public, or "
)


def refuse_arguments(args: Any, privacy: PrivacyArguments) -> None:
    """Raises for the first argument that private training cannot have.

    Args:
        args: ``TrainingArguments``.
        privacy: the private side.

    Raises:
        ValueError: naming the argument, its value and the remedy.
    """
    for refusal in _ALWAYS:
        _require(args, refusal, refusal.remedy)
    if not privacy.evaluates_in_public:
        for refusal in _UNLESS_PUBLIC:
            _require(args, refusal, _SCORES + refusal.remedy)
    if privacy.compile and args.gradient_checkpointing:
        raise ValueError(
            "gradient_checkpointing must be False with PrivacyArguments(compile=True), which "
            "decides by itself what is computed again"
        )
    if privacy.compile and args.dataloader_num_workers:
        raise ValueError(
            f"dataloader_num_workers must be 0 with PrivacyArguments(compile=True), got "
            f"{args.dataloader_num_workers}: the compiled step takes batches on the device"
        )


def _require(args: Any, refusal: _Refusal, remedy: str) -> None:
    value = getattr(args, refusal.name, None)
    if hasattr(args, refusal.name) and not refusal.fine(value):
        raise ValueError(
            f"TrainingArguments({refusal.name}={value!r}) cannot be had in private training: "
            f"{remedy}"
        )


def refuse_callbacks(callbacks: Iterable[Any], privacy: PrivacyArguments) -> None:
    """Raises if one of them stops the run by private scores."""
    names = [each.__name__ for callback in callbacks for each in type(callback).__mro__]
    if "EarlyStoppingCallback" in names and not privacy.evaluates_in_public:
        raise ValueError(
            f"EarlyStoppingCallback cannot be had in private training: {_SCORES}leave it out"
        )


def refuse_columns(eval_dataset: Any) -> None:
    """Raises if the evaluation data are columns, which ``Trainer`` takes for several data sets."""
    if not isinstance(eval_dataset, Mapping):
        return
    columns = [name for name, value in eval_dataset.items() if hasattr(value, "shape")]
    if columns:
        raise ValueError(
            f"eval_dataset must be a data set of rows, or a dictionary of data sets by name, got a "
            f"dictionary whose {columns[0]!r} is a tensor or an array: give a list with a "
            "dictionary for each row, or datasets.Dataset.from_dict(...)"
        )


_NOT_CALLED = {
    "compute_loss": "give losses=f, where f(model, batch) is one number for each row",
    "training_step": "give losses=f, where f(model, batch) is one number for each row, and change "
    "what a batch looks like in data_collator",
    "get_train_dataloader": "lots are drawn from train_dataset and collated by data_collator",
    "get_batch_samples": "lots are drawn from train_dataset and collated by data_collator",
}


def refuse_overriding(kind: type, base: type, own_losses: bool) -> None:
    """Raises if a subclass changes a method that private training does not call.

    Args:
        kind: the subclass.
        base: whose methods are called, or replaced by others.
        own_losses: whether losses are given; compute_loss is for evaluation alone then.
    """
    for name, remedy in _NOT_CALLED.items():
        if name == "compute_loss" and own_losses:
            continue
        if getattr(kind, name, None) is not getattr(base, name, None):
            raise ValueError(
                f"{kind.__name__}.{name} would never be called, since private training takes one "
                f"loss for each row, of lots of its own: {remedy}"
            )
