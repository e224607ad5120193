"""A stream as a data set: rows that can only be read one after the other, for streamed lots.

    >>> rows = InOrder(lambda: ["1.0 0", "2.0 1", "3.0 0"], rows=3, read=str.split)
    >>> len(rows), rows[0], rows[1]
    (3, ['1.0', '0'], ['2.0', '1'])

Rows are read when their lot comes, once an epoch, and not kept. A run that is resumed reads forward
to where it goes on.

Places. Neighbours are streams in which one row is blanked or replaced *at its place*, so what one
row holds must not move or change any other. A stream that parses what it yields does not keep to
that: a generator is over after the first row that it cannot parse, and every later row with it. So
yield rows as they come, cut by something that is no part of them (lines of bytes, files, messages),
and parse each in ``read``, where a bad row is one bad row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from torch.utils.data import Dataset

from sfumato.core import validation
from sfumato.learning.dp_sgd.errors import StreamError

__all__ = ["InOrder"]


@final
class InOrder(Dataset[Any]):
    """Rows by their number, as long as numbers come in order.

    The row read last is remembered, so that asking for it again reads nothing: the first row, which
    shows a trainer the structure of the data, is not lost. An earlier row than that begins the
    stream anew; a later one reads forward. Each worker process begins a stream of its own and reads
    all rows, those of other workers' lots, too.

    Args:
        opened: begins the stream: called once an epoch by every process. Each call must give the
            same rows in the same order, and open whatever it reads itself.
        rows: how many there are, which is public. What comes after them is never read.
        read: makes a row of what the stream yields, one at a time. Whatever may fail because of
            what a row says belongs here: see the module.
    """

    def __init__(
        self,
        opened: Callable[[], Iterable[Any]],
        rows: int,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self._opened, self._rows, self._read = opened, validation.count("rows", rows), read
        self._stream: Iterator[Any] | None = None
        self._process = 0  # that opened the stream
        self._at = self._rows  # the number of the row that was taken last
        self._last: Any = None
        self._failed = False  # whether a row could not be taken since the stream was opened

    def __len__(self) -> int:
        return self._rows

    def __getstate__(self) -> dict[str, Any]:
        """Without the stream, which another process opens for itself."""
        closed = {"_stream": None, "_process": 0, "_at": self._rows, "_last": None}
        return self.__dict__ | closed

    def __getitem__(self, index: int) -> Any:
        """The row of this number, the first is 0.

        Raises:
            IndexError: if it is not one of the declared rows.
            StreamError: if the stream could not be opened, or has fewer rows than were declared.
        """
        if not 0 <= index < self._rows:
            raise IndexError(index)
        if index < self._at or self._process != os.getpid():
            self._open()
        while self._at < index:
            self._take()
        if isinstance(self._last, _Unreadable):
            raise self._last.error
        return self._last if self._read is None else self._read(self._last)

    def check_reopens(self) -> None:
        """Raises if the stream can be read once only, which worker processes cannot share.

        Raises:
            ValueError: if ``opened`` gives one and the same iterator twice.
        """
        if self._begun() is self._begun():
            raise ValueError(_ONCE)

    def _begun(self) -> Iterator[Any]:
        try:
            return iter(self._opened())
        except Exception as error:  # before any row: it does not depend on one
            raise StreamError(f"the stream could not be opened: {error!r}") from error

    def _open(self) -> None:
        before, process = self._stream, os.getpid()
        self._stream = self._begun()
        if self._stream is before and self._process not in (0, process):
            raise StreamError(_ONCE)
        self._process, self._at, self._failed = process, -1, False

    def _take(self) -> None:
        """The next row, which has its place even if it cannot be read."""
        assert self._stream is not None
        self._at += 1
        try:
            self._last = next(self._stream)
        except StopIteration:
            self._at = self._rows  # begin anew, if anybody asks again
            raise StreamError(self._too_short()) from None
        except Exception as error:  # whatever a private row makes the user's code do
            self._last, self._failed = _Unreadable(error), True

    def _too_short(self) -> str:
        if self._failed:
            return (
                f"the stream must have the declared number of rows ({self._rows}), and was over "
                "after a row that it could not give, as a generator is: yield rows as they come, "
                "and parse each in InOrder(..., read=), where one bad row leaves all others alone"
            )
        return (
            f"the stream must have the declared number of rows ({self._rows}), and ended before: "
            "declare as many as there are"
        )


_ONCE = (
    "workers must be 0 for a stream that can be read only once, of which every process would take "
    "rows away from the others: let opened() begin a stream of its own at every call"
)


class _Unreadable:
    """In the place of a row."""

    def __init__(self, error: Exception) -> None:
        self.error = error
