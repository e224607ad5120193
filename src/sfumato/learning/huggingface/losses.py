"""One loss for each row of a ``transformers`` batch, which is what private training clips.

The library's own losses are one number for a batch: a mean over all counted tokens of all rows
(``num_items_in_batch``). One row's share of it depends on how many tokens the others have, so that
no clipping of it bounds what one row does. Here each row is divided by something of its own, or by
a number that was declared.

    >>> logits = torch.zeros(2, 4, 10)
    >>> labels = torch.tensor([[1, 2, 3, 4], [1, 2, -100, -100]])
    >>> token_losses(logits, labels)  # log 10 for both, though they have three tokens and one
    tensor([2.3026, 2.3026])
    >>> token_losses(logits, labels, length=3)
    tensor([2.3026, 0.7675])
    >>> token_losses(logits, torch.full((2, 4), -100))
    tensor([0., 0.])
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.huggingface.heads import base_of, head_of, limits_of

__all__ = ["class_losses", "row_losses", "token_losses"]

IGNORED = -100
LABELS = ("labels", "label", "label_ids")


def token_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    ignore_index: int = IGNORED,
    shift: bool = True,
    length: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross entropy of tokens, as one number for each row.

    Guarantee: a row's loss is a function of that row's logits and labels alone. A row without a
    counted token has the loss 0 and the gradient 0. Labels that are no token (private data may hold
    anything) are not counted; nothing is raised for them.

    Args:
        logits: (rows, places, tokens).
        labels: (rows, places).
        ignore_index: the label of places that do not count.
        shift: whether the logits of a place are for the next one, as in causal language models.
        length: None for the mean over the row's own counted tokens; or a declared number by which
            the sum over them is divided, so that longer rows weigh more.
        label_smoothing: the share of each target that is spread over all tokens.
    """
    counted = (labels >= 0) & (labels < logits.shape[-1]) & (labels != ignore_index)
    targets = torch.where(counted, labels, torch.full_like(labels, IGNORED))
    if shift:  # the labels are moved, which are small, not the logits
        targets = F.pad(targets[:, 1:], (0, 1), value=IGNORED)
    each = F.cross_entropy(
        _precise(logits).flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    total = each.view(targets.shape).sum(1)
    if length is not None:
        return total / validation.count("length", length)
    return total / (targets != IGNORED).sum(1).clamp(min=1)


def class_losses(
    logits: Tensor,
    labels: Tensor,
    *,
    problem_type: str | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of each row's class, classes or number, by ``transformers``' rules.

    Args:
        logits: (rows, classes).
        labels: (rows,) or, for several labels, (rows, classes).
        problem_type: "single_label_classification", "multi_label_classification" or "regression";
            if None by the number of classes and the labels' type, as the library does it.
        label_smoothing: for a single label.
    """
    kind = problem_type or _problem(logits, labels)
    numbers = _precise(logits)
    if kind == "regression":
        return (numbers - labels.view_as(numbers).to(numbers.dtype)).square().flatten(1).mean(1)
    if kind == "multi_label_classification":
        wanted = labels.to(numbers.dtype)
        return F.binary_cross_entropy_with_logits(numbers, wanted, reduction="none").mean(1)
    known = (labels >= 0) & (labels < logits.shape[-1])
    targets = torch.where(known, labels, torch.full_like(labels, IGNORED)).view(-1)
    return F.cross_entropy(
        numbers, targets, ignore_index=IGNORED, reduction="none", label_smoothing=label_smoothing
    )


def row_losses(
    model: nn.Module,
    batch: Mapping[str, Tensor],
    *,
    length: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """One loss for each row of a batch, by the model's head: for ``trainer.fit(row_losses)``.

    Causal and masked language models, sequence and token classification, and sequence-to-sequence
    models; the loss that the model itself would give is not asked for. A causal model's labels are
    the batch's, or else its own tokens where the attention mask is 1.

    Private rows never make it raise: tokens out of the vocabulary are taken for token 0, labels out
    of range are not counted. The batch is moved to the model's device.

    Args:
        model: of the ``transformers`` library, or a ``peft`` model around one.
        batch: tensors by the names of the model's arguments.
        length: as for :func:`token_losses`.
        label_smoothing: as for :func:`token_losses`.

    Raises:
        TrainingError: if the head is none of these, or there are no labels.
    """
    head = head_of(model)
    device = next(model.parameters()).device
    inputs = repaired(model, {name: value.to(device) for name, value in batch.items()})
    given = [inputs.pop(name) for name in LABELS if name in inputs]
    labels = given[0] if given else None
    accepted = inspect.signature(base_of(model).forward).parameters
    if "input_ids" in inputs and "attention_mask" in accepted:
        # Without one, the library looks for padding among the tokens, and may say what it found.
        inputs.setdefault("attention_mask", torch.ones_like(inputs["input_ids"]))
    if labels is None and head == "causal":
        labels = torch.where(inputs["attention_mask"] > 0, inputs["input_ids"], IGNORED)
    if labels is None:
        raise TrainingError(
            "the batch has no labels: give each row some, or a collator that makes them, such as "
            "DataCollatorForLanguageModeling"
        )
    if head == "sequence to sequence" and "decoder_input_ids" not in inputs:
        known = labels.clamp(min=IGNORED, max=limits_of(model)["input_ids"] - 1)
        inputs["decoder_input_ids"] = base_of(model).prepare_decoder_input_ids_from_labels(known)
    if "use_cache" in accepted:
        inputs["use_cache"] = False  # type: ignore[assignment]
    logits = model(**inputs).logits
    if head == "classes":
        kind = getattr(model.config, "problem_type", None)
        return class_losses(logits, labels, problem_type=kind, label_smoothing=label_smoothing)
    return token_losses(
        logits, labels, shift=head == "causal", length=length, label_smoothing=label_smoothing
    )


def repaired(model: nn.Module, batch: dict[str, Any]) -> dict[str, Any]:
    """The same batch, with numbers that the model has no row for replaced by 0."""
    for name, limit in limits_of(model).items():
        if name in batch:
            known = (batch[name] >= 0) & (batch[name] < limit)
            batch[name] = torch.where(known, batch[name], torch.zeros_like(batch[name]))
    return batch


def _precise(logits: Tensor) -> Tensor:
    """In single precision at least."""
    return logits if logits.dtype == torch.float64 else logits.float()


def _problem(logits: Tensor, labels: Tensor) -> str:
    if logits.shape[-1] == 1:
        return "regression"
    single = not labels.is_floating_point() and labels.ndim == 1
    return "single_label_classification" if single else "multi_label_classification"
