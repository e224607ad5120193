"""Rows for a ``transformers`` model: private ones made regular, and public ones made up.

Private rows come in every length and may hold anything. :class:`TokenRows` gives each the same
columns and, by default, the same declared length, as a function of that row alone. What a collator
pads to otherwise, the longest row of the batch, is a fact about other rows: time and memory show
it, and where positions are counted from the padded end, every row's gradient depends on it.

:func:`made_up_rows` invents public rows for the rehearsal: tokens of the vocabulary, masks that
leave something to attend to, labels that exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from sfumato.core import validation
from sfumato.learning.dp_sgd.padding import to_length
from sfumato.learning.huggingface.heads import base_of, head_of, limits_of
from sfumato.learning.huggingface.losses import IGNORED, LABELS

__all__ = ["TokenRows", "made_up_rows"]

_SEED = 17_760_704  # of made-up rows, which are public
_FILL = {"labels": IGNORED, "label_ids": IGNORED, "special_tokens_mask": 1}
_ROWS = 16


class _Kind(NamedTuple):
    """Of a column: whether it is a sequence, and whether of whole numbers."""

    listed: bool
    whole: bool

    @staticmethod
    def like(value: Any) -> _Kind:
        listed = isinstance(value, list)
        return _Kind(listed, not any(type(v) is float for v in (value if listed else [value])))

    def of(self, value: Any) -> Any:
        """The value, if it is of this kind."""
        if isinstance(value, list) != self.listed:
            raise ValueError("a sequence was expected, or none")
        numbers = value if self.listed else [value]
        if self.whole and any(type(number) is float for number in numbers):
            raise ValueError("whole numbers were expected")
        made = [int(v) if self.whole else float(v) for v in numbers]
        torch.tensor(made)  # or one is too large
        return made if self.listed else made[0]


@final
class TokenRows(Dataset[dict[str, Any]]):
    """A data set of dictionaries, each made regular by itself.

    Guarantee: row i is a function of the data set's row i alone. Its columns are those of ``like``
    and, if there are tokens, an ``attention_mask``; each sequence is cut to ``length`` and, if
    ``fixed``, filled up to it. A row that cannot be made so raises, and the trainer leaves it out.

    Args:
        data: gives a dictionary for each number: tokens and the like as lists, arrays or tensors.
        like: a row that says which columns there are, which of them are sequences, and which of
            whole numbers.
        length: the declared length of a row.
        pad: the token to fill with.
        fixed: whether to fill up.
        left: whether to fill on the left.
        apart: sequences whose lengths may differ from the others', as a summary's does.
    """

    def __init__(
        self,
        data: Any,
        like: Mapping[str, Any],
        length: int,
        *,
        pad: int = 0,
        fixed: bool = True,
        left: bool = False,
        apart: Collection[str] = (),
    ) -> None:
        self.data, self.apart = data, frozenset(apart)
        self._kinds = {name: _Kind.like(_plain(value)) for name, value in like.items()}
        self.length = validation.count("length", length)
        self._pad, self._fixed, self._left = pad, fixed, left

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.regular(self.data[index])

    def regular(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """One row, with its columns, cut and filled up.

        Raises:
            Exception: if it has other columns, columns of another kind, or sequences of several
                lengths.
        """
        found = {name: kind.of(_plain(item[name])) for name, kind in self._kinds.items()}
        tokens = found.get("input_ids")
        if isinstance(tokens, list):
            found.setdefault("attention_mask", [1] * len(tokens))
        lengths = {
            len(value)
            for name, value in found.items()
            if isinstance(value, list) and name not in self.apart
        }
        if len(lengths) > 1:
            raise ValueError("a row's sequences must be of one length")
        return self.fitted({name: self._as_tensor(name, value) for name, value in found.items()})

    def fitted(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of tensors, with each sequence cut and, if ``fixed``, filled up."""
        return {name: self._fitted(name, value) for name, value in row.items()}

    def _as_tensor(self, name: str, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        whole = name == "attention_mask" or self._kinds[name].whole
        return torch.tensor(value, dtype=torch.long if whole else torch.float32)

    def _fitted(self, name: str, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.ndim:
            return value
        if len(value) == self.length or (len(value) < self.length and not self._fixed):
            return value
        fill = _FILL.get(name, self._pad if name == "input_ids" else 0)
        return to_length(value, self.length, fill, left=self._left)


def _plain(value: Any) -> Any:
    """A list of numbers, or a number."""
    if isinstance(value, (Tensor, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        if not all(type(each) in (int, float, bool) for each in value):
            raise ValueError("a sequence must be of numbers")
        return list(value)
    if type(value) not in (int, float, bool):
        raise ValueError("a column must be numbers")
    return value


def made_up_rows(
    model: nn.Module, like: Any, *, rows: int = _ROWS, length: int | None = None
) -> Any:
    """Public rows for ``DPSGD(example=...)``, plausible to the model, in the structure of the data.

    Of ``like`` only columns, shapes and types are looked at. Tokens are drawn from the vocabulary,
    rows are of several lengths, filled up on the right with a mask that says so, and labels are
    tokens or classes that the model knows. The same rows every time.

    Args:
        model: of the ``transformers`` library, or an adapter around one.
        like: a dictionary of tensors or arrays with all rows each; or a data set, or list, of
            dictionaries, for which a list of such dictionaries is made.
        rows: how many.
        length: of the rows of a data set.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> class TinyForCausalLM(torch.nn.Module):
        ...     config = SimpleNamespace(vocab_size=9)
        ...     def get_input_embeddings(self):
        ...         return torch.nn.Embedding(9, 2)
        >>> data = {"input_ids": torch.zeros(100, 4, dtype=torch.long)}
        >>> made_up_rows(TinyForCausalLM(), data, rows=3)["input_ids"].shape
        torch.Size([3, 4])
    """
    rows = validation.count("rows", rows)
    if isinstance(like, Mapping):
        width = max((v.shape[1] for v in like.values() if len(v.shape) > 1), default=1)
        made = _Made(model, rows, width)
        return {name: made.batch(name, value) for name, value in like.items()}
    if length is None:
        raise ValueError("length must be given for a data set of rows: the one that is declared")
    made, first = _Made(model, rows, length), like[0]
    columns = {name: made.column(name, _plain(value)) for name, value in first.items()}
    return [{name: values[i] for name, values in columns.items()} for i in range(rows)]


class _Made:
    """So many made-up rows of one width, column by column."""

    def __init__(self, model: nn.Module, rows: int, width: int) -> None:
        self._model, self._generator = model, torch.Generator().manual_seed(_SEED)
        self._shape = (rows, width)
        lengths = torch.linspace(width, max(2, width // 2), rows).round().clamp(1, width)
        self._mask = torch.arange(width) < lengths.long()[:, None]
        self._limits = limits_of(model)
        config = getattr(base_of(model), "config", None)
        pad = getattr(config, "pad_token_id", None)
        self._pad = pad if isinstance(pad, int) and pad >= 0 else 0
        words = self._limits.get("input_ids", 2)
        tokens = self._whole(self._shape, words)
        unlike = (self._pad + 1) % words
        tokens = torch.where(tokens == self._pad, torch.full_like(tokens, unlike), tokens)
        self._tokens = torch.where(self._mask, tokens, torch.full_like(tokens, self._pad))
        self._classes = int(getattr(config, "num_labels", 2) or 2)

    def _whole(self, shape: Sequence[int], below: int) -> Tensor:
        return torch.randint(0, below, tuple(shape), generator=self._generator)

    def batch(self, name: str, like: Any) -> Tensor:
        """A column in the form of a tensor or array with all rows."""
        kind = torch.from_numpy(np.empty(0, like.dtype)) if isinstance(like, np.ndarray) else like
        shape = (self._shape[0], *like.shape[1:])
        return self._values(name, shape, kind.is_floating_point()).to(kind.dtype).to(kind.device)

    def column(self, name: str, like: Any) -> list[Any]:
        """A column in the form of a data set's items: lists, or numbers."""
        listed = isinstance(like, list)
        shape = self._shape if listed else self._shape[:1]
        first = (like[0] if like else 0) if listed else like
        return self._values(name, shape, isinstance(first, float)).tolist()

    def _values(self, name: str, shape: Sequence[int], floating: bool) -> Tensor:
        if name in LABELS:
            return self._labels(shape, floating)
        known = {
            "input_ids": self._tokens,
            "decoder_input_ids": self._tokens,
            "attention_mask": self._mask,
            "token_type_ids": torch.zeros(self._shape),
            "position_ids": torch.arange(self._shape[1]).expand(self._shape),
            "special_tokens_mask": ~self._mask,
        }
        if name in known and tuple(shape) == self._shape:
            return known[name]
        if floating:
            return torch.randn(tuple(shape), generator=self._generator)
        return self._whole(shape, 2)

    def _labels(self, shape: Sequence[int], floating: bool) -> Tensor:
        if floating:
            return torch.rand(tuple(shape), generator=self._generator).round()
        if tuple(shape) != self._shape or head_of(self._model) == "classes":
            return self._whole(shape, self._classes)
        words = any("TokenClassification" in c.__name__ for c in type(base_of(self._model)).__mro__)
        wanted = self._whole(shape, self._classes) if words else self._tokens
        return torch.where(self._mask, wanted, torch.full_like(wanted, IGNORED))
