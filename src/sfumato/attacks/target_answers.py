"""How a model's answers are read, whatever the model says.

A model may answer with what can be no probability: NaN after an overflow, 1.2, -inf. One such
answer must not end an attack that has asked ten thousand times, and must not bend its result in
silence. So:

==================================  ===============================================================
answer                              read as
==================================  ===============================================================
0.0005 below 0 or above 1           0 or 1: half precision rounds so
NaN, infinite, or further beyond    all classes alike, 1 / classes each: the model knows nothing
most answers so far beyond [0, 1]   refused: these are logits, or another thing than probabilities
a loss that is NaN or infinite      the loss of a probability of 0: see :data:`LEAST`
==================================  ===============================================================

What is replaced is warned of (:class:`Unreadable`) and counted; a target tells how often in
``target.unreadable``. Rows need not add up to 1: services round them, or cut them to the largest.

    >>> import warnings
    >>> tally = Tally()
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     read_probabilities(np.array([[0.9, 0.1], [np.nan, 0.2]]), tally, "my model").tolist()
    [[0.9, 0.1], [0.5, 0.5]]
    >>> print(said[0].message)
    my model: 1 of 2 answers can be no probabilities; each counts as 1/2 for every class
    >>> tally.unreadable
    1
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["LEAST", "Tally", "Unreadable", "class_numbers", "read_losses", "read_probabilities"]

LEAST = 1e-300
"""What a probability of 0 counts as in a loss, so that it is finite: about 691."""

_SLACK = 1e-3  # what rounding in half precision may add to a probability


class Unreadable(UserWarning):
    """Some answers of a model can be no probabilities, and were replaced."""


@dataclass
class Tally:
    """What a model was asked and how it answered.

    Attributes:
        asked: about how many examples it was asked.
        rows: how many rows of scores it gave.
        beyond: how many of these were finite, and no probabilities.
        unreadable: how many answers were replaced.
    """

    asked: int = 0
    rows: int = 0
    beyond: int = 0
    unreadable: int = 0


def read_probabilities(rows: NDArray[Any], tally: Tally, name: str) -> NDArray[np.float64]:
    """Rows of probabilities within [0, 1]; see the module.

    Raises:
        ValueError: for what is no table, and if most rows so far lay beyond [0, 1].
    """
    if rows.ndim != 2 or rows.shape[1] < 2:
        wanted = "a row of probabilities an input, one for each of two classes or more"
        validation.fail("a target's scores", wanted, rows.shape)
    found = rows.astype(np.float64)
    finite = np.isfinite(found).all(axis=1)
    within = np.all((found >= -_SLACK) & (found <= 1 + _SLACK), axis=1)
    beyond = finite & ~within
    tally.rows += len(found)
    tally.beyond += int(beyond.sum())
    if beyond.any() and 2 * tally.beyond > tally.rows:
        row = found[int(beyond.argmax())].tolist()[:5]
        validation.fail("a target's scores", "probabilities (take the softmax of logits)", row)
    _told(name, tally, int((~within).sum()), len(found), f"1/{found.shape[1]} for every class")
    return np.where(within[:, None], np.clip(found, 0.0, 1.0), 1 / found.shape[1])


def read_losses(losses: NDArray[Any], tally: Tally, name: str) -> NDArray[np.float64]:
    """Losses, finite ones; see the module."""
    found, most = losses.astype(np.float64), -math.log(LEAST)
    finite = np.isfinite(found)
    _told(name, tally, int((~finite).sum()), len(found), f"a loss of {most:.0f}")
    return np.where(finite, found, most)


def _told(name: str, tally: Tally, replaced: int, answers: int, by: str) -> None:
    if replaced:
        tally.unreadable += replaced
        warnings.warn(
            f"{name}: {replaced} of {answers} answers can be no probabilities; each counts as {by}",
            Unreadable,
            stacklevel=4,
        )


def class_numbers(name: str, given: ArrayLike) -> NDArray[np.int64]:
    """A list of classes; refuses what would be cut to one (0.7), or count from the end (-1)."""
    found = np.asarray(given)
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        validation.fail(name, "a list of class numbers", (found.dtype.name, found.shape))
    if not ((found >= 0) & (found < 2**31) & (found == np.trunc(found))).all():
        raise ValueError(f"{name} must be class numbers, whole and from 0 up")  # whose, is private
    return found.astype(np.int64)
