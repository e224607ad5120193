"""From a data set of dictionaries to what the engine takes: regular rows, a collator, an example.

source = prepare(model, data, collator, length=128, pad=tokenizer.pad_token_id)
sf.DPSGD(model, optimizer, source.data, collate=source.collate, example=source.example, ...)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.learning.huggingface.heads import base_of
from sfumato.learning.huggingface.losses import LABELS
from sfumato.learning.huggingface.rows import TokenRows, made_up_rows

__all__ = ["Collate", "Prepared", "accepted_columns", "prepare"]

_DECODERS = (*LABELS, "decoder_input_ids", "decoder_attention_mask")


class Prepared(NamedTuple):
    """What ``DPSGD`` takes.

    Attributes:
        data: rows by column, or a data set of regular rows.
        collate: for a data set.
        example: public rows of the same form.
    """

    data: Any
    collate: Callable[[list[Any]], Any] | None
    example: Any


class Collate:
    """A collator's batches as plain dictionaries of tensors that the model takes.

    Sequences are cut and filled up as ``rows`` declares it before the collator sees them: what it
    would pad to otherwise is the longest row of the batch.
    """

    def __init__(
        self,
        collator: Callable[[list[Any]], Any],
        rows: TokenRows,
        names: set[str],
        device: torch.device | None,
    ) -> None:
        self._collator, self._rows = collator, rows
        self._names, self._device = names, device

    def __call__(self, items: list[Any]) -> dict[str, Tensor]:
        """One batch."""
        batch = self._collator([self._as_lists(self._rows.fitted(item)) for item in items])
        return {
            name: value if self._device is None else value.to(self._device)
            for name, value in batch.items()
            if isinstance(value, Tensor) and name in self._names
        }

    def _as_lists(self, item: dict[str, Any]) -> dict[str, Any]:
        """With lists where the library pads by itself, not by the tokenizer."""
        apart = {n: item[n].tolist() for n in self._rows.apart if isinstance(item.get(n), Tensor)}
        return item | apart


def accepted_columns(model: nn.Module) -> set[str]:
    """What the model's forward pass takes by name, and labels."""
    return {*inspect.signature(base_of(model).forward).parameters, *LABELS}


def prepare(
    model: nn.Module,
    data: Any,
    collator: Callable[[list[Any]], Any],
    *,
    length: int | None,
    pad: int = 0,
    fixed: bool = True,
    left: bool = False,
    example: Any = None,
    device: torch.device | None = None,
) -> Prepared:
    """Rows for the engine. Of the data only columns, shapes and types are looked at.

    Args:
        model: whose rows they are.
        data: a dictionary of tensors or arrays with all rows each, which need no collator; or a
            list or data set of dictionaries.
        collator: from a list of rows to a batch.
        length: the declared length of a data set's rows.
        pad: the token to fill rows up with.
        fixed: whether to fill all rows up to ``length``.
        left: whether to fill on the left.
        example: public rows in the form of the data; made up if None.
        device: where batches go; None leaves them where they are.
    """
    names = accepted_columns(model)
    if isinstance(data, Mapping):
        rows = {k: _moved(v, device) for k, v in data.items() if k in names}
        public = made_up_rows(model, rows) if example is None else example
        return Prepared(rows, None, {k: _moved(public[k], device) for k in rows})
    if length is None:
        raise ValueError(
            "max_length must be given for a data set of rows, whose lengths are private: declare "
            "the length that all are cut and filled up to"
        )
    if not len(data) and example is None:
        raise ValueError("the data set is empty: give a few public rows as example=")
    first = example[0] if example is not None else data[0]
    columns = [name for name in first if name in names or name == "special_tokens_mask"]
    like = {name: first[name] for name in columns}
    is_pair = getattr(getattr(base_of(model), "config", None), "is_encoder_decoder", False)
    apart = _DECODERS if is_pair else ()
    regular = TokenRows(data, like, length, pad=pad, fixed=fixed, left=left, apart=apart)
    public = made_up_rows(model, [like], length=length) if example is None else list(example)
    if not fixed and example is None:  # of one length: a collator pads to the longest
        public = [_full(item) for item in public]
    return Prepared(
        regular, Collate(collator, regular, names, device), [*map(regular.regular, public)]
    )


def _full(item: dict[str, Any]) -> dict[str, Any]:
    """Without a mask, so that all of it is attended to."""
    return {name: value for name, value in item.items() if name != "attention_mask"} | (
        {"attention_mask": [1] * len(item["input_ids"])} if "attention_mask" in item else {}
    )


def _moved(value: Any, device: torch.device | None) -> Any:
    if device is None:
        return value
    return (value if isinstance(value, Tensor) else torch.from_numpy(np.asarray(value))).to(device)
