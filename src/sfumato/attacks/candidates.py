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

What counts is the input, whatever its label. 0.0 and -0.0 are the same, so are all NaN, and so are
a number and what is left of it in a coarser type (float32 for float64). An example that was scaled,
or saved as a picture and read again, is another one: prepare both sides alike.

Who is a member is the curator's: nothing made from it may be published.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.target_answers import class_numbers
from sfumato.core import validation

__all__ = ["Candidates", "Labelled", "Overlap", "digests", "shared_rows"]

Labelled = tuple[ArrayLike, ArrayLike]
"""Inputs, one a row, and their labels."""

_AT_ONCE = 1024  # rows that are copied at once to be fingerprinted


class Overlap(ValueError):  # noqa: N818
    """The same example on both sides."""


@final
@dataclass(frozen=True, eq=False)
class Candidates:
    """Examples, their labels, and which were trained on.

    Attributes:
        inputs: one example a row, numbers.
        labels: their classes, from 0 up.
        members: which are members. The curator's.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    members: NDArray[np.bool_]

    def __post_init__(self) -> None:
        inputs = _numbers("inputs", self.inputs)
        labels, members = class_numbers("labels", self.labels), _marks(self.members)
        if not len(inputs) == len(labels) == len(members):
            sizes = len(inputs), len(labels), len(members)
            validation.fail("candidates", "as many inputs as labels and marks", sizes)
        for name, value in (("inputs", inputs), ("labels", labels), ("members", members)):
            object.__setattr__(self, name, value)
        _refuse_empty(inputs)
        _refuse_shared(inputs[members], inputs[~members])

    @classmethod
    def of(cls, members: Labelled, others: Labelled) -> Candidates:
        """From examples that were trained on, and examples that were not.

        Inputs of two types become those of the wider one.

        Raises:
            Overlap: if an input is in both.
            ValueError: if their shapes differ, or one side has more inputs or more labels.
        """
        (ins, in_labels), (outs, out_labels) = _side("members", members), _side("others", others)
        if ins.shape[1:] != outs.shape[1:]:
            validation.fail("others", f"examples of shape {ins.shape[1:]}", outs.shape[1:])
        if ins.dtype != outs.dtype:  # what is the same in the coarser type differs in the wider one
            _refuse_shared(ins, outs)
        truth = np.concatenate([np.ones(len(ins), bool), np.zeros(len(outs), bool)])
        labels = np.concatenate([in_labels, out_labels])
        return cls(np.concatenate([ins, outs]), labels, truth)

    def __len__(self) -> int:
        return len(self.labels)

    def balanced(self, each: int, *, generator: np.random.Generator) -> Candidates:
        """As many members as others, at most ``each`` of either, picked at random.

        Raises:
            ValueError: if there are no members, or no others.
        """
        validation.count("each", each)
        ins, outs = np.flatnonzero(self.members), np.flatnonzero(~self.members)
        size = min(each, len(ins), len(outs))
        if size == 0:
            counts = f"{len(ins)} members and {len(outs)} others"
            validation.fail("candidates", "some members and some others", counts)
        picked = [generator.choice(side, size, replace=False) for side in (ins, outs)]
        return self.only(np.sort(np.concatenate(picked)))

    def only(self, rows: NDArray[Any]) -> Candidates:
        """Some of them: their places, or a mark for each."""
        return Candidates(self.inputs[rows], self.labels[rows], self.members[rows])


def digests(rows: NDArray[Any]) -> list[bytes]:
    """A fingerprint of each row's content; equal rows of one type have equal ones."""
    plain = _numbers("rows", rows)
    found: list[bytes] = []
    for start in range(0, len(plain), _AT_ONCE):
        part = np.array(plain[start : start + _AT_ONCE], order="C")
        if part.dtype.kind == "f":
            part[np.isnan(part)] = np.nan
            part += 0  # -0.0 becomes 0.0
        found += [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in part]
    return found


def shared_rows(rows: NDArray[Any], among: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of ``rows`` are also in ``among``, by content, as far as both are precise."""
    these, those = _numbers("rows", rows), _numbers("among", among)
    common = _common(these.dtype, those.dtype)
    with np.errstate(over="ignore"):  # what float16 cannot hold is infinite in it
        known = set(digests(those.astype(common, copy=False)))
        mine = digests(these.astype(common, copy=False))
    return np.array([digest in known for digest in mine], dtype=bool)


def _common(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which rows are compared: the coarsest float, else one that holds both."""
    floats = [kind for kind in (one, other) if kind.kind == "f"]
    return min(floats, key=lambda kind: kind.itemsize) if floats else np.result_type(one, other)


def _refuse_empty(inputs: NDArray[Any]) -> None:
    """A row without any number is no example; an attack on it would read as if nothing leaked."""
    if inputs.dtype.kind != "f" or not inputs.size:
        return
    empty = int(np.isnan(inputs).reshape(len(inputs), -1).all(axis=1).sum())
    if empty:
        validation.fail("inputs", "examples with a number in each", f"NaN alone in {empty} rows")


def _refuse_shared(inside: NDArray[Any], outside: NDArray[Any]) -> None:
    twice = int(shared_rows(outside, inside).sum())
    if twice:
        raise Overlap(
            f"{twice} of {len(outside)} non-members are members, too: take examples that were "
            "not trained on, or drop those that are in both"
        )


def _side(name: str, side: Labelled) -> tuple[NDArray[Any], NDArray[np.int64]]:
    inputs, labels = _numbers(name, side[0]), class_numbers("labels", side[1])
    if len(inputs) != len(labels):
        validation.fail(name, "as many inputs as labels", (len(inputs), len(labels)))
    return inputs, labels


def _numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of numbers, in the machine's own order of bytes."""
    rows = np.asarray(values)
    if rows.dtype.kind == "O":  # a table of numbers of several types comes as objects
        try:
            rows = rows.astype(np.float64)
        except (TypeError, ValueError):
            validation.fail(name, "numbers (code text as numbers first)", "other things")
    if rows.ndim == 0 or rows.dtype.kind not in "biuf":
        validation.fail(
            name, "an array of numbers, one example a row", (rows.dtype.name, rows.shape)
        )
    wide = rows.dtype.kind == "f" and rows.dtype.itemsize > 8  # its bytes have gaps
    return rows.astype(np.float64 if wide else rows.dtype.newbyteorder("="), copy=False)


def _marks(members: ArrayLike) -> NDArray[np.bool_]:
    given = np.asarray(members)
    if given.ndim != 1 or not np.isin(given, (0, 1)).all():
        validation.fail("members", "True or False for every example", given.tolist()[:5])
    return given.astype(bool)
