"""An order of the rows that the inputs alone decide, whatever order they come in.

Folders of pictures are read class by class, and tables are often sorted by label. Then the place of
a row tells of labels, of others' too: one picture in another class moves all those between. Stages,
batches and principal components go by places, so rows are first put in the order of a digest of
their inputs, which are public.

Formal guarantee. Rows with equal inputs are put in a uniformly random order by private coins, drawn
once and kept with the run. Any fixed rule would not do: with labels 0, 1, 2 of three equal inputs
in the order of a folder, making the first a 2 gives 1, 2, 2, which differs in two places. Given the
order of the *rows*, another label of one row is another label in one place, and what follows is
epsilon-DP; a mixture over an order that depends on no label is so, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins

__all__ = ["digest_of", "order_by_inputs", "unordered_digest"]


def order_by_inputs(inputs: NDArray[Any], coins: Coins) -> NDArray[np.int64]:
    """The numbers of the rows, by the digests of their inputs; of equal ones by private coins.

    >>> from sfumato.core import SeededCoins
    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> first = rows[order_by_inputs(rows, SeededCoins(0))]
    >>> bool((first == rows[::-1][order_by_inputs(rows[::-1], SeededCoins(1))]).all())
    True
    """
    high, low = np.frombuffer(b"".join(_digests(inputs)), dtype=">u8").reshape(-1, 2).T
    keys = coins.words(len(inputs))
    while len(np.unique(keys)) < len(keys):  # so that every order is as probable as any other
        keys = coins.words(len(inputs))
    return np.lexsort((keys, low, high)).astype(np.int64)


def unordered_digest(inputs: NDArray[Any]) -> str:
    """Of all rows, in whatever order they come.

    >>> rows = np.arange(6.0).reshape(3, 2)
    >>> unordered_digest(rows) == unordered_digest(rows[::-1]) != unordered_digest(rows[:2])
    True
    """
    found = hashlib.blake2b(repr((inputs.shape, inputs.dtype.str)).encode(), digest_size=16)
    found.update(b"".join(sorted(_digests(inputs))))
    return found.hexdigest()


def _digests(inputs: NDArray[Any]) -> Iterator[bytes]:
    return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in inputs)


def digest_of(*arrays: NDArray[Any]) -> str:
    """Of all numbers, and of the arrays' shapes."""
    found = hashlib.blake2b(digest_size=16)
    for array in arrays:
        found.update(repr((array.shape, array.dtype.str)).encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()
