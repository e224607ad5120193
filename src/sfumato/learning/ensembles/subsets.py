"""Which model is trained on which rows: a table of booleans, a row for each model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["disjoint", "half_each", "padded_rows"]


def half_each(models: int, rows: int, seed: int) -> NDArray[np.bool_]:
    """Each row in exactly half of the models, drawn independently of every other row.

    Models are paired: what one has, the other has not. So each also has about half of the rows.
    As in Carlini et al., arXiv:2112.03570, section 6.

    >>> half_each(4, 1000, seed=0).sum(axis=0).tolist() == [2] * 1000
    True
    """
    if validation.count("models", models) % 2:
        validation.fail("models", "an even number, for each row to be in half of them", models)
    generator = np.random.default_rng(seed)
    ranks = generator.random((models, validation.count("rows", rows))).argsort(axis=0)
    return ranks < models // 2


def disjoint(models: int, rows: int, seed: int) -> NDArray[np.bool_]:
    """Each row in one model, in parts of equal size, give or take one.

    >>> disjoint(3, 10, seed=0).sum(axis=1).tolist()
    [4, 3, 3]
    """
    generator = np.random.default_rng(seed)
    owner = generator.permutation(rows) % validation.count("models", models)
    return owner == np.arange(models)[:, None]


def padded_rows(subsets: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The numbers of each model's rows, filled up with -1 to the longest.

    >>> padded_rows(np.array([[True, False, True], [False, True, False]])).tolist()
    [[0, 2], [1, -1]]
    """
    sizes = subsets.sum(axis=1)
    if subsets.ndim != 2 or not len(sizes) or sizes.min() == 0:
        validation.fail("subsets", "a row for each model, none of them empty", subsets.shape)
    table = np.full((len(subsets), sizes.max()), -1, dtype=np.int64)
    for model, chosen in enumerate(subsets):
        table[model, : sizes[model]] = np.flatnonzero(chosen)
    return table
