"""Delimited files as a stream of Arrow batches, which DuckDB reads anew for every question.

:mod:`sfumato.data.delimited` says what a line's row is. Most blocks of lines need none of its care:
where lines have as many cells as the header and quotes, if there are any, are in order, Arrow's own
parser gives the same cells, several times as fast. A few other lines are written anew for it. Which
of the two reads a block changes how long that takes and nothing else; tests compare them.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from sfumato.data.delimited import (
    Cells,
    Delimited,
    Odd,
    cells_in,
    evened,
    in_order,
    report,
)

__all__ = ["LineStream", "batch_of"]

_WORKERS = min(4, os.cpu_count() or 1)


class LineStream:
    """The rows of delimited files for an engine that asks for an Arrow stream; text throughout.

    Each question gets a stream of its own. Only a few blocks are in memory at once.
    """

    def __init__(self, files: Delimited) -> None:
        self.files = files
        self.schema = pa.schema([(name, pa.string()) for name in files.names])

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        odd: Odd = Counter()
        waiting: deque[Future[tuple[pa.RecordBatch, Odd]]] = deque()
        with ThreadPoolExecutor(_WORKERS) as workers:
            for block in self.files.blocks(odd):
                waiting.append(workers.submit(batch_of, block, self.files))
                if len(waiting) > 2 * _WORKERS:
                    yield _next(waiting, odd)
            while waiting:
                yield _next(waiting, odd)
        report(self.files.paths, odd)


def _next(waiting: deque[Future[tuple[pa.RecordBatch, Odd]]], odd: Odd) -> pa.RecordBatch:
    batch, found = waiting.popleft().result()
    odd.update(found)
    return batch


def batch_of(block: bytes, files: Delimited) -> tuple[pa.RecordBatch, Odd]:
    """A block of lines as a batch of text columns, and what was odd in it."""
    odd: Odd = Counter()
    batch = _usual(block, files, odd)
    if batch is None:
        odd.clear()
        batch = _arrow(cells_in(block, len(files.names), files.delimiter, odd), files.names)
    return batch, odd


def _usual(block: bytes, files: Delimited, odd: Odd) -> pa.RecordBatch | None:
    """The batch, if Arrow's parser can have but one view of every line; otherwise None."""
    if b"\0" in block or block.startswith(b"\xef\xbb\xbf"):  # which Arrow would take for a mark
        return None
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        if b"\r" in block:
            return None
    quoted = False
    if b'"' in block:
        found = in_order(block, len(files.names), files.delimiter, odd)
        if found is None:
            return None
        block, quoted = found
    parsed = _parsed(block, files, quoted)
    if parsed is None:
        even = evened(block, len(files.names), files.delimiter, quoted)
        parsed = None if even is None else _parsed(even, files, quoted)
    return parsed


def _parsed(block: bytes, files: Delimited, quoted: bool) -> pa.RecordBatch | None:
    """The batch by Arrow's parser; None for lines of another width, or cells that are no UTF-8."""
    try:
        table = pc.read_csv(
            pa.BufferReader(block),
            read_options=pc.ReadOptions(
                column_names=files.names, use_threads=False, block_size=len(block) + 1
            ),
            parse_options=pc.ParseOptions(
                delimiter=files.delimiter, quote_char='"' if quoted else False
            ),
            convert_options=pc.ConvertOptions(
                check_utf8=not block.isascii(),
                column_types=dict.fromkeys(files.names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid:  # nothing but empty lines, too
        return None
    return table.combine_chunks().to_batches()[0] if table.num_rows else None


def _arrow(cells: Cells, names: tuple[str, ...]) -> pa.RecordBatch:
    """Cells as columns: each is every so-manieth of all cells and what stands between them."""
    rows, width = cells.starts.shape
    places = np.stack([cells.starts, cells.ends], axis=-1).astype(np.int32).ravel()
    if not rows:
        return pa.record_batch([pa.array([], pa.string())] * width, names=list(names))
    whole = pa.StringArray.from_buffers(
        len(places) - 1, pa.py_buffer(places), pa.py_buffer(cells.data)
    )
    columns: list[pa.Array] = []
    for column in range(width):
        text = whole.take(pa.array(2 * (column + width * np.arange(rows))))
        held = np.packbits(cells.ends[:, column] > cells.starts[:, column], bitorder="little")
        _, offsets, data = text.buffers()
        columns.append(
            pa.StringArray.from_buffers(rows, offsets, data, pa.py_buffer(held.tobytes()))
        )
    return pa.record_batch(columns, names=list(names))
