"""A stream as a data set: rows that can only be read one after the other, for streamed lots.

    >>> rows = InOrder(lambda: iter([(1.0, 0), (2.0, 1), (3.0, 0)]), rows=3)
    >>> len(rows), rows[0], rows[1]
    (3, (1.0, 0), (2.0, 1))

Rows are read when their lot comes, once an epoch, and not kept. A run that is resumed reads forward
to where it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from torch.utils.data import Dataset

from sfumato.core import validation

__all__ = ["InOrder"]


@final
class InOrder(Dataset[Any]):
    """Rows by their number, as long as numbers come in order.

    The row read last is remembered, so that asking for it again reads nothing: the first row, which
    shows a trainer the structure of the data, is not lost. An earlier row than that begins the
    stream anew; a later one reads forward.

    Args:
        opened: begins the stream: called once an epoch.
        rows: how many there are, which is public. What comes after them is never read.
    """

    def __init__(self, opened: Callable[[], Iterable[Any]], rows: int) -> None:
        self._opened, self._rows = opened, validation.count("rows", rows)
        self._stream: Iterator[Any] = iter(())
        self._at, self._last = self._rows, None  # the number of the row that was read last

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> Any:
        """The row of this number, the first is 0.

        Raises:
            IndexError: if there is none: the stream has fewer rows than were declared.
        """
        if not 0 <= index < self._rows:
            raise IndexError(index)
        if index < self._at:
            self._stream, self._at = iter(self._opened()), -1
        while self._at < index:
            try:
                self._last = next(self._stream)
            except StopIteration:
                raise IndexError(
                    f"the stream must have the declared number of rows ({self._rows}), and ended "
                    "before: declare as many as there are"
                ) from None
            self._at += 1
        return self._last
