"""Documents as units: long texts cut into rows, and who owns each row.

A model reads rows of one length. A document of several rows is protected as a whole only if whole
documents are sampled and clipped: the trainer does so when it is told each row's owner.

    >>> chunks = chunk_documents([[5, 6, 7, 8, 9], [3]], length=4)
    >>> chunks.rows["input_ids"]
    tensor([[5, 6, 7, 8],
            [9, 0, 0, 0],
            [3, 0, 0, 0]])
    >>> chunks.rows["labels"][1], chunks.owners
    (tensor([   9, -100, -100, -100]), array([0, 0, 1]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.huggingface.losses import IGNORED

__all__ = ["Chunks", "chunk_documents"]


@dataclass(frozen=True)
class Chunks:
    """Rows of one length, and for each whose it is.

    Attributes:
        rows: ``input_ids``, ``attention_mask`` and ``labels``, each (rows, length).
        owners: (rows,) the document's number, or its author, as it was given.
    """

    rows: dict[str, Tensor]
    owners: NDArray[Any]

    def __len__(self) -> int:
        return len(self.owners)


def chunk_documents(
    documents: Sequence[Sequence[int]],
    length: int,
    *,
    owners: Sequence[Any] | None = None,
    pad: int = 0,
    overlap: int = 0,
) -> Chunks:
    """Cuts documents into rows of ``length`` tokens; none holds tokens of two documents.

    Joining documents end to end, as is usual without privacy, would give one row two owners.

    Args:
        documents: each its tokens.
        length: of a row; the last of a document is filled up, and what is filled is not counted.
        owners: whom each document belongs to (its author, say); by default every document is its
            own.
        pad: the token to fill with.
        overlap: how many tokens of a row are repeated at the next one's start as context. They are
            not counted there a second time.
    """
    length = validation.count("length", length)
    overlap = validation.at_least("overlap", overlap, 0)
    if overlap >= length:
        validation.fail("overlap", f"below the length ({length})", overlap)
    if owners is not None and len(owners) != len(documents):
        raise ValueError("owners must name one for each document, got another number")
    texts, counted_from, whose = list[Sequence[int]](), list[int](), list[int]()
    for number, document in enumerate(documents):
        for start in range(0, max(len(document) - overlap, 1), length - overlap):
            piece = document[start : start + length]
            if len(piece):
                texts.append(piece)
                counted_from.append(overlap if start else 0)
                whose.append(number)
    rows = _filled(texts, counted_from, length, pad)
    named = np.asarray(range(len(documents)) if owners is None else owners)
    return Chunks(rows, named[np.asarray(whose, dtype=np.int64)])


def _filled(
    texts: list[Sequence[int]], counted_from: list[int], length: int, pad: int
) -> dict[str, Tensor]:
    ids = torch.full((len(texts), length), pad)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, IGNORED)
    for row, (text, first) in enumerate(zip(texts, counted_from, strict=True)):
        tokens = torch.as_tensor(text, dtype=ids.dtype)
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        labels[row, first : len(tokens)] = tokens[first:]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}
