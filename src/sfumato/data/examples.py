"""Examples with labels, and a data set of them: arrays, and what may be said of them in public."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset", "Examples"]


class Examples(NamedTuple):
    """Inputs and their labels: ``inputs, labels = data.train``.

    Attributes:
        inputs: one example a row; images as uint8 in the order row, column, channel, features as
            float32 between 0 and 1.
        labels: the number of each example's class, as int64.
    """

    inputs: NDArray
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set to train and to test on.

    Everything but ``train``, ``test`` and ``owners`` is public: it was declared or published, and
    not read off the rows. The number of rows is theirs, and may be private too.

    Attributes:
        name: what it is called.
        train, test: the examples; ``test`` may have none.
        classes: their names; label ``i`` means ``classes[i]``.
        shape: of one input, such as ``(28, 28, 1)`` for an image or ``(7,)`` for features.
        bounds: the least and the greatest value that an input may hold, as declared.
        source: where it comes from.
        license: on what terms.
        citation: whose work it is.
        owners: whose each row of ``train`` is, None or NaN where that is missing; None if every
            row is a unit of its own.
        public_size: the declared number of units to train on, which are the owners if there are
            any and the records otherwise; None if it was not declared. It need not be the true one.
        test_is_public: whether what is measured on ``test`` may be told; otherwise it is private.
        rows: if ``train`` is but the first so many records of a larger set, how many; see
            :func:`~sfumato.data.first_rows.first_rows`.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    bounds: tuple[float, float]
    source: str
    license: str = ""
    citation: str = ""
    owners: NDArray | None = None
    public_size: int | None = None
    test_is_public: bool = False
    rows: int | None = None

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"Dataset({self.name!r}, {len(self.classes)} classes, inputs of {shape})"
