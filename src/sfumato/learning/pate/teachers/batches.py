"""A teacher's batches: drawn from its own rows, by draws whose number is public.

For each chunk of steps a teacher draws ``steps x batch`` uniform numbers from a generator that is
seeded by (seed, teacher, chunk). Whole passes over its n rows are permutations, by the order of n
of these numbers; what is left over after the last whole pass is drawn with replacement, as floor(u
n). So the places drawn are a function of (seed, teacher, chunk) and n, and every batch is full.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn_places", "places_of_all"]

_BATCHES = 1  # sets these draws apart from those of initial weights


def drawn_places(count: int, size: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """So many places among ``size`` rows; zeros if there are none.

    >>> sorted(drawn_places(4, 4, seed=(0, 1, 2)).tolist())
    [0, 1, 2, 3]
    >>> drawn_places(3, 0, seed=(0, 1, 2)).tolist()
    [0, 0, 0]
    """
    uniform = np.random.default_rng(tuple(seed)).random(count)
    if size == 0:
        return np.zeros(count, dtype=np.int64)
    whole = count // size * size
    passes = uniform[:whole].reshape(-1, size).argsort(axis=1, kind="stable")
    rest = np.minimum((uniform[whole:] * size).astype(np.int64), size - 1)
    return np.concatenate([passes.ravel(), rest]).astype(np.int64)


def places_of_all(
    steps: int, batch: int, teachers: range, sizes: Sequence[int], seed: int, chunk: int
) -> NDArray[np.int64]:
    """The places of one chunk's rows in each teacher's own part: (steps, teachers, batch).

    Args:
        steps: of the chunk.
        batch: rows of one step of one teacher.
        teachers: their numbers among all.
        sizes: how many rows each of them has.
        seed: of all teachers.
        chunk: its number.
    """
    each = [
        drawn_places(steps * batch, size, (seed, teacher, chunk, _BATCHES))
        for teacher, size in zip(teachers, sizes, strict=True)
    ]
    return np.stack(each).reshape(len(each), steps, batch).transpose(1, 0, 2)
