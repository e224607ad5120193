"""The teachers' votes, which never leave: held for an aggregator, and for the curator's eyes."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["Ballots"]


@final
class Ballots:
    """How many teachers voted for which class, question by question. Private.

    Nothing of it is shown by ``repr``, and it cannot be pickled, so that it does not slip into a
    log or a file. What may be told of it, aggregators tell.

    Args:
        counts: (questions, classes) numbers of votes.
        questions: which inputs they are about, one a row; by default the first, the second ...

    >>> Ballots(np.array([[3, 0], [1, 2]]))
    Ballots(2 questions, 2 classes; votes are private)
    """

    def __init__(
        self, counts: NDArray[np.integer], questions: NDArray[np.integer] | None = None
    ) -> None:
        table = np.asarray(counts)
        if table.ndim != 2 or not table.shape[1] or table.dtype.kind not in "iu":
            validation.fail("counts", "a table of whole numbers, a row a question", table.shape)
        asked = np.arange(len(table)) if questions is None else np.asarray(questions)
        if asked.shape != (len(table),) or len(set(asked.tolist())) != len(asked):
            validation.fail("questions", "a different number for each row", asked.shape)
        self._counts = table.astype(np.int64)
        self._counts.setflags(write=False)
        self._asked = asked.astype(np.int64)
        self._places = {number: place for place, number in enumerate(asked.tolist())}

    def __repr__(self) -> str:
        return f"Ballots({len(self)} questions, {self.classes} classes; votes are private)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("votes are private and are not pickled: keep them by save()")

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, question: object) -> bool:
        return question in self._places

    @property
    def classes(self) -> int:
        """How many there are."""
        return self._counts.shape[1]

    def of(self, question: int) -> NDArray[np.int64]:
        """One question's votes, for an aggregator."""
        return self._counts[self._places[question]]

    def and_those(self, other: Ballots) -> Ballots:
        """Both, about different questions."""
        counts = np.concatenate([self._counts, other._counts])
        return Ballots(counts, np.concatenate([self._asked, other._asked]))

    def curator_counts(self) -> NDArray[np.int64]:
        """All of them, for the owner of the data alone."""
        return self._counts

    def save(self, path: Path) -> None:
        """To a file that only its owner may read; never unpickled."""
        from sfumato.learning.durable import write_whole

        sizes = np.array([len(self), self.classes])
        parts = (sizes, self._asked, self._counts)
        write_whole(path, b"".join(part.astype("<i8").tobytes() for part in parts))

    @classmethod
    def load(cls, path: Path) -> Ballots:
        """What :meth:`save` wrote.

        Raises:
            ValueError: if it is something else.
        """
        data = path.read_bytes()
        numbers = np.frombuffer(data[: len(data) // 8 * 8], dtype="<i8")
        rows, classes = (int(n) for n in numbers[:2]) if len(numbers) > 1 else (-1, 0)
        if len(data) != 8 * (2 + rows + rows * classes):
            raise ValueError(f"{path} must hold votes, but its size is not that of a table")
        return cls(numbers[2 + rows :].reshape(rows, classes), numbers[2 : 2 + rows])
