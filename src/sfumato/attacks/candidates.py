"""Candidates: examples whose membership is guessed, and the truth about it.

An evaluation is worth nothing if an example is on both sides: it is a member and is not. Overlaps
are found by content, and refused.

    >>> inside, outside = np.arange(6.0).reshape(3, 2), np.arange(6.0, 10.0).reshape(2, 2)
    >>> both = Candidates.of((inside, [0, 1, 0]), (outside, [1, 1]))
    >>> len(both), both.members.tolist()
    (5, [True, True, True, False, False])
    >>> Candidates.of((inside, [0, 1, 0]), (inside[2:], [0]))
    Traceback (most recent call last):
        ...
    sfumato.attacks.candidates.Overlap: 1 of 1 non-members are members, too: take examples that ...

Who is a member is the curator's: nothing made from it may be published.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["Candidates", "Overlap", "digests", "shared_rows"]

Labelled = tuple[ArrayLike, ArrayLike]
"""Inputs, one a row, and their labels."""


class Overlap(ValueError):  # noqa: N818
    """The same example on both sides."""


@final
@dataclass(frozen=True, eq=False)
class Candidates:
    """Examples, their labels, and which were trained on.

    Attributes:
        inputs: one example a row.
        labels: their classes.
        members: which are members. The curator's.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    members: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not len(self.inputs) == len(self.labels) == len(self.members):
            sizes = len(self.inputs), len(self.labels), len(self.members)
            validation.fail("candidates", "as many inputs as labels and marks", sizes)
        inside, outside = self.inputs[self.members], self.inputs[~self.members]
        twice = int(shared_rows(outside, inside).sum())
        if twice:
            raise Overlap(
                f"{twice} of {len(outside)} non-members are members, too: take examples that were "
                "not trained on, or drop those that are in both"
            )

    @classmethod
    def of(cls, members: Labelled, others: Labelled) -> Candidates:
        """From examples that were trained on, and examples that were not.

        Raises:
            Overlap: if an input is in both.
            ValueError: if their shapes differ.
        """
        (inside, in_labels), (outside, out_labels) = members, others
        ins, outs = np.asarray(inside), np.asarray(outside)
        if ins.shape[1:] != outs.shape[1:]:
            validation.fail("others", f"examples of shape {ins.shape[1:]}", outs.shape[1:])
        truth = np.concatenate([np.ones(len(ins), bool), np.zeros(len(outs), bool)])
        labels = np.concatenate([np.asarray(in_labels), np.asarray(out_labels)]).astype(np.int64)
        return cls(np.concatenate([ins, outs]), labels, truth)

    def __len__(self) -> int:
        return len(self.labels)

    def balanced(self, each: int, generator: np.random.Generator) -> Candidates:
        """As many members as others, at most ``each`` of either, picked at random."""
        validation.count("each", each)
        ins, outs = np.flatnonzero(self.members), np.flatnonzero(~self.members)
        size = min(each, len(ins), len(outs))
        picked = [generator.choice(side, size, replace=False) for side in (ins, outs)]
        return self.only(np.sort(np.concatenate(picked)))

    def only(self, rows: NDArray[Any]) -> Candidates:
        """Some of them."""
        return Candidates(self.inputs[rows], self.labels[rows], self.members[rows])


def digests(rows: NDArray[Any]) -> list[bytes]:
    """A fingerprint of each row's content; equal rows have equal ones (0.0 and -0.0 are equal)."""
    plain = np.ascontiguousarray(rows)
    if plain.dtype.kind == "f":
        plain = plain + 0.0
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in plain]


def shared_rows(rows: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``rows`` are also in ``among``, by content."""
    known = set(digests(among))
    return np.array([digest in known for digest in digests(rows)], dtype=bool)
